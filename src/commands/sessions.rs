//! `daoyou sessions`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use super::data::{change, look};
use super::dispatch::print;
use super::files::read_text;
use super::memory::{self, FILE_LIMIT};
use super::output::Json;
use super::prepared::Prepared;
use super::{Exit, output, show};
use crate::cli::{ExportFormat, Output, SessionsCommand};
use crate::query::{self, MemoryChange, MemoryQuery, StoreChange, StoreQuery};

/// Carries it out, through the gateway that runs or in the store itself.
///
/// # Errors
/// What is wrong and what would be right.
pub async fn run(command: &SessionsCommand, prepared: &Prepared) -> anyhow::Result<Exit> {
    let home = &prepared.home;
    match command {
        SessionsCommand::List(output) => {
            let list = look(StoreQuery::Sessions, home).await?;
            print(&list, *output, |out| show::table(&list, show::SESSIONS, "no sessions yet", out))
        }
        SessionsCommand::Show { key, output } => {
            let asked =
                if output.json { StoreQuery::Session(key.clone()) } else { StoreQuery::Transcript(key.clone()) };
            let session = look(asked, home).await?;
            print(&session, *output, |out| show::session(&session, out))
        }
        SessionsCommand::Search { query, session, since, limit, output } => {
            let (text, session, since) = (query.clone(), session.clone(), since.clone());
            let hits =
                memory::look(MemoryQuery::SearchMessages { text, session, since, limit: Some(*limit) }, prepared)
                    .await?;
            print(&hits, *output, |out| memory::found(&hits, query, out))
        }
        SessionsCommand::Export { key, format: ExportFormat::Jsonl } => {
            let session = look(StoreQuery::Session(key.clone()), home).await?;
            print(&session, Output { json: false }, |out| {
                query::sessions::export_lines(&session).iter().try_for_each(|line| writeln!(out, "{}", Json(line)))
            })
        }
        SessionsCommand::Export { key, format: ExportFormat::Md } => {
            let session = look(StoreQuery::Transcript(key.clone()), home).await?;
            print(&session, Output { json: false }, |out| markdown(&session, out))
        }
        SessionsCommand::Import { file, session, owner, output } => {
            import(file, session.as_ref(), owner.as_ref(), *output, prepared).await
        }
        SessionsCommand::Clear { key, output } => {
            let cleared = change(StoreChange::ClearSession(key.clone()), home).await?;
            print(&cleared, *output, |out| match cleared["cleared"] == true {
                true => writeln!(out, "{key} begins anew; what was said stays searchable"),
                false => writeln!(out, "there is no session {key}: nothing to clear"),
            })
        }
    }
}

async fn import(
    file: &Path,
    session: Option<&String>,
    owner: Option<&String>,
    output: Output,
    prepared: &Prepared,
) -> anyhow::Result<Exit> {
    let text = read_text(file, FILE_LIMIT, "conversation")?;
    let asked = MemoryChange::ImportSession { text, session: session.cloned(), owner: owner.cloned() };
    let taken = memory::change(asked, prepared).await?;
    print(&taken, output, |out| {
        writeln!(
            out,
            "{}: {} messages, of {}",
            show::text(&taken["session"]),
            taken["messages"],
            show::text(&taken["owner"])
        )
    })
}

/// A conversation to read: who said what when, and below it, folded, what tools were asked and answered.
fn markdown(session: &Value, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "# {}", show::text(&session["session"]))?;
    for message in session["messages"].as_array().into_iter().flatten() {
        let text = show::text(&message["text"]);
        let calls = message["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        if text.trim().is_empty() && calls.is_empty() {
            continue;
        }
        // As it is, since it is read in again.
        let at = message["at"].as_str().map(output::field).unwrap_or_default();
        writeln!(out, "\n## {}, {at}\n", show::text(&message["role"]))?;
        if !text.trim().is_empty() {
            writeln!(out, "{}", text.trim_end())?;
        }
        for image in message["images"].as_array().into_iter().flatten() {
            writeln!(out, "\n(picture: {})", show::text(&image["path"]))?;
        }
        for call in calls {
            folded(call, &mut out)?;
        }
    }
    match session["import"].as_str() {
        Some(import) => writeln!(out, "\n{import}"),
        None => Ok(()),
    }
}

fn folded(call: &Value, mut out: impl Write) -> io::Result<()> {
    let name = show::text(&call["name"]);
    writeln!(out, "\n<details><summary>{name}</summary>\n")?;
    fenced(&show::text(&call["arguments"]), &mut out)?;
    match call["result"].as_str() {
        Some(result) => {
            writeln!(out)?;
            fenced(result, &mut out)?;
        }
        None => writeln!(out, "\n(no result)")?,
    }
    writeln!(out, "\n</details>")
}

/// A text as it is, within a fence that is longer than any in it.
fn fenced(text: &str, mut out: impl Write) -> io::Result<()> {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    writeln!(out, "{fence}\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_is_written_to_be_read() {
        let session = json!({ "session": "cli:direct", "messages": [
            { "at": "2026-01-01T10:00:00Z", "role": "user", "text": "What is there?", "images": [] },
            { "at": "2026-01-01T10:00:01Z", "role": "assistant", "text": "",
              "calls": [{ "name": "exec", "arguments": "{\"command\":\"ls\"}", "result": "a ``` b\n" }] },
            { "at": "2026-01-01T10:00:02Z", "role": "assistant", "text": "A file.\n", "calls": [] },
            { "at": "2026-01-01T10:00:02Z", "role": "assistant", "text": " ", "calls": [] },
        ]});
        let mut out = Vec::new();
        markdown(&session, &mut out).unwrap();
        let expected = "# cli:direct\n\n## user, 2026-01-01T10:00:00Z\n\nWhat is there?\n\n\
            ## assistant, 2026-01-01T10:00:01Z\n\n\n<details><summary>exec</summary>\n\n```\n{\"command\":\"ls\"}\n```\n\n\
            ````\na ``` b\n````\n\n</details>\n\n## assistant, 2026-01-01T10:00:02Z\n\nA file.\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
