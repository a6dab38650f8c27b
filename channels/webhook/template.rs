//! Jinja templates that build a message from arbitrary JSON.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderMap;
use minijinja::value::{Enumerator, Kwargs, Object, ObjectExt, StringInput, Value, ValueKind};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, context, escape_formatter, filters,
};

use crate::http_error::HttpError;
use crate::jinja::{self, BoundedOutput};

/// The longest template, in bytes.
const MAX_SOURCE: usize = 16 << 10;
/// The largest output of a template, in bytes.
const MAX_OUTPUT: usize = 1 << 20;
/// The largest count of the filters `batch` and `slice`.
const MAX_COUNT: usize = 1_000;
/// The indentation of each level in the output of the filter `pprint`.
const PPRINT_INDENT: usize = 4;
/// The number of steps that one rendering may take.
const FUEL: u64 = 200_000;
/// The maximum nesting of includes, macros and blocks.
const RECURSION: usize = 32;
/// The variables that a template can use.
const NAMES: [&str; 4] = ["body", "headers", "query", "name"];
/// The removed filters and functions, which could exhaust memory or reveal headers with secrets.
const NO_FILTERS: [&str; 2] = ["format", "indent"];
const NO_FUNCTIONS: [&str; 2] = ["debug", "namespace"];
/// The header with a sender's own id of a request. It is not a secret.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The words of a name, in lower case, that mark a header as secret: `x-api-key`, `x-gitlab-token`. Templates do not see such a
/// header, since a template could copy it into the message.
const SECRET_WORDS: [&str; 12] = [
    "apikey", "auth", "authorization", "cookie", "credential", "credentials", "key", "password", "secret", "signature",
    "token", "tokens",
];

/// A compiled template and its configuration key.
pub struct RequestTemplate {
    key: String,
    environment: Environment<'static>,
}

impl RequestTemplate {
    /// Compiles the template at the configuration key `key`.
    ///
    /// # Errors
    /// A sentence that describes the fault, with its line if the template has several lines.
    pub fn new(key: &str, source: &str) -> Result<Self, String> {
        if source.len() > MAX_SOURCE {
            return Err(format!("the template is longer than {MAX_SOURCE} bytes"));
        }
        check_code(source)?;
        let mut environment = environment();
        environment.add_template_owned(key.to_owned(), source.to_owned()).map_err(|error| describe(&error, source))?;
        let template = Self { key: key.to_owned(), environment };
        template.check(source)?;
        Ok(template)
    }

    /// Makes the template one of a name (a chat, a sender, a message, a session): an object or a list in its output is an error,
    /// because its JSON names nothing that the next message would name again.
    #[must_use]
    pub fn for_name(mut self) -> Self {
        self.environment.set_formatter(|out, state, value| match value.kind() {
            ValueKind::Map => Err(no_name("an object")),
            ValueKind::Seq | ValueKind::Iterable => Err(no_name("a list")),
            ValueKind::None => Ok(()),
            _ => escape_formatter(out, state, value),
        });
        self
    }

    /// Checks for unknown variables and filters, which would otherwise fail for every message.
    fn check(&self, source: &str) -> Result<(), String> {
        let template = self.environment.get_template(&self.key).map_err(|error| describe(&error, source))?;
        let known = |name: &String| {
            NAMES.contains(&name.as_str()) || self.environment.globals().any(|(global, _)| global == name)
        };
        let mut unknown: Vec<_> =
            template.undeclared_variables(false).into_iter().filter(|name| !known(name)).collect();
        unknown.sort();
        if let Some(name) = unknown.first() {
            return Err(format!("the template has no name {name:?}; there are {}", NAMES.join(", ")));
        }
        // Renders with every key missing, which this environment permits, to find unknown filters.
        let mut trial = environment();
        trial.set_undefined_behavior(UndefinedBehavior::Chainable);
        let nothing = context! { body => context! {}, headers => context! {}, query => context! {}, name => "" };
        match trial.render_named_str(&self.key, source, nothing) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnknownFilter
                        | ErrorKind::UnknownTest
                        | ErrorKind::UnknownFunction
                        | ErrorKind::TemplateNotFound
                ) =>
            {
                Err(describe(&error, source))
            }
            _ => Ok(()),
        }
    }

    /// Returns the path of the configuration key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Renders the template for a request.
    ///
    /// # Errors
    /// 422 with the template's key and the missing name.
    pub fn render(&self, request: &Value) -> Result<String, HttpError> {
        let mut output = BoundedOutput::new(MAX_OUTPUT);
        let rendered = self
            .environment
            .get_template(&self.key)
            .and_then(|template| template.render_captured_to(request.clone(), &mut output).map(drop));
        let wrong = |reason: &str| HttpError::unprocessable(format!("{}: {reason}", self.key));
        match rendered {
            Ok(()) => String::from_utf8(output.into_bytes()).map_err(|_| wrong("the template made no text")),
            Err(_) if output.is_full() => Err(wrong("the template makes more than 1 MiB of text")),
            Err(error) => {
                let source = self.environment.get_template(&self.key).map(|template| template.source().to_owned());
                Err(wrong(&describe(&error, &source.unwrap_or_default())))
            }
        }
    }
}

/// Returns true if a setting is a template and not plain text.
pub fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark))
}

/// Returns the variables for one request.
pub fn request(body: &serde_json::Value, headers: &HeaderMap, query: &[(String, String)], name: &str) -> Value {
    let query = Value::from_pairs(query.iter().rev().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
    let headers = Value::from_object(HeaderValues(headers.clone()));
    context! { body => Value::from(minijinja::value::Serde(body)), headers, query, name }
}

/// Returns `body` with a neighbour in place of each number that is not a whole number of 64 bits; `None` if there is no such
/// number. JSON's digits of such a number are rounded, so different numbers can become one. A template whose output depends
/// on the digits shows itself by a different output for the returned body; comparisons and rounding do not.
pub fn with_other_fractions(body: &serde_json::Value) -> Option<serde_json::Value> {
    let mut other = body.clone();
    nudge_fractions(&mut other).then_some(other)
}

/// Replaces the numbers; returns true if there was one.
fn nudge_fractions(value: &mut serde_json::Value) -> bool {
    match value {
        serde_json::Value::Number(number) => {
            let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return false };
            // Towards zero, since the neighbour must be finite.
            *value = serde_json::json!(if float > 0.0 { float.next_down() } else { float.next_up() });
            true
        }
        serde_json::Value::Array(items) => items.iter_mut().fold(false, |found, item| nudge_fractions(item) | found),
        serde_json::Value::Object(fields) => {
            fields.values_mut().fold(false, |found, field| nudge_fractions(field) | found)
        }
        _ => false,
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_debug(true);
    // JSON's null renders as nothing. As the word "none", it would become the id of every message without one.
    environment.set_formatter(
        |out, state, value| {
            if value.is_none() { Ok(()) } else { escape_formatter(out, state, value) }
        },
    );
    environment.add_filter("replace", replace);
    environment.add_filter("join", join);
    environment.add_filter("batch", batch);
    environment.add_filter("slice", slice);
    environment.add_filter("tojson", tojson);
    environment.add_filter("pprint", pprint);
    for name in NO_FILTERS {
        environment.remove_filter(name);
    }
    for name in NO_FUNCTIONS {
        environment.remove_global(name);
    }
    environment
}

/// Rejects templates that could produce an unlimited text from a small request, since anybody may write the request.
fn check_code(source: &str) -> Result<(), String> {
    for tag in jinja::tags(source) {
        let keeps = match tag.names().next().filter(|_| tag.is_statement) {
            Some("set") => !tag.code.contains('='),
            Some("filter") => true,
            _ => false,
        };
        let is_recursive = tag.is_statement && tag.names().any(|word| word == "recursive");
        if keeps || is_recursive {
            return Err(format!("the template has {:?}, which keeps text without a bound", tag.code.trim()));
        }
        if tag.multiplies_freely() {
            return Err(format!(
                "the template multiplies by what a request says (at {:?}); a number must be written out",
                tag.code.trim()
            ));
        }
    }
    Ok(())
}

fn no_name(kind: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("this is {kind}; a name is a string or a whole number"))
}

fn too_much() -> Error {
    Error::new(ErrorKind::InvalidOperation, "it would make more than 1 MiB of text")
}

/// Wraps minijinja's filter and limits its output to [`MAX_OUTPUT`].
fn replace(
    state: &mut State<'_, '_>,
    value: StringInput<'_>,
    from: StringInput<'_>,
    to: StringInput<'_>,
) -> Result<Value, Error> {
    let times = value.as_str().matches(from.as_str()).count();
    if times.saturating_mul(to.as_str().len()) > MAX_OUTPUT {
        return Err(too_much());
    }
    filters::replace(state, value, from, to)
}

/// Wraps minijinja's filter and limits the separators to [`MAX_OUTPUT`] bytes.
fn join(
    state: &mut State<'_, '_>,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    named: Kwargs,
) -> Result<Value, Error> {
    let between = match &joiner {
        Some(joiner) => joiner.as_str().len(),
        None => named.get::<Option<&str>>("d")?.map_or(0, str::len),
    };
    let items = value.try_iter().map_or(0, Iterator::count);
    if items.saturating_mul(between) > MAX_OUTPUT {
        return Err(too_much());
    }
    filters::join(state, value, joiner, attribute, named)
}

/// Wraps minijinja's filter and limits its count.
fn batch(state: &State<'_, '_>, value: Value, count: usize, filler: Option<Value>) -> Result<Value, Error> {
    check_count(count)?;
    filters::batch(state, value, count, filler)
}

/// Wraps minijinja's filter and limits its count.
fn slice(state: &State<'_, '_>, value: Value, count: usize, filler: Option<Value>) -> Result<Value, Error> {
    check_count(count)?;
    filters::slice(state, value, count, filler)
}

fn check_count(count: usize) -> Result<(), Error> {
    if count <= MAX_COUNT {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("the count may be at most {MAX_COUNT}")))
}

/// Wraps minijinja's filter and limits indented output to [`MAX_OUTPUT`].
fn tojson(value: &Value, indent: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => named.get("indent")?,
    };
    // minijinja reports an indentation that is neither a number nor a truth value.
    let spaces = match indent.clone() {
        Some(indent) => match bool::try_from(indent.clone()) {
            Ok(is_indented) => 2 * usize::from(is_indented),
            Err(_) => usize::try_from(indent).unwrap_or(0),
        },
        None => 0,
    };
    if spaces > 0 {
        check_indented(value, spaces)?;
    }
    filters::tojson(value, indent, named)
}

/// Wraps minijinja's filter and limits its output to [`MAX_OUTPUT`].
fn pprint(value: &Value) -> Result<String, Error> {
    check_indented(value, PPRINT_INDENT)?;
    Ok(filters::pprint(value))
}

/// Checks that a value with one element on each line, indented by `indent` spaces for each level, fits into [`MAX_OUTPUT`]. A small
/// value that is deeply nested becomes a very long text.
fn check_indented(value: &Value, indent: usize) -> Result<(), Error> {
    let Ok(compact) = serde_json::to_string(value) else { return Ok(()) };
    let (mut size, mut depth) = (compact.len(), 0_usize);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in compact.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' | b']' | b'}' | b',' if !is_text => {
                match byte {
                    b'[' | b'{' => depth += 1,
                    b']' | b'}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                size = size.saturating_add(depth.saturating_mul(indent));
            }
            _ => {}
        }
    }
    if size > MAX_OUTPUT { Err(too_much()) } else { Ok(()) }
}

/// Describes an error on one line, with the expression that caused it.
fn describe(error: &Error, source: &str) -> String {
    let mut message = match (error.kind(), error.detail()) {
        // The detail names the missing value: "`body.issue` is undefined".
        (ErrorKind::UndefinedError, Some(detail)) => detail.replace(" is undefined", " is missing"),
        (ErrorKind::UndefinedError, None) => "something is missing".to_owned(),
        (ErrorKind::OutOfFuel, _) => "the template takes too many steps".to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let blamed = error.range().and_then(|range| source.get(range)).map(str::trim).filter(|blamed| !blamed.is_empty());
    if let Some(blamed) = blamed.filter(|_| error.kind() != ErrorKind::UndefinedError) {
        message = format!("{message} (at {blamed:?})");
    }
    match error.line() {
        Some(line) if source.contains('\n') => format!("line {line} of the template: {message}"),
        _ => message,
    }
}

/// Returns true if the name of a header, in lower case, says that its value is a secret.
fn may_be_secret(name: &str) -> bool {
    name != IDEMPOTENCY_KEY && name.split(['-', '_']).any(|word| SECRET_WORDS.contains(&word))
}

/// The header values by name in lower case: `headers["x-github-event"]` or `headers.x_github_event`. Several values of one
/// name are joined by commas.
struct HeaderValues(HeaderMap);

impl HeaderValues {
    fn get(&self, name: &str) -> Option<Value> {
        if may_be_secret(name) {
            return None;
        }
        let values: Vec<_> =
            self.0.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        (!values.is_empty()).then(|| Value::from(values.join(", ")))
    }
}

impl fmt::Debug for HeaderValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Object for HeaderValues {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?.to_ascii_lowercase();
        self.get(&name).or_else(|| self.get(&name.replace('_', "-")))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|headers| {
            let shown = headers.0.keys().filter(|name| !may_be_secret(name.as_str()));
            Box::new(shown.map(|name| Value::from(name.as_str())))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const KEY: &str = "channels.webhook.ci.content";

    fn render(source: &str, body: &serde_json::Value) -> Result<String, String> {
        let headers = [
            ("X-GitHub-Event", "push"),
            ("Authorization", "Bearer hush"),
            ("X-Gitlab-Token", "hush"),
            ("X-Hub-Signature-256", "sha256=hush"),
            ("X-API-Key", "hush"),
            ("Idempotency-Key", "i1"),
            ("X-Author", "ann"),
            ("X-Two", "a"),
            ("X-Two", "b"),
        ];
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let query = [("q".to_owned(), "1".to_owned()), ("q".to_owned(), "2".to_owned())];
        let request = request(body, &map, &query, "ci");
        RequestTemplate::new(KEY, source)?.render(&request).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn a_request_becomes_text() {
        let body = json!({"n": 42, "f": 1.5, "t": true, "z": null, "s": "<b>&\"你", "list": [{"x": "a"}, {"x": "b"}]});
        let table = [
            ("plain", "plain"),
            ("{{ body.n }} {{ body.f }} {{ body.t }} [{{ body.z }}] {{ body.s }}", "42 1.5 True [] <b>&\"你"),
            ("{% for one in body.list %}{{ one.x }};{% endfor %}", "a;b;"),
            ("{{ body.list[1].x }}{{ body['n'] }}", "b42"),
            (
                r#"{{ headers["x-github-event"] }} {{ headers.x_github_event }} {{ headers["X-GitHub-Event"] }}"#,
                "push push push",
            ),
            ("{{ headers.x_two }} {{ headers.authorization is defined }}", "a, b False"),
            ("{{ headers['X-API-Key'] is defined }} {{ headers.x_gitlab_token is defined }}", "False False"),
            ("{{ headers | list | join(' ') }}", "x-github-event idempotency-key x-author x-two"),
            ("{{ query.q }} {{ name }}", "1 ci"),
            ("{{ body.list | tojson }}", r#"[{"x": "a"}, {"x": "b"}]"#),
            ("{{ [body.n] | tojson(indent=2) }}{{ [body.n] | tojson(1) }}", "[\n  42\n][\n 42\n]"),
            ("{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2, 3] | slice(2) | list }}", "[[1, 2], [3, 0]][[1, 2], [3]]"),
            ("{{ body.nope | default('none') }} {% if body.nope is defined %}x{% endif %}", "none "),
            ("{% set a = body.n + 1 %}{{ a }}", "43"),
            ("{{ body.n * 2 }}{{ body.s | replace('b', 'i') }}", "84<i>&\"你"),
            ("{{ ['a', 'b'] | join('-') }}{{ [1, 2] | join(d=';') }}", "a-b1;2"),
            ("{{ body.s | upper | length }}", "6"),
        ];
        for (source, expected) in table {
            assert_eq!(render(source, &body), Ok(expected.to_owned()), "{source}");
        }
    }

    #[test]
    fn a_missing_name_is_reported_with_its_template() {
        let long = "x".repeat(2_000);
        let deep = (0..100).fold(json!(vec![json!([]); 3_000]), |inner, _| json!([inner]));
        let huge = 1_000_000_000_000_u64;
        let body = json!({
            "issue": {"title": "x"}, "list": [], "n": 7, "long": long, "deep": deep, "huge": huge,
        });
        let table = [
            ("{{ body.issue.nope }}", "`body.issue.nope` is missing"),
            ("{{ body.issue.nope.deep }}", "`body.issue.nope` is missing"),
            ("a\nb {{ body.other }}", "line 2 of the template: `body.other` is missing"),
            ("{{ body.list[3] }}", "`body.list[3]` is missing"),
            ("{{ headers['x-none'] }}", "`headers['x-none']` is missing"),
            ("{{ query.page }}", "`query.page` is missing"),
            ("{% for x in body.nope %}{% endfor %}", "`body.nope` is missing"),
            ("{% if body.nope %}{% endif %}", "`body.nope` is missing"),
            ("{{ body.nope | upper }}", "`body.nope` is missing"),
            ("{{ 'a' ~ body.nope }}", "`body.nope` is missing"),
            ("{{ body.n / 0 }}", "invalid operation"),
            ("{{ body.n() }}", "invalid operation"),
            ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "too many steps"),
            ("{% for a in range(9999) %}{{ 'x' * 999 }}{% endfor %}", "more than 1 MiB"),
            ("{{ body.long | replace('x', body.long) }}", "more than 1 MiB"),
            ("{{ body.long | replace('', body.long) }}", "more than 1 MiB"),
            ("{{ body.long | list | join(body.long) }}", "more than 1 MiB"),
            ("{{ body.long | list | join(d=body.long) }}", "more than 1 MiB"),
            ("{{ [1] | batch(body.huge, 'x') | length }}", "the count may be at most 1000"),
            ("{{ [1] | slice(body.huge) | length }}", "the count may be at most 1000"),
            ("{{ body.issue | tojson(body.huge) | length }}", "more than 1 MiB"),
            ("{{ body.issue | tojson(indent=body.huge) | length }}", "more than 1 MiB"),
            ("{{ body.deep | tojson(indent=4) | length }}", "more than 1 MiB"),
            ("{{ body.deep | pprint | length }}", "more than 1 MiB"),
        ];
        for (source, words) in table {
            let error = render(source, &body).unwrap_err();
            assert!(error.starts_with(&format!("{KEY}: ")) && error.contains(words), "{source}: {error}");
        }
    }

    #[test]
    fn a_template_that_does_not_compile_is_a_configuration_error() {
        let table = [
            ("{{ body.x", "syntax error"),
            ("ok\n\n{% if %}", "line 3 of the template: syntax error"),
            ("{{ bdy.x }}", "no name \"bdy\"; there are body, headers, query, name"),
            ("{{ body.x | shout }}", "unknown filter"),
            ("{{ body.x is shouted }}", "unknown test"),
            ("{{ env('HOME') }}", "no name \"env\""),
            ("{{ debug() }}", "no name \"debug\""),
            ("{{ body.x | indent(body.n) }}", "unknown filter"),
            ("{% include 'other' %}", "unknown statement include"),
            ("{{ '#' * body.level }}", "at \"'' * body.level\""),
            ("{% set a %}x{% endset %}", "keeps text"),
            ("{% filter upper %}x{% endfilter %}", "keeps text"),
            ("{% for a in body recursive %}{{ loop(a) }}{% endfor %}", "keeps text"),
            ("{% set ns = namespace(a='') %}", "no name \"namespace\""),
        ];
        for (source, words) in table {
            let fault = RequestTemplate::new(KEY, source).err().unwrap_or_default();
            assert!(fault.contains(words) && !fault.contains('\n'), "{source}: {fault}");
        }
        assert!(RequestTemplate::new(KEY, &"x".repeat(MAX_SOURCE + 1)).is_err());
        assert!(RequestTemplate::new(KEY, "{{ body.x | default(name) }}{{ dict(a=1).a }}").is_ok());
    }

    proptest! {
        /// Any template with any request gives a text or an error.
        #[test]
        fn no_template_and_no_body_panics(source in "[{}%a-z .|()\\[\\]'\"0-9+~-]{0,40}", text in ".{0,20}", n in any::<i64>()) {
            let body = json!({"a": text, "b": [n, {"c": null}]});
            for source in [source.as_str(), "{{ body.a }}{{ body.b[1].c }}{{ body.b[0] + 1 }}", "{{ body.a * 3 }}{{ body.a[1:] }}"] {
                render(source, &body).ok();
            }
        }
    }
}
