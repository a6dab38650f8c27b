//! Measures what survives ten consolidations in the real program, with a scripted model for the summaries and without one.

use anyhow::Result;
use daoyou::memory;
use serde_json::{Value, json};

use crate::support::invariants::open;
use crate::support::model::ModelRequest;
use crate::support::{Gateway, Model, Reply, Setup, until};

const SESSION: &str = "webhook:in:c";
const CONSOLIDATIONS: usize = 10;
/// The number of planted facts: one before each consolidation, and one before all.
const PLANTED: usize = CONSOLIDATIONS + 1;

/// The author of the summaries.
#[derive(Clone, Copy, PartialEq)]
enum SurvivalWriter {
    /// A model that copies the previous summary.
    Carries,
    /// A model with empty summaries, which saves everything as facts.
    Saves,
    /// No model: the program extracts sentences.
    Nobody,
}

/// Returns the table: how many of the planted facts are in the prompt after ten consolidations, and how many are the first
/// hit of a search.
pub async fn measure() -> Result<String> {
    let mut table = format!(
        "**Survival** of {PLANTED} planted facts through {CONSOLIDATIONS} consolidations of one conversation, through the gateway itself: \
         how many of the facts outside the window are in the prompt, and how many a search for their subject finds among its first five.\n\n\
         | summaries are written by | in the prompt | found |\n|---|---|---|\n"
    );
    for (what, writer) in [
        ("a model that continues the previous summary", SurvivalWriter::Carries),
        ("a model that only saves facts", SurvivalWriter::Saves),
        ("nobody (extracts)", SurvivalWriter::Nobody),
    ] {
        let (in_prompt, found) = one(writer).await?;
        table += &format!("| {what} | {in_prompt} of {CONSOLIDATIONS} | {found} of {PLANTED} |\n");
    }
    Ok(table)
}

async fn one(writer: SurvivalWriter) -> Result<(usize, usize)> {
    let model = Model::start().await;
    model.script(move |asked: &ModelRequest<'_>| {
        let text = asked.body["messages"].as_array()?.last()?["content"].as_str()?;
        let is_summary = asked.body["tools"][0]["function"]["name"] == "save_memory";
        is_summary.then(|| Reply::tool("save_memory", &saved(writer, text)))
    });
    let summariser = if writer == SurvivalWriter::Nobody { "offline/offline" } else { "" };
    let setup = Setup::scripted(&model).set("memory.model", summariser);
    let gateway = Gateway::start(setup.set("memory.consolidate_at", 4).set("memory.keep", 2)).await;
    for n in 0..PLANTED {
        gateway.ask("in", "c", &format!("The colour of boat{n} is shade{n}.")).await;
        let cursor = i64::try_from(n)? * 2;
        until(&format!("a summary up to {cursor}"), async || {
            let sql = "SELECT cursor FROM session_memory WHERE session = ? AND epoch = 0";
            let at = open(&gateway.database()).ok()?.query_row(sql, [SESSION], |row| row.get::<_, i64>(0)).unwrap_or(0);
            (at == cursor).then_some(())
        })
        .await;
    }
    gateway.ask("in", "c", "How do you do?").await;
    let last = model.requests().into_iter().rfind(|request| request.to_string().contains("How do you do?"));
    let prompt = last.as_ref().and_then(|request| request["messages"][0]["content"].as_str()).unwrap_or_default();
    let in_prompt = (0..CONSOLIDATIONS).filter(|n| holds(prompt, &format!("shade{n}"))).count();
    let connection = until("all to be indexed", async || {
        let connection = open(&gateway.database()).ok()?;
        let sql = "SELECT (SELECT count(*) FROM messages WHERE session = ?1) = (SELECT count(*) FROM indexed_messages WHERE session = ?1)";
        let is_whole = connection.query_row(sql, [SESSION], |row| row.get::<_, bool>(0)).ok()?;
        is_whole.then_some(connection)
    })
    .await;
    let mut found = 0;
    for n in 0..PLANTED {
        let lines = memory::search_messages(&connection, &format!("colour of boat{n}"), None, None, 5)?;
        found += usize::from(lines.iter().any(|line| holds(&line.excerpt, &format!("shade{n}"))));
    }
    Ok((in_prompt, found))
}

/// Returns what the scripted model saves from a part of the conversation.
fn saved(writer: SurvivalWriter, text: &str) -> Value {
    if writer == SurvivalWriter::Carries {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.starts_with("shade"));
        let mut planted: Vec<_> = words.collect();
        planted.sort_unstable();
        planted.dedup();
        return json!({ "summary": format!("Shades: {}", planted.join(" ")) });
    }
    let fact = |line: &str| {
        let (number, text) = line.strip_prefix('[')?.split_once(']')?;
        let (_, colour) = text.split_once(": The colour of ")?;
        Some(json!({ "text": format!("The colour of {colour}"), "message": number }))
    };
    json!({ "summary": "They spoke of boats.", "facts": text.lines().filter_map(fact).collect::<Vec<_>>() })
}

/// Returns true if a text contains a whole word.
fn holds(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|one| one == word)
}
