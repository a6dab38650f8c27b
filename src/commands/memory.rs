//! `daoyou memory`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::dispatch::print;
use super::files::read_text;
use super::output::Json;
use super::prepared::Prepared;
use super::reach::Reach;
use super::{Exit, output, show};
use crate::cli::{MemoryCommand, MemoryOwner, Output};
use crate::gateway;
use crate::query::{MemoryChange, MemoryQuery, MemorySelection};
use crate::text::one_line;

const MEMORIES: show::Columns = &[
    ("ID", "id"),
    ("OWNER", "owner"),
    ("KIND", "kind"),
    ("NAME", "name"),
    ("TEXT", "text"),
    ("SINCE", "created_at"),
    ("USES", "uses"),
];
const ENTRIES: show::Columns = &[("OWNER", "owner"), ("KIND", "kind"), ("KNOWN", "known"), ("REPLACED", "replaced")];

/// The largest export that is read, in bytes: what the gateway takes.
pub const FILE_LIMIT: u64 = 64 * 1024 * 1024;

/// How much of what is found is shown, in characters.
const EXCERPT: usize = 200;

/// Carries it out, through the gateway that runs or in the store itself.
///
/// # Errors
/// What is wrong and what would be right.
pub async fn run(command: &MemoryCommand, prepared: &Prepared) -> anyhow::Result<Exit> {
    match command {
        MemoryCommand::Show { id: Some(id), output, .. } => {
            let memory = look(MemoryQuery::Show(*id), prepared).await?;
            print(&memory, *output, |out| one(&memory, out))
        }
        MemoryCommand::Show { id: None, whose, limit, output } => {
            let list = look(MemoryQuery::List { selection: selection(whose), limit: *limit }, prepared).await?;
            print(&list, *output, |out| show::table(&list, MEMORIES, "nothing is remembered", out))
        }
        MemoryCommand::Search { query, whose, since, limit, output } => {
            let (text, since) = (query.clone(), since.clone());
            let asked = MemoryQuery::Search { text, selection: selection(whose), since, limit: Some(*limit) };
            let hits = look(asked, prepared).await?;
            print(&hits, *output, |out| found(&hits, query, out))
        }
        MemoryCommand::Add { text, kind, key, owner, output } => {
            let mut asked = json!({ "text": text, "kind": kind, "key": key, "owner": owner });
            if let Value::Object(fields) = &mut asked {
                fields.retain(|_, value| !value.is_null());
            }
            add(asked, *output, prepared).await
        }
        MemoryCommand::Forget { ids, output } => {
            let gone = change(MemoryChange::Forget(ids.clone()), prepared).await?;
            print(&gone, *output, |out| forgotten(&gone, out))
        }
        MemoryCommand::Export { whose, json: _ } => {
            let lines = look(MemoryQuery::Export(selection(whose)), prepared).await?;
            print(&lines, Output { json: false }, |out| {
                lines.as_array().into_iter().flatten().try_for_each(|line| writeln!(out, "{}", Json(line)))
            })
        }
        MemoryCommand::Import { file, output } => import(file, *output, prepared).await,
        MemoryCommand::Stats(output) => {
            let stats = look(MemoryQuery::Stats, prepared).await?;
            print(&stats, *output, |out| counted(&stats, out))
        }
    }
}

pub(super) async fn look(query: MemoryQuery, prepared: &Prepared) -> anyhow::Result<Value> {
    match Reach::find(&prepared.home).await? {
        Reach::Running(client) => client.get(&query.path()).await,
        Reach::Alone(lock) => gateway::read_memory(&prepared.home, &lock, prepared.without_secrets()?, query).await,
    }
}

pub(super) async fn change(change: MemoryChange, prepared: &Prepared) -> anyhow::Result<Value> {
    match Reach::find(&prepared.home).await? {
        Reach::Running(client) => {
            let (method, path, body) = change.request();
            client.send(method, &path, body).await
        }
        Reach::Alone(lock) => gateway::change_memory(&prepared.home, &lock, prepared.without_secrets()?, change).await,
    }
}

fn selection(whose: &MemoryOwner) -> MemorySelection {
    MemorySelection { owner: whose.owner.clone(), kind: whose.kind.clone() }
}

async fn add(asked: Value, output: Output, prepared: &Prepared) -> anyhow::Result<Exit> {
    let added = change(MemoryChange::Add(asked), prepared).await?;
    // Standard output holds the id alone.
    match (added["remembered"].as_str(), &added["replaced"]) {
        (Some("known"), _) => output::note("that is known already"),
        (Some("replaced"), old) => {
            let id = &added["id"];
            output::note(format_args!("it takes the place of {old}, which stays as history: daoyou memory show {id}"));
        }
        _ => {}
    }
    print(&added, output, |out| writeln!(out, "{}", show::text(&added["id"])))
}

async fn import(file: &Path, output: Output, prepared: &Prepared) -> anyhow::Result<Exit> {
    let text = read_text(file, FILE_LIMIT, "an export of memories")?;
    let taken = change(MemoryChange::Import(text), prepared).await?;
    print(&taken, output, |out| {
        writeln!(out, "{} imported, {} known already", taken["imported"], taken["known"])?;
        match taken["summaries"].as_u64().unwrap_or(0) {
            0 => Ok(()),
            count => writeln!(out, "{count} summaries left aside: they belong to conversations, not to a person"),
        }
    })
}

/// One memory, each of its fields on a line, and what it took the place of.
fn one(memory: &Value, mut out: impl Write) -> io::Result<()> {
    for (key, value) in memory.as_object().into_iter().flatten() {
        let is_empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if !is_empty && key != "before" {
            writeln!(out, "{key}: {}", show::text(value))?;
        }
    }
    for before in memory["before"].as_array().into_iter().flatten() {
        writeln!(
            out,
            "before it: {} {} (since {})",
            before["id"],
            show::text(&before["text"]),
            show::text(&before["created_at"])
        )?;
    }
    Ok(())
}

/// What was found: how alike it is, where it stands, when, and the words around what was asked for.
pub(super) fn found(hits: &Value, query: &str, mut out: impl Write) -> io::Result<()> {
    let hits = hits.as_array().map(Vec::as_slice).unwrap_or_default();
    if hits.is_empty() {
        return writeln!(out, "nothing is found");
    }
    for hit in hits {
        let place = match (&hit["id"], &hit["session"]) {
            (Value::Null, session) => format!("{} #{}", show::text(session), hit["seq"]),
            (id, _) => format!("{} {id}", show::text(&hit["kind"])),
        };
        let similarity = hit["similarity"].as_f64().unwrap_or_default();
        let text = excerpt(&show::text(&hit["text"]), query);
        writeln!(out, "{similarity:.2}  {}  {place}\n      {text}", show::text(&hit["at"]))?;
    }
    Ok(())
}

/// So much of a text as is shown, on one line: from a little before the first word that was asked for.
fn excerpt(text: &str, query: &str) -> String {
    /// Characters that stand before it.
    const BEFORE: usize = 40;
    let line = one_line(&output::field(text));
    let chars: Vec<char> = line.chars().collect();
    if chars.len() <= EXCERPT {
        return line;
    }
    // Folded by characters, of which each stays one, so that places in both are the same.
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

fn forgotten(gone: &Value, mut out: impl Write) -> io::Result<()> {
    for entry in gone["forgotten"].as_array().into_iter().flatten() {
        writeln!(out, "forgotten: {} {} {}", entry["id"], show::text(&entry["kind"]), show::text(&entry["text"]))?;
    }
    match gone["turns"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        1 => writeln!(out, "the words of the turn that it came from are gone from the log"),
        turns => writeln!(out, "the words of {turns} turns that they came from are gone from the log"),
    }
}

fn counted(stats: &Value, mut out: impl Write) -> io::Result<()> {
    show::table(&stats["entries"], ENTRIES, "nothing is remembered", &mut out)?;
    writeln!(out)?;
    for (key, value) in stats.as_object().into_iter().flatten().filter(|(key, _)| *key != "entries") {
        match value {
            Value::Object(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("{name} {}", show::text(value))).collect();
                writeln!(out, "{key}: {}", fields.join(", "))?;
            }
            Value::Null => {}
            value => writeln!(out, "{key}: {}", show::text(value))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_holds_what_was_asked_for() {
        let long = format!("{} The Cat is grey {}", "word ".repeat(100), "end ".repeat(100));
        let shown = excerpt(&long, "nothing cat");
        assert!(shown.starts_with('…') && shown.ends_with('…') && shown.contains("Cat is grey"), "{shown}");
        assert_eq!(shown.chars().count(), EXCERPT + 2);
        assert_eq!(excerpt("two\nlines\u{1b}[2J", "x"), "two lines");
        assert!(excerpt(&"猫".repeat(500), "猫").ends_with('…'));
    }
}
