//! `daoyou memory`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::access::answer_request;
use super::environment::CommandEnvironment;
use super::files::read_text;
use super::output::{CleanJson, print};
use super::{CommandExit, output, render};
use crate::cli::{MemoryCommand, MemoryFilterArgs, Output};
use crate::query::{MemoryChange, MemoryQuery, MemorySelection};
use crate::text::one_line;

const MEMORIES: render::TableColumns = &[
    ("ID", "id"),
    ("OWNER", "owner"),
    ("KIND", "kind"),
    ("NAME", "name"),
    ("TEXT", "text"),
    ("SINCE", "created_at"),
    ("USES", "uses"),
];
const ENTRIES: render::TableColumns =
    &[("OWNER", "owner"), ("KIND", "kind"), ("KNOWN", "known"), ("REPLACED", "replaced")];

/// The largest export, in bytes: the limit of the gateway.
pub const FILE_LIMIT: u64 = 64 * 1024 * 1024;

/// The length of an excerpt, in characters.
const EXCERPT: usize = 200;

/// Runs the command.
///
/// # Errors
/// The memory does not exist, or the change is invalid.
pub async fn run(command: &MemoryCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        MemoryCommand::Show { id: Some(id), output, .. } => {
            let memory = answer_request(MemoryQuery::Show(*id), environment).await?;
            print(&memory, *output, |out| print_memory(&memory, out))
        }
        MemoryCommand::Show { id: None, filter, limit, output } => {
            let list =
                answer_request(MemoryQuery::List { selection: selection(filter), limit: *limit }, environment).await?;
            print(&list, *output, |out| render::table(&list, MEMORIES, "nothing is remembered", out))
        }
        MemoryCommand::Search { query, filter, since, limit, output } => {
            let (text, since) = (query.clone(), since.clone());
            let search = MemoryQuery::Search { text, selection: selection(filter), since, limit: Some(*limit) };
            let hits = answer_request(search, environment).await?;
            print(&hits, *output, |out| print_hits(&hits, query, out))
        }
        MemoryCommand::Add { text, kind, key, owner, output } => {
            let fields = json!({ "text": text, "kind": kind, "key": key, "owner": owner });
            add(render::without_nulls(fields), *output, environment).await
        }
        MemoryCommand::Forget { ids, output } => {
            let forgotten = answer_request(MemoryChange::Forget(ids.clone()), environment).await?;
            print(&forgotten, *output, |out| print_forgotten(&forgotten, out))
        }
        MemoryCommand::Export { filter, json: _ } => {
            let lines = answer_request(MemoryQuery::Export(selection(filter)), environment).await?;
            print(&lines, Output { json: false }, |out| {
                render::items(&lines).iter().try_for_each(|line| writeln!(out, "{}", CleanJson(line)))
            })
        }
        MemoryCommand::Import { file, output } => import(file, *output, environment).await,
        MemoryCommand::Stats(output) => {
            let stats = answer_request(MemoryQuery::Stats, environment).await?;
            print(&stats, *output, |out| print_stats(&stats, out))
        }
    }
}

fn selection(filter: &MemoryFilterArgs) -> MemorySelection {
    MemorySelection { owner: filter.owner.clone(), kind: filter.kind.clone() }
}

async fn add(fields: Value, output: Output, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let added = answer_request(MemoryChange::Add(fields), environment).await?;
    // Standard output contains only the id.
    match (added["remembered"].as_str(), &added["replaced"]) {
        (Some("known"), _) => output::print_note("that is known already"),
        (Some("replaced"), old) => {
            let id = &added["id"];
            output::print_note(format_args!(
                "it takes the place of {old}, which stays as history: daoyou memory show {id}"
            ));
        }
        _ => {}
    }
    print(&added, output, |out| writeln!(out, "{}", render::text(&added["id"])))
}

async fn import(file: &Path, output: Output, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let text = read_text(file, FILE_LIMIT, "an export of memories")?;
    let imported = answer_request(MemoryChange::Import(text), environment).await?;
    print(&imported, output, |out| {
        writeln!(out, "{} imported, {} known already", imported["imported"], imported["known"])?;
        match imported["summaries"].as_u64().unwrap_or(0) {
            0 => Ok(()),
            count => writeln!(out, "{count} summaries left aside: they belong to conversations, not to a person"),
        }
    })
}

/// Prints a memory, one field per line, and the memories that it replaced.
fn print_memory(memory: &Value, mut out: impl Write) -> io::Result<()> {
    for (key, value) in memory.as_object().into_iter().flatten() {
        let is_empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if !is_empty && key != "before" {
            writeln!(out, "{key}: {}", render::text(value))?;
        }
    }
    for before in render::items(&memory["before"]) {
        let (text, since) = (render::text(&before["text"]), render::text(&before["created_at"]));
        writeln!(out, "before it: {} {text} (since {since})", before["id"])?;
    }
    Ok(())
}

/// Prints hits: similarity, time, place, and an excerpt around the query.
pub(super) fn print_hits(hits: &Value, query: &str, mut out: impl Write) -> io::Result<()> {
    let hits = render::items(hits);
    if hits.is_empty() {
        return writeln!(out, "nothing is found");
    }
    for hit in hits {
        let place = match (&hit["id"], &hit["session"]) {
            (Value::Null, session) => format!("{} #{}", render::text(session), hit["seq"]),
            (id, _) => format!("{} {id}", render::text(&hit["kind"])),
        };
        let similarity = hit["similarity"].as_f64().unwrap_or_default();
        let text = excerpt(&render::text(&hit["text"]), query);
        writeln!(out, "{similarity:.2}  {}  {place}\n      {text}", render::text(&hit["at"]))?;
    }
    Ok(())
}

/// Returns an excerpt of a text on one line, beginning shortly before the first word of the query.
fn excerpt(text: &str, query: &str) -> String {
    /// The number of characters before that word.
    const BEFORE: usize = 40;
    let line = one_line(&output::field(text));
    let chars: Vec<char> = line.chars().collect();
    if chars.len() <= EXCERPT {
        return line;
    }
    // Each character is folded to one character, so that positions in both texts are the same.
    let fold = |c: &char| c.to_lowercase().next().unwrap_or(*c);
    let folded: Vec<char> = chars.iter().map(fold).collect();
    let place = query.split_whitespace().find_map(|word| {
        let word: Vec<char> = word.chars().map(|c| fold(&c)).collect();
        folded.windows(word.len()).position(|window| window == word)
    });
    let from = place.unwrap_or(0).saturating_sub(BEFORE).min(chars.len() - EXCERPT);
    let shown: String = chars[from..from + EXCERPT].iter().collect();
    let (start, end) = (if from > 0 { "…" } else { "" }, if from + EXCERPT < chars.len() { "…" } else { "" });
    format!("{start}{shown}{end}")
}

fn print_forgotten(forgotten: &Value, mut out: impl Write) -> io::Result<()> {
    for entry in render::items(&forgotten["forgotten"]) {
        writeln!(out, "forgotten: {} {} {}", entry["id"], render::text(&entry["kind"]), render::text(&entry["text"]))?;
    }
    match forgotten["turns"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        1 => writeln!(out, "the words of the turn that it came from are gone from the log"),
        turns => writeln!(out, "the words of {turns} turns that they came from are gone from the log"),
    }
}

fn print_stats(stats: &Value, mut out: impl Write) -> io::Result<()> {
    render::table(&stats["entries"], ENTRIES, "nothing is remembered", &mut out)?;
    writeln!(out)?;
    for (key, value) in stats.as_object().into_iter().flatten().filter(|(key, _)| *key != "entries") {
        match value {
            Value::Object(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("{name} {}", render::text(value))).collect();
                writeln!(out, "{key}: {}", fields.join(", "))?;
            }
            Value::Null => {}
            value => writeln!(out, "{key}: {}", render::text(value))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_contains_the_query() {
        let long = format!("{} The Cat is grey {}", "word ".repeat(100), "end ".repeat(100));
        let shown = excerpt(&long, "nothing cat");
        assert!(shown.starts_with('…') && shown.ends_with('…') && shown.contains("Cat is grey"), "{shown}");
        assert_eq!(shown.chars().count(), EXCERPT + 2);
        assert_eq!(excerpt("two\nlines\u{1b}[2J", "x"), "two lines");
        assert!(excerpt(&"猫".repeat(500), "猫").ends_with('…'));
    }
}
