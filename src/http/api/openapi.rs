//! `GET /api/openapi.json`: the routes as an OpenAPI 3.1 document, built from the table `openapi.txt`. utoipa does not serve: it
//! needs an annotated function for each route, and most of these routes are one line.

use std::sync::LazyLock;

use axum::extract::{MatchedPath, Query, Request};
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daoyou_channels::HttpError;
use serde_json::{Map, Value, json};

const TABLE: &str = include_str!("openapi.txt");

/// The prefixes of paths that need no token of the gateway.
const OPEN: &[&str] = &["/healthz", "/readyz", "/webhook/"];

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
struct RouteLine<'a> {
    method: &'a str,
    path: &'a str,
    /// The parameters of the query, as written.
    query: Vec<&'a str>,
    body: Option<&'a str>,
    status: u16,
    answer: &'a str,
    summary: &'a str,
}

impl<'a> RouteLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (head, summary) = line.split_once(" : ")?;
        let (request, answer) = head.split_once(" -> ")?;
        let (method, rest) = request.split_once(' ')?;
        let (address, body) = rest.split_once(' ').map_or((rest, None), |(address, body)| (address, Some(body)));
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let (status, answer) = answer.split_once(' ').unwrap_or((if answer == "none" { "204" } else { "200" }, answer));
        Some(Self {
            method,
            path,
            query: query.split('&').filter(|parameter| !parameter.is_empty()).collect(),
            body,
            status: status.parse().ok()?,
            answer,
            summary,
        })
    }

    fn all() -> impl Iterator<Item = RouteLine<'static>> {
        TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(RouteLine::parse)
    }

    /// Returns the names of the parameters of the query.
    fn query_names(&self) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter_map(|parameter| parameter.split([':', '!']).next())
    }

    /// Returns what is wrong with the query of a request to this route.
    fn query_fault(&self, query: &[(String, String)]) -> Option<String> {
        let known: Vec<_> = self.query_names().collect();
        if let Some((unknown, _)) = query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            let allowed = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Some(format!("there is no parameter {unknown:?}; allowed: {allowed}"));
        }
        known.iter().zip(&self.query).find_map(|(name, parameter)| {
            let mut values = query.iter().filter(|(known, _)| known == name).map(|(_, value)| value);
            let (value, kind) = (values.next(), parameter.split_once(':').map_or("string", |(_, kind)| kind));
            let Some(value) = value else { return parameter.ends_with('!').then(|| format!("{name} is missing")) };
            let allowed = match kind {
                _ if values.next().is_some() => return Some(format!("{name} stands in the address more than once")),
                "int" if value.parse::<u64>().is_err() => "a whole number".to_owned(),
                "count" if !value.parse::<u32>().is_ok_and(|count| count > 0) => {
                    format!("a whole number from 1 to {}", u32::MAX)
                }
                "bool" if value.parse::<bool>().is_err() => "true or false".to_owned(),
                _ => return None,
            };
            Some(format!("{name} is {value:?}; allowed: {allowed}"))
        })
    }

    fn parameters(&self) -> Vec<Value> {
        let of_path = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let of_path =
            of_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
        let of_query = self.query.iter().map(|parameter| {
            let (name, kind) = parameter.split_once(':').unwrap_or((parameter, "string"));
            let is_required = name.ends_with('!');
            json!({
                "name": name.trim_end_matches('!'),
                "in": "query",
                "required": is_required,
                "schema": schema(kind),
            })
        });
        of_path.chain(of_query).collect()
    }

    fn operation(&self) -> Value {
        let id = format!("{} {}", self.method.to_lowercase(), self.path);
        let id: String = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let tag = self.path.trim_start_matches("/api/").trim_start_matches('/').split('/').next().unwrap_or_default();
        let mut operation = json!({
            "operationId": id,
            "summary": self.summary,
            "tags": [tag],
            "responses": {
                self.status.to_string(): answer(self.answer),
                "default": { "$ref": "#/components/responses/Error" },
            },
        });
        let parameters = self.parameters();
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        if let Some(body) = self.body {
            operation["requestBody"] = json!({ "required": true, "content": content(body) });
        }
        if OPEN.iter().any(|open| self.path.starts_with(open)) {
            operation["security"] = json!([]);
        }
        operation
    }
}

fn schema(kind: &str) -> Value {
    match kind {
        "any" | "json" => json!({}),
        "int" => json!({ "type": "integer" }),
        "count" => json!({ "type": "integer", "minimum": 1 }),
        "bool" => json!({ "type": "boolean" }),
        other => json!({ "type": other }),
    }
}

/// Returns the content of a body: `text`, `json`, or the fields of an object.
fn content(body: &str) -> Value {
    let Some(fields) = body.strip_prefix('{').and_then(|body| body.strip_suffix('}')) else {
        let media_type = if body == "text" { "text/plain" } else { "application/json" };
        return json!({ media_type: { "schema": if body == "text" { schema("string") } else { schema("json") } } });
    };
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in fields.split(", ") {
        let (name, kind) = field.split_once(':').unwrap_or((field, "string"));
        let plain = name.trim_end_matches('?');
        if plain == name {
            required.push(plain);
        }
        properties.insert(plain.to_owned(), schema(kind));
    }
    let object = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "application/json": { "schema": object } })
}

fn answer(kind: &str) -> Value {
    let (media_type, schema) = match kind {
        "none" => return json!({ "description": "Done." }),
        "text" => ("text/plain", schema("string")),
        "events" => ("text/event-stream", schema("string")),
        other => ("application/json", schema(other)),
    };
    json!({ "description": "The answer.", "content": { media_type: { "schema": schema } } })
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in RouteLine::all() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = route.operation();
    }
    let text = schema("string");
    let error = json!({
        "type": "object",
        "properties": { "code": text, "message": text },
        "required": ["code", "message"],
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "daoyou",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The HTTP interface of a gateway. Lists and objects have further fields than those that a page of the documentation names.",
        },
        "paths": paths,
        "security": [{ "token": [] }],
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": {
                "Error": {
                    "description": "The request failed.",
                    "content": { "application/json": { "schema": {
                        "type": "object",
                        "properties": { "error": error },
                        "required": ["error"],
                    } } },
                },
            },
        },
    })
}

/// Refuses a request whose query does not fit its route: a parameter is unknown, missing, or of another kind.
pub(super) async fn check_query(path: MatchedPath, request: Request, next: Next) -> Result<Response, HttpError> {
    let method = if request.method() == Method::HEAD { "GET" } else { request.method().as_str() };
    let is_called = |route: &RouteLine<'_>| (route.method, route.path) == (method, path.as_str());
    // A query that cannot be read is the error of the handler that needs it.
    let query = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    if let (Some(route), Ok(Query(query))) = (RouteLine::all().find(is_called), query)
        && let Some(fault) = route.query_fault(&query)
    {
        return Err(HttpError::bad_request(format!("{}: {fault}", route.path)));
    }
    Ok(next.run(request).await)
}

/// Returns the document.
pub(super) async fn openapi() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
