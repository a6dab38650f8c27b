//! Formats places in files as lines of a result, with the text of the line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lsp_types::{GotoDefinitionResponse, Location, Position, Url};
use serde_json::Value;

use super::positions::{PositionEncoding, PositionIndex};
use super::service::ProjectView;
use crate::guard::{JailError, quote_controls};
use crate::text::{one_line, truncate};

/// The maximum number of places of a result, and of characters of a line.
pub(super) const MAX_PLACES: usize = 200;
const LINE_CHARS: usize = 200;

/// A place in a file, as a server names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerLocation {
    pub url: Url,
    pub start: Position,
    /// The text that is shown instead of the line's text.
    pub label: Option<String>,
}

impl From<Location> for ServerLocation {
    fn from(location: Location) -> Self {
        Self { url: location.uri, start: location.range.start, label: None }
    }
}

/// Returns the places of an answer; `None` if the answer is invalid.
pub(super) fn places_of(answer: Value) -> Option<Vec<ServerLocation>> {
    let answer: Option<GotoDefinitionResponse> = serde_json::from_value(answer).ok()?;
    let places: Vec<ServerLocation> = match answer {
        None => Vec::new(),
        Some(GotoDefinitionResponse::Scalar(location)) => vec![location.into()],
        Some(GotoDefinitionResponse::Array(locations)) => locations.into_iter().map(Into::into).collect(),
        Some(GotoDefinitionResponse::Link(links)) => links
            .into_iter()
            .map(|link| ServerLocation { url: link.target_uri, start: link.target_selection_range.start, label: None })
            .collect(),
    };
    Some(places)
}

/// Formats places as `path:line:character: text`, sorted. Places outside the workspace have no text. Places in files that the
/// turn may not see are left out. Reads files.
pub(super) fn render_places(
    places: Vec<ServerLocation>,
    view: &ProjectView,
    encoding: PositionEncoding,
) -> Vec<String> {
    let mut by_file: BTreeMap<(PathBuf, &str), Vec<ServerLocation>> = BTreeMap::new();
    let mut lines = Vec::new();
    for place in places {
        let Ok(named) = place.url.to_file_path() else {
            lines.push(truncate(&quote_controls(place.url.as_str()), LINE_CHARS));
            continue;
        };
        let file = match view.resolve(&named) {
            Ok(real) => (real, ""),
            Err(JailError::Outside(_)) => (named, " (outside the workspace)"),
            Err(JailError::Missing(_)) => (named, " (not there)"),
            Err(_) => continue,
        };
        by_file.entry(file).or_default().push(place);
    }
    for ((path, why), mut places) in by_file {
        places.sort_by_key(|place| place.start);
        places.dedup_by(|one, other| (one.start, &one.label) == (other.start, &other.label));
        let room = (MAX_PLACES + 1).saturating_sub(lines.len());
        places.truncate(room);
        if room == 0 {
            break;
        }
        let shown = quote_controls(&view.relative(&path).unwrap_or(&path).display().to_string());
        if !why.is_empty() {
            let place = |place: ServerLocation| {
                let label = place.label.map(|label| format!(": {label}")).unwrap_or_default();
                format!("{shown}:{}{why}{label}", place.start.line.saturating_add(1))
            };
            lines.extend(places.into_iter().map(place));
            continue;
        }
        let text = view.text(&path).unwrap_or_default();
        let index = PositionIndex::new(&text, encoding);
        for place in places {
            let (line, character) = index.to_model(place.start);
            let text = place.label.or_else(|| index.line(place.start.line as usize).map(one_line)).unwrap_or_default();
            lines.push(format!("{shown}:{line}:{character}: {}", truncate(&text, LINE_CHARS)));
        }
    }
    lines.dedup();
    if lines.len() > MAX_PLACES {
        lines.truncate(MAX_PLACES);
        lines.push(format!("[the first {MAX_PLACES}; there are more]"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::guard::Jail;

    #[test]
    fn places_are_shown_as_the_turn_may_see_them() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap().join("ws");
        for (path, text) in
            [("a.py", "x = 1\n道 = \"😀\"; y\n"), ("mail/b.py", "secret"), ("memory/c.py", "secret"), ("d.bin", "a\0b")]
        {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), text).unwrap();
        }
        std::fs::write(temp.path().join("out.py"), "secret").unwrap();
        for (link, target) in [("to_mail", "mail"), ("to_memory", "memory"), ("to_a.py", "a.py")] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        let jail = Arc::new(Jail::open(&root, true, Vec::new(), 1_000).unwrap().with_closed(&["memory"]));
        let view = ProjectView { jail, hidden: [root.join("mail")].into() };
        let place = |path: &str, line: u32, character: u32| {
            let range =
                json!({"start": {"line": line, "character": character}, "end": {"line": line, "character": character}});
            json!({"uri": Url::from_file_path(root.join(path)).unwrap(), "range": range})
        };
        let answer = json!([
            place("a.py", 1, 9),
            place("a.py", 0, 0),
            place("a.py", 0, 0),
            place("mail/b.py", 0, 0),
            place("memory/c.py", 0, 0),
            place("../out.py", 6, 0),
            place("d.bin", 0, 1),
            place("gone.py", 8, 0),
            place("to_mail/b.py", 0, 0),
            place("to_memory/c.py", 0, 0),
            place("to_a.py", 0, 0),
            json!({"uri": format!("file://{}/mail%2F..%2Fmail/b.py", root.display()), "range": place("a.py", 0, 0)["range"]}),
        ]);
        let places = places_of(answer).unwrap();
        let lines = render_places(places, &view, PositionEncoding::Utf16);
        let outside = format!("{}:7 (outside the workspace)", root.parent().unwrap().join("out.py").display());
        assert_eq!(
            lines,
            [&outside, "a.py:1:1: x = 1", "a.py:2:9: 道 = \"😀\"; y", "d.bin:1:1: ", "gone.py:9 (not there)"]
        );
        let many: Vec<_> = (0..500).map(|line| place("a.py", line, 0)).collect();
        let lines = render_places(places_of(json!(many)).unwrap(), &view, PositionEncoding::Utf16);
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (MAX_PLACES + 1, "[the first 200; there are more]"));
        for (answer, expected) in [
            (json!(null), Some(0)),
            (json!([]), Some(0)),
            (place("a.py", 0, 0), Some(1)),
            (json!("x"), None),
            (json!([{"uri": "%"}]), None),
        ] {
            assert_eq!(places_of(answer.clone()).map(|places| places.len()), expected, "{answer}");
        }
    }
}
