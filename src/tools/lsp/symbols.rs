//! Formats the symbols of a file or project as lines.

use lsp_types::{DocumentSymbol, DocumentSymbolResponse, Location, Position, SymbolKind, Url};
use serde::Deserialize;
use serde_json::Value;

use super::locations::ServerLocation;
use crate::text::{one_line, truncate};

/// The maximum number of symbols of a file that are shown, and of characters of a name.
const MAX_SYMBOLS: usize = 300;
const NAME_CHARS: usize = 160;
/// The symbol kinds, in the order of their numbers in the protocol, which start at 1.
const KINDS: [&str; 26] = [
    "file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum",
    "interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key", "null",
    "enum member", "struct", "event", "operator", "type parameter",
];

/// A symbol of a file.
struct FileSymbol {
    depth: usize,
    line: u32,
    name: String,
    kind: &'static str,
}

/// Formats the symbols of a file as indented lines `line: kind name`. With a query, includes only those whose names contain it,
/// ignoring case. Returns `None` if the answer is invalid.
pub(super) fn render_file_symbols(answer: Value, query: &str) -> Option<Vec<String>> {
    let answer: Option<DocumentSymbolResponse> = serde_json::from_value(answer).ok()?;
    let mut found = Vec::new();
    match answer {
        None => {}
        Some(DocumentSymbolResponse::Nested(symbols)) => collect(symbols, 0, &mut found),
        Some(DocumentSymbolResponse::Flat(symbols)) => {
            found.extend(symbols.into_iter().map(|symbol| FileSymbol {
                depth: usize::from(symbol.container_name.is_some_and(|name| !name.is_empty())),
                line: symbol.location.range.start.line,
                name: symbol.name,
                kind: kind_name(symbol.kind),
            }));
            found.sort_by_key(|symbol| symbol.line);
        }
    }
    let query = query.to_lowercase();
    let is_wanted = |symbol: &FileSymbol| symbol.name.to_lowercase().contains(&query);
    let wanted: Vec<_> = found.into_iter().filter(is_wanted).collect();
    let total = wanted.len();
    let mut lines: Vec<_> = wanted
        .into_iter()
        .take(MAX_SYMBOLS)
        .map(|FileSymbol { depth, line, name, kind }| {
            let indent = "  ".repeat(depth.min(8));
            format!("{indent}{}: {kind} {}", line.saturating_add(1), truncate(&one_line(&name), NAME_CHARS))
        })
        .collect();
    if total > MAX_SYMBOLS {
        lines.push(format!("[the first {MAX_SYMBOLS} of {total} symbols; name a query]"));
    }
    Some(lines)
}

fn collect(symbols: Vec<DocumentSymbol>, depth: usize, found: &mut Vec<FileSymbol>) {
    for symbol in symbols {
        let line = symbol.selection_range.start.line;
        found.push(FileSymbol { depth, line, name: symbol.name, kind: kind_name(symbol.kind) });
        // The JSON parser limits the depth.
        collect(symbol.children.unwrap_or_default(), depth + 1, found);
    }
}

fn kind_name(kind: SymbolKind) -> &'static str {
    let number = serde_json::to_value(kind).ok().and_then(|number| number.as_u64()).unwrap_or(0);
    kind_of(number)
}

fn kind_of(number: u64) -> &'static str {
    let at = usize::try_from(number).unwrap_or(0).wrapping_sub(1);
    KINDS.get(at).unwrap_or(&"symbol")
}

/// A symbol of a project; its place may lack a range.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProjectSymbol {
    name: String,
    #[serde(default)]
    kind: u64,
    container_name: Option<String>,
    location: Value,
}

/// Returns the symbols of a project as places; `None` if the answer is invalid.
pub(super) fn project_symbols(answer: Value) -> Option<Vec<ServerLocation>> {
    let symbols: Option<Vec<ProjectSymbol>> = serde_json::from_value(answer).ok()?;
    let place = |symbol: ProjectSymbol| {
        let whole =
            serde_json::from_value::<Location>(symbol.location.clone()).map(|whole| (whole.uri, whole.range.start));
        let url = || Some((Url::parse(symbol.location["uri"].as_str()?).ok()?, Position::new(0, 0)));
        let (url, start) = whole.ok().or_else(url)?;
        let container = symbol.container_name.filter(|name| !name.is_empty());
        let container = container.map(|name| format!(" (in {})", one_line(&name))).unwrap_or_default();
        let label = format!("{} {}{container}", kind_of(symbol.kind), one_line(&symbol.name));
        Some(ServerLocation { url, start, label: Some(truncate(&label, NAME_CHARS)) })
    };
    Some(symbols.unwrap_or_default().into_iter().filter_map(place).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn symbols_of_a_file_are_indented_lines() {
        let range = |line: u32| json!({"start": {"line": line, "character": 0}, "end": {"line": line, "character": 1}});
        let symbol = |name: &str, kind: u32, line: u32, children: Value| json!({"name": name, "kind": kind, "range": range(line), "selectionRange": range(line), "children": children});
        let nested =
            json!([symbol("A\nB", 5, 1, json!([symbol("run", 6, 2, json!([])), symbol("x", 99, 3, json!(null))]))]);
        let flat = json!([
            {"name": "late", "kind": 12, "location": {"uri": "file:///a", "range": range(7)}},
            {"name": "m", "kind": 6, "containerName": "C", "location": {"uri": "file:///a", "range": range(3)}},
        ]);
        for (answer, query, expected) in [
            (nested.clone(), "", Some(&["2: class A B", "  3: method run", "  4: symbol x"][..])),
            (nested, "RU", Some(&["  3: method run"])),
            (flat, "", Some(&["  4: method m", "8: function late"])),
            (json!(null), "", Some(&[])),
            (json!([]), "", Some(&[])),
            (json!({"a": 1}), "", None),
            (json!([{"name": 1}]), "", None),
        ] {
            let lines = render_file_symbols(answer, query);
            assert_eq!(
                lines.as_deref(),
                expected.map(|lines| lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>()).as_deref()
            );
        }
        let many: Vec<_> = (0..400).map(|line| symbol("s", 12, line, json!([]))).collect();
        let lines = render_file_symbols(json!(many), "").unwrap();
        assert_eq!(lines.last().unwrap(), "[the first 300 of 400 symbols; name a query]");
    }

    #[test]
    fn symbols_of_a_project_are_places() {
        let range = json!({"start": {"line": 4, "character": 2}, "end": {"line": 4, "character": 3}});
        let answer = json!([
            {"name": "f", "kind": 12, "location": {"uri": "file:///a.py", "range": range}, "containerName": "m"},
            {"name": "g", "kind": 12, "location": {"uri": "file:///b.py"}},
            {"name": "h", "location": {}},
        ]);
        let places = project_symbols(answer).unwrap();
        let found: Vec<_> =
            places.iter().map(|one| (one.url.as_str(), one.start.line, one.label.as_deref().unwrap())).collect();
        assert_eq!(found, [("file:///a.py", 4, "function f (in m)"), ("file:///b.py", 0, "function g")]);
        assert!(project_symbols(json!("x")).is_none() && project_symbols(json!(null)).unwrap().is_empty());
    }
}
