//! The diagnostics of a file: how they are obtained from the server, and how they are formatted.

use std::time::Duration;

use lsp_types::{Diagnostic, DiagnosticSeverity, NumberOrString};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client_state::{MAX_DIAGNOSTICS, PublishedDiagnostics};
use super::positions::{PositionEncoding, PositionIndex};
use super::service::OpenTarget;
use crate::text::{one_line, plural, truncate};
use crate::tools::ServerError;

/// The maximum number of diagnostics of a result, and of characters of a message.
const MAX_LINES: usize = 200;
const MESSAGE_CHARS: usize = 500;
/// The maximum number of attempts of a request that the server drops.
const TRIES: usize = 3;
/// How long a server must be quiet after a publication for its diagnostics to count as complete.
const QUIET: Duration = Duration::from_millis(700);
/// How long to wait for new diagnostics of an unchanged file. If none come, the earlier ones are still right.
const RENEWED: Duration = Duration::from_secs(3);

/// The diagnostics of a file.
pub(super) struct FoundDiagnostics {
    pub all: Vec<Diagnostic>,
    /// True if the server was still working.
    pub is_partial: bool,
}

/// Returns the diagnostics of the current content of a file.
///
/// # Errors
/// The server fails, or sends no diagnostics in time.
pub(super) async fn diagnostics_of(target: &OpenTarget) -> Result<FoundDiagnostics, ServerError> {
    if !target.server().can("diagnosticProvider") {
        return await_published(target).await;
    }
    let mut all = pull(target).await?;
    // The server runs a compiler, whose findings are published separately.
    let is_partial = target.server().kind.reports_status && !settle(target).await;
    if let Some(published) = target.server().connection.state.published(&target.document.path) {
        all.extend(published.diagnostics);
    }
    Ok(FoundDiagnostics { all, is_partial })
}

async fn pull(target: &OpenTarget) -> Result<Vec<Diagnostic>, ServerError> {
    let params = json!({"textDocument": {"uri": target.document.url}});
    let mut tried = 1;
    let mut answer = loop {
        match target.ask("textDocument/diagnostic", params.clone()).await {
            Err(error) if error.is_temporary && tried < TRIES && target.server().connection.ended().is_none() => {
                tried += 1;
            }
            answer => break answer?,
        }
    };
    let Value::Array(items) = answer["items"].take() else { return Err(target.invalid("diagnostics")) };
    Ok(items.into_iter().take(MAX_DIAGNOSTICS).filter_map(|item| serde_json::from_value(item).ok()).collect())
}

async fn await_published(target: &OpenTarget) -> Result<FoundDiagnostics, ServerError> {
    let (server, document) = (target.server(), &target.document);
    let state = &server.connection.state;
    let is_current = |published: &PublishedDiagnostics| match published.version {
        Some(version) => version >= document.version,
        None => published.serial > document.serial || !document.is_changed,
    };
    let has_older = state.published(&document.path).is_some() && !document.is_new_text;
    let until = if has_older { target.deadline.min(Instant::now() + RENEWED) } else { target.deadline };
    let is_there = || state.published(&document.path).is_some_and(|published| is_current(&published));
    server.wait_until(until, &target.cancel, is_there).await;
    if target.cancel.is_cancelled() {
        return Err(ServerError::lasting("Cancelled"));
    }
    let is_settled = !document.is_new_text && !document.is_changed || settle(target).await;
    if let Some(error) = server.connection.ended() {
        return Err(error);
    }
    let published = state.published(&document.path).filter(|published| is_current(published) || has_older);
    let Some(published) = published else {
        let name = &server.connection.name;
        return Err(ServerError::for_now(format!("{name} sent no diagnostics of {} in time", target.shown())));
    };
    Ok(FoundDiagnostics { all: published.diagnostics, is_partial: !is_settled })
}

/// Waits until the server is quiet. Returns false if it still works at the deadline.
async fn settle(target: &OpenTarget) -> bool {
    let (server, path) = (target.server(), &target.document.path);
    let state = &server.connection.state;
    while Instant::now() < target.deadline {
        let serial = state.published(path).map(|published| published.serial);
        let quiet = target.deadline.min(Instant::now() + QUIET);
        let has_more = || state.is_working() || state.published(path).map(|published| published.serial) != serial;
        if !server.wait_until(quiet, &target.cancel, has_more).await {
            return true;
        }
        server.wait_until(target.deadline, &target.cancel, || !state.is_working()).await;
        if target.cancel.is_cancelled() {
            return false;
        }
    }
    false
}

/// Formats diagnostics as `path:line:character severity [code] message`, sorted, and counts them.
pub(super) fn render_diagnostics(
    found: Vec<Diagnostic>,
    shown: &str,
    text: &str,
    encoding: PositionEncoding,
) -> Vec<String> {
    let index = PositionIndex::new(text, encoding);
    let mut rows: Vec<_> = found
        .into_iter()
        .map(|one| {
            // A diagnostic without a severity counts as an error.
            let severity = SEVERITIES.iter().position(|(known, _)| one.severity == Some(*known)).unwrap_or(0);
            let label = label_of(&one).map(|label| format!(" [{label}]")).unwrap_or_default();
            let message = truncate(&one_line(&one.message), MESSAGE_CHARS);
            (index.to_model(one.range.start), severity, format!("{label} {message}"))
        })
        .collect();
    rows.sort();
    rows.dedup();
    let count = |at: usize| rows.iter().filter(|(_, severity, _)| *severity == at).count();
    let counts: Vec<_> = SEVERITIES
        .iter()
        .enumerate()
        .filter(|(at, _)| count(*at) > 0)
        .map(|(at, (_, name))| plural(count(at), name))
        .collect();
    let total = rows.len();
    let mut lines: Vec<_> = rows
        .into_iter()
        .take(MAX_LINES)
        .map(|((line, character), severity, rest)| {
            format!("{shown}:{line}:{character} {}{rest}", SEVERITIES[severity].1)
        })
        .collect();
    lines.push(match total {
        0 => format!("{shown}: no diagnostics"),
        _ if total > MAX_LINES => format!("[the first {MAX_LINES} of {}]", counts.join(", ")),
        _ => format!("[{}]", counts.join(", ")),
    });
    lines
}

/// The severities with their names, the worst first.
const SEVERITIES: [(DiagnosticSeverity, &str); 4] = [
    (DiagnosticSeverity::ERROR, "error"),
    (DiagnosticSeverity::WARNING, "warning"),
    (DiagnosticSeverity::INFORMATION, "information"),
    (DiagnosticSeverity::HINT, "hint"),
];

fn label_of(diagnostic: &Diagnostic) -> Option<String> {
    let code = match &diagnostic.code {
        Some(NumberOrString::Number(number)) => Some(number.to_string()),
        Some(NumberOrString::String(code)) => Some(code.clone()),
        None => diagnostic.source.clone(),
    };
    code.map(|code| truncate(&one_line(&code), MESSAGE_CHARS)).filter(|code| !code.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_are_sorted_lines() {
        let one = |line: u32, character: u32, rest: Value| {
            let place = json!({"line": line, "character": character});
            let mut all = json!({"range": {"start": place, "end": place}, "message": "m"});
            all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            serde_json::from_value::<Diagnostic>(all).unwrap()
        };
        let text = "a\n😀b\n";
        let found = vec![
            one(1, 2, json!({"severity": 2, "code": "W1", "message": "two\nlines"})),
            one(0, 0, json!({"code": 7, "source": "x"})),
            one(0, 0, json!({"code": 7, "source": "x"})),
            one(0, 0, json!({"severity": 4, "source": "src"})),
            one(9, 9, json!({"severity": 1})),
        ];
        let lines = render_diagnostics(found, "f.py", text, PositionEncoding::Utf16);
        let expected = [
            "f.py:1:1 error [7] m",
            "f.py:1:1 hint [src] m",
            "f.py:2:2 warning [W1] two lines",
            "f.py:10:1 error m",
            "[2 errors, 1 warning, 1 hint]",
        ];
        assert_eq!(lines, expected);
        assert_eq!(render_diagnostics(Vec::new(), "f", "", PositionEncoding::Utf8), ["f: no diagnostics"]);
        let many = (0..300).map(|line| one(line, 0, json!({}))).collect();
        let lines = render_diagnostics(many, "f", "", PositionEncoding::Utf8);
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (MAX_LINES + 1, "[the first 200 of 300 errors]"));
    }
}
