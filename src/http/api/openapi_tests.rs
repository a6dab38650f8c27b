//! Compares the OpenAPI document with the routes in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// The routes that only the control socket has.
const CONTROL_SOCKET: &[&str] = &["/mcp/stream", "/api/page/code", "/control/{name}"];

/// A route in the code.
#[derive(Debug)]
struct CodeRoute {
    methods: BTreeSet<String>,
    /// The fields of the query type, by method; no entry if the handler takes no query.
    query: BTreeMap<String, BTreeSet<String>>,
    /// Several handlers share the query type, and each uses a part of it.
    is_shared: bool,
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.to_string_lossy().contains("test") {
            found.push(path);
        }
    }
}

/// Returns the text within the parentheses that begin at `open`.
fn within(code: &str, open: usize) -> &str {
    let mut depth = 0;
    for (at, c) in code[open..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &code[open + 1..open + at];
        }
    }
    panic!("unbalanced parentheses");
}

/// Returns the calls at the outermost level of an expression: name and arguments. `limit_body` stands for the calls of its route.
fn calls(expression: &str) -> Vec<(&str, &str)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(open) = expression[at..].find('(').map(|open| at + open) {
        let arguments = within(expression, open);
        let name = expression[at..open].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
        match name {
            "limit_body" => found.extend(calls(arguments)),
            _ => found.push((name, arguments)),
        }
        at = open + arguments.len() + 2;
    }
    found
}

/// Returns the fields of the type that a handler takes from the query. `module::function` is in the file of that module.
fn query_fields(code: &str, folder: &Path, handler: &str) -> Option<(String, BTreeSet<String>)> {
    let module = handler
        .split_once("::")
        .and_then(|(module, function)| Some((fs::read_to_string(folder.join(format!("{module}.rs"))).ok()?, function)));
    let (code, handler) = module.as_ref().map_or((code, handler), |(code, function)| (code.as_str(), *function));
    let is_name = handler.chars().all(|c| c.is_alphanumeric() || c == '_');
    let signature = match code.find(&format!("fn {handler}(")) {
        Some(at) if is_name => within(code, at + code[at..].find('(').unwrap()),
        _ => handler,
    };
    let name = signature.split("Query<").nth(1)?.split('>').next().unwrap();
    let body = code.split(&format!("struct {name} {{")).nth(1)?.split("\n}").next().unwrap();
    let fields = body.lines().map(str::trim).filter(|line| !line.starts_with(['/', '#']));
    let fields = fields.filter_map(|line| line.split_once(": ")).map(|(field, _)| field.to_owned());
    Some((name.to_owned(), fields.collect()))
}

/// Returns the routes in the code by path.
fn routes_in_code() -> BTreeMap<String, CodeRoute> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src/http"), &mut files);
    sources(&root.join("channels"), &mut files);
    let mut routes = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (at, found) in code.match_indices(".route(") {
            let arguments = within(code, at + found.len() - 1);
            let (path, handlers) = match arguments.trim().strip_prefix('"') {
                Some(rest) => rest.split_once('"').unwrap(),
                // A webhook's own path.
                None if arguments.starts_with('&') => arguments.split_once(',').unwrap(),
                None => continue,
            };
            let path = path.trim().replace("&format!(\"{path}", "/webhook/{name}").replace("{{id}}\")", "{id}");
            let path = path.replace("&path", "/webhook/{name}").replace("{*", "{");
            let route = routes.entry(path).or_insert_with(|| CodeRoute {
                methods: BTreeSet::new(),
                query: BTreeMap::new(),
                is_shared: false,
            });
            for (method, handler) in calls(handlers) {
                // The name of a helper that creates handlers, such as `get_named`, begins with the method.
                let method = method.split('_').next().unwrap();
                if ["get", "post", "put", "patch", "delete", "any"].contains(&method) {
                    route.methods.insert(method.to_uppercase());
                    if let Some((name, fields)) = query_fields(code, file.parent().unwrap(), handler.trim()) {
                        route.is_shared = name == "Params";
                        route.query.insert(method.to_uppercase(), fields);
                    }
                }
            }
        }
    }
    routes
}

#[test]
fn every_route_is_described_with_its_parameters_and_nothing_else_is() {
    let code = routes_in_code();
    assert!(code.len() > 50, "the routes are found: {}", code.len());
    let mut described = BTreeMap::<&str, BTreeSet<String>>::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let route = RouteLine::parse(line).unwrap_or_else(|| panic!("not a route: {line}"));
        assert!(described.entry(route.path).or_default().insert(route.method.to_owned()), "twice: {line}");
        let known = code.get(route.path).unwrap_or_else(|| panic!("the code has no such route: {line}"));
        let names: BTreeSet<String> = route.query_names().map(str::to_owned).collect();
        match known.query.get(route.method) {
            Some(fields) if known.is_shared => assert!(names.is_subset(fields), "{line}: {fields:?}"),
            // The webhook reads its query after the signature check.
            None if route.path == "/webhook/{name}" => assert_eq!(names.len(), 1, "{line}"),
            fields => assert_eq!(fields.cloned().unwrap_or_default(), names, "{line}"),
        }
        assert!(["object", "array", "text", "events", "any", "none"].contains(&route.answer), "{line}");
    }
    for (path, route) in code.iter().filter(|(path, _)| !CONTROL_SOCKET.contains(&path.as_str())) {
        let methods = described.get(path.as_str()).unwrap_or_else(|| panic!("{path} is not in openapi.txt"));
        assert!(route.methods.contains("ANY") || *methods == route.methods, "{path}: {methods:?} {:?}", route.methods);
    }
}

#[test]
fn the_document_has_the_form_of_openapi() {
    let document = document();
    let models = &document["paths"]["/api/models"]["get"];
    assert_eq!(
        models["parameters"][0],
        json!({"name": "ask", "in": "query", "required": false, "schema": {"type": "string"}})
    );
    let webhook = &document["paths"]["/webhook/{name}"]["post"];
    assert_eq!((&webhook["security"], &webhook["parameters"][0]["in"]), (&json!([]), &json!("path")));
    let schema = &webhook["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(
        (&schema["required"], &schema["properties"]["chat_id"]),
        (&json!(["content"]), &json!({"type": "string"}))
    );
    assert!(webhook["responses"]["202"].is_object() && models["responses"]["200"].is_object());
    let mut ids = BTreeSet::new();
    for operation in document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values())
    {
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
    }
    assert_eq!(ids.len(), RouteLine::all().count());
}
