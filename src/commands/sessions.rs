//! `daoyou sessions`.

use std::io::{self, Write};
use std::path::Path;

use anyhow::bail;
use serde_json::Value;

use super::access::answer_request;
use super::environment::CommandEnvironment;
use super::files::read_text;
use super::memory::{FILE_LIMIT, print_hits};
use super::output::{CleanJson, print};
use super::{CommandExit, output, render};
use crate::cli::{ExportFormat, Output, SessionsCommand};
use crate::query::{self, MemoryChange, MemoryQuery, StoreChange, StoreQuery};

/// Runs the command.
///
/// # Errors
/// The session does not exist, or the change is invalid.
pub async fn run(command: &SessionsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        SessionsCommand::List(output) => {
            let list = answer_request(StoreQuery::Sessions, environment).await?;
            print(&list, *output, |out| render::table(&list, render::SESSIONS, "no sessions yet", out))
        }
        SessionsCommand::Show { key, output } => {
            let query =
                if output.json { StoreQuery::Session(key.clone()) } else { StoreQuery::Transcript(key.clone()) };
            let session = answer_request(query, environment).await?;
            print(&session, *output, |out| render::session(&session, out))
        }
        SessionsCommand::Search { query, session, since, limit, output } => {
            let (text, session, since) = (query.clone(), session.clone(), since.clone());
            let hits =
                answer_request(MemoryQuery::SearchMessages { text, session, since, limit: Some(*limit) }, environment)
                    .await?;
            print(&hits, *output, |out| print_hits(&hits, query, out))
        }
        SessionsCommand::Export { key, format, output } if output.json || *format == ExportFormat::Jsonl => {
            let session = answer_request(StoreQuery::Session(key.clone()), environment).await?;
            check_not_empty(&session)?;
            print(&session, Output { json: false }, |out| {
                query::sessions::export_lines(&session).iter().try_for_each(|line| writeln!(out, "{}", CleanJson(line)))
            })
        }
        SessionsCommand::Export { key, .. } => {
            let session = answer_request(StoreQuery::Transcript(key.clone()), environment).await?;
            check_not_empty(&session)?;
            print(&session, Output { json: false }, |out| write_markdown(&session, out))
        }
        SessionsCommand::Import { file, session, owner, output } => {
            import(file, session.as_ref(), owner.as_ref(), *output, environment).await
        }
        SessionsCommand::Clear { key, output } => {
            let cleared = answer_request(StoreChange::ClearSession(key.clone()), environment).await?;
            print(&cleared, *output, |out| writeln!(out, "{key} begins anew; what was said stays searchable"))
        }
    }
}

/// Refuses the export of a conversation without messages, which no import would read.
fn check_not_empty(session: &Value) -> anyhow::Result<()> {
    if !render::items(&session["messages"]).is_empty() {
        return Ok(());
    }
    let key = render::text(&session["session"]);
    match session["epoch"].as_i64() {
        Some(1..) => {
            bail!("session {key} has no messages since it began anew; `daoyou sessions search` finds the earlier ones")
        }
        _ => bail!("session {key} has no messages yet"),
    }
}

async fn import(
    file: &Path,
    session: Option<&String>,
    owner: Option<&String>,
    output: Output,
    environment: &CommandEnvironment,
) -> anyhow::Result<CommandExit> {
    let text = read_text(file, FILE_LIMIT, "conversation")?;
    let change = MemoryChange::ImportSession { text, session: session.cloned(), owner: owner.cloned() };
    let imported = answer_request(change, environment).await?;
    print(&imported, output, |out| {
        let (session, owner) = (render::text(&imported["session"]), render::text(&imported["owner"]));
        writeln!(out, "{session}: {} messages, of {owner}", imported["messages"])
    })
}

/// Writes a conversation as Markdown, with the tool calls of each message in folded sections below the message.
fn write_markdown(session: &Value, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "# {}", render::text(&session["session"]))?;
    for message in render::items(&session["messages"]) {
        let text = render::text(&message["text"]);
        let calls = render::items(&message["calls"]);
        if text.trim().is_empty() && calls.is_empty() {
            continue;
        }
        // Not in local time, because an import reads it.
        let at = message["at"].as_str().map(output::field).unwrap_or_default();
        writeln!(out, "\n## {}, {at}\n", render::text(&message["role"]))?;
        if !text.trim().is_empty() {
            writeln!(out, "{}", text.trim_end())?;
        }
        for image in render::items(&message["images"]) {
            writeln!(out, "\n(picture: {})", render::text(&image["path"]))?;
        }
        for call in calls {
            write_call(call, &mut out)?;
        }
    }
    match session["import"].as_str() {
        Some(import) => writeln!(out, "\n{import}"),
        None => Ok(()),
    }
}

fn write_call(call: &Value, mut out: impl Write) -> io::Result<()> {
    let name = render::text(&call["name"]);
    writeln!(out, "\n<details><summary>{name}</summary>\n")?;
    write_code_block(&render::text(&call["arguments"]), &mut out)?;
    match call["result"].as_str() {
        Some(result) => {
            writeln!(out)?;
            write_code_block(result, &mut out)?;
        }
        None => writeln!(out, "\n(no result)")?,
    }
    writeln!(out, "\n</details>")
}

/// Writes a text in a code block, with a fence that is longer than any fence in the text.
fn write_code_block(text: &str, mut out: impl Write) -> io::Result<()> {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    writeln!(out, "{fence}\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_is_exported_as_markdown() {
        let session = json!({ "session": "cli:direct", "messages": [
            { "at": "2026-01-01T10:00:00Z", "role": "user", "text": "What is there?", "images": [] },
            { "at": "2026-01-01T10:00:01Z", "role": "assistant", "text": "",
              "calls": [{ "name": "exec", "arguments": "{\"command\":\"ls\"}", "result": "a ``` b\n" }] },
            { "at": "2026-01-01T10:00:02Z", "role": "assistant", "text": "A file.\n", "calls": [] },
            { "at": "2026-01-01T10:00:02Z", "role": "assistant", "text": " ", "calls": [] },
        ]});
        let mut out = Vec::new();
        write_markdown(&session, &mut out).unwrap();
        let expected = "# cli:direct\n\n## user, 2026-01-01T10:00:00Z\n\nWhat is there?\n\n\
            ## assistant, 2026-01-01T10:00:01Z\n\n\n<details><summary>exec</summary>\n\n```\n{\"command\":\"ls\"}\n```\n\n\
            ````\na ``` b\n````\n\n</details>\n\n## assistant, 2026-01-01T10:00:02Z\n\nA file.\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
