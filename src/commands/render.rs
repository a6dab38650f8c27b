//! Renders query results for people.

use std::io::{self, Write};

use daoyou_channels::text::display_width;
use jiff::Timestamp;
use serde_json::Value;

use super::exit::CommandExit;
use super::output::{field, local_time, print, tr};
use super::translation::{fill_template, translate};
use crate::cli::Output;
use crate::text::{one_line, truncate};

/// The columns of a list, as `(heading, key)`.
pub type TableColumns = &'static [(&'static str, &'static str)];

pub const SESSIONS: TableColumns = &[
    ("SESSION", "session"),
    ("MESSAGES", "messages"),
    ("TOKENS", "tokens"),
    ("COST", "cost"),
    ("LAST USED", "updated_at"),
];
const TURNS: TableColumns = &[
    ("TURN", "turn"),
    ("STATE", "state"),
    ("SESSION", "session"),
    ("SUB-AGENT", "label"),
    ("RECEIVED", "received_at"),
    ("MODEL", "model"),
    ("TOKENS", "tokens"),
    ("COST", "cost"),
    ("MESSAGE", "content"),
];
pub const APPROVALS: TableColumns = &[
    ("ID", "id"),
    ("TOOL", "tool"),
    ("ARGUMENTS", "arguments"),
    ("SESSION", "session"),
    ("HAS READ", "taint"),
    ("EXPIRES", "expires"),
];
pub const QUEUE: TableColumns = &[
    ("ID", "id"),
    ("STATE", "state"),
    ("KIND", "kind"),
    ("CHANNEL", "channel"),
    ("TRIES", "tries"),
    ("LAST ERROR", "last_error"),
    ("MESSAGE", "content"),
];

pub const TOOLS: TableColumns = &[
    ("TOOL", "name"),
    ("ENABLED", "enabled"),
    ("OFFERED", "offered"),
    ("MAY RUN TWICE", "idempotent"),
    ("WHAT IT DOES", "description"),
];
pub const PROMPT_PARTS: TableColumns = &[("PART", "name"), ("BYTES", "bytes"), ("TOKENS", "tokens")];
pub const TRASH: TableColumns = &[
    ("ID", "id"),
    ("DELETED", "deleted_at"),
    ("KIND", "kind"),
    ("SIZE", "size"),
    ("PATH", "path"),
    ("SESSION", "session"),
];
pub const SKILLS: TableColumns = &[
    ("SKILL", "name"),
    ("AVAILABLE", "available"),
    ("SOURCE", "source"),
    ("WHAT IT IS FOR", "description"),
    ("REASON", "reason"),
];
pub const AGENTS: TableColumns = &[
    ("AGENT", "name"),
    ("WHAT IT IS FOR", "description"),
    ("MODEL", "model"),
    ("TOOLS", "tool_count"),
    ("SOURCE", "source"),
];
pub const MCP_SERVERS: TableColumns = &[
    ("SERVER", "name"),
    ("STATE", "state"),
    ("TRANSPORT", "transport"),
    ("TOOLS", "tools"),
    ("LISTED", "age"),
    ("LAST ERROR", "last_error"),
];
pub const MCP_TOOLS: TableColumns = &[("TOOL", "name"), ("AVAILABLE", "available"), ("WHAT IT DOES", "description")];
pub const CHANNELS: TableColumns = &[
    ("CHANNEL", "name"),
    ("KIND", "kind"),
    ("ENABLED", "enabled"),
    ("STATE", "state"),
    ("QUEUED", "queued"),
    ("ALLOWED SENDERS", "allow_from"),
    ("LAST ERROR", "error"),
];

/// The most characters of a cell.
const CELL_LIMIT: usize = 48;
/// The most characters of the reason for a skipped message.
const REASON_LIMIT: usize = 160;

/// Returns the items of an array; any other value has none.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns an object without its null fields.
pub fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// Writes a list as a table, or `nothing` if it is empty.
pub fn table(list: &Value, columns: &[(&str, &str)], nothing: &str, mut out: impl Write) -> io::Result<()> {
    let cells = |row: &Value| columns.iter().map(|(_, key)| cell(&row[*key])).collect();
    let rows: Vec<Vec<String>> = items(list).iter().map(cells).collect();
    if rows.is_empty() {
        return writeln!(out, "{}", translate(nothing));
    }
    let heading: Vec<String> = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&heading]).map(|row| display_width(&row[column]));
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in [&heading].into_iter().chain(&rows) {
        let pad = |(cell, width): (&String, &usize)| format!("{cell}{}", " ".repeat(width - display_width(cell)));
        let line: Vec<String> = row.iter().zip(&widths).map(pad).collect();
        writeln!(out, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}

/// Writes the channels, and below them the messages that they skipped.
pub fn channels(list: &Value, mut out: impl Write) -> io::Result<()> {
    table(list, CHANNELS, "no channels", &mut out)?;
    for row in items(list) {
        let last = items(&row["last_skipped"]);
        if last.is_empty() {
            continue;
        }
        let (name, count) = (text(&row["name"]), &row["skipped"]);
        writeln!(out, "\n{name} passed over {count} in the last thirty days, of these last:")?;
        for place in last {
            let (at, source) = (text(&place["at"]), cell(&place["source"]));
            writeln!(out, "  {at}  {source}  {}", line(&place["reason"], REASON_LIMIT))?;
        }
    }
    Ok(())
}

/// Writes the messages of a session, each with its tool calls and their results.
pub fn session(session: &Value, mut out: impl Write) -> io::Result<()> {
    for message in items(&session["messages"]) {
        let head = format!("[{}] {}:", text(&message["at"]), text(&message["role"]));
        writeln!(out, "{}", format!("{head} {}", text(&message["text"])).trim_end())?;
        for call in items(&message["calls"]) {
            writeln!(out, "    {}({})", text(&call["name"]), text(&call["arguments"]))?;
            for line in text(&call["result"]).trim_end().lines() {
                writeln!(out, "        {line}")?;
            }
        }
    }
    Ok(())
}

/// Writes turns, with the column of sub-agents if there are turns of any.
pub fn turns(list: &Value, out: impl Write) -> io::Result<()> {
    let mut rows = list.clone();
    let mut has_sub_agents = false;
    for row in rows.as_array_mut().into_iter().flatten() {
        let label = row["sub_agent"]["label"].take();
        has_sub_agents |= label.is_string();
        row["label"] = label;
    }
    let columns = TURNS.iter().copied().filter(|(_, key)| has_sub_agents || *key != "label");
    table(&rows, &columns.collect::<Vec<_>>(), "no turns yet", out)
}

/// Writes each step of a turn.
pub fn turn(turn: &Value, mut out: impl Write) -> io::Result<()> {
    if let Some(label) = turn["sub_agent"]["label"].as_str() {
        let (session, asked) = (text(&turn["sub_agent"]["session"]), text(&turn["sub_agent"]["turn"]));
        writeln!(out, "the turn of sub-agent {label:?}, asked for by session {session} in turn {asked}")?;
    }
    for message in items(&turn["messages"]) {
        let [id, state, sender, channel, content] =
            ["id", "state", "sender", "channel", "content"].map(|key| text(&message[key]));
        writeln!(out, "message {id} [{state}] from {sender} on {channel}: {content}")?;
    }
    for step in items(&turn["steps"]) {
        let [seq, at, kind] = ["seq", "at", "kind"].map(|key| text(&step[key]));
        writeln!(out, "{seq:>4}  {at}  {kind:13} {}", summary(step))?;
    }
    let steps = items(&turn["steps"]).len();
    match (turn["intact"] == true, steps) {
        (false, _) => {
            writeln!(out, "the hash chain of these steps is broken: they were changed after they were written")?;
        }
        (true, 0) => writeln!(out, "no steps are kept of this turn")?,
        (true, _) => writeln!(out, "the hash chain of these {steps} steps holds")?,
    }
    for model in items(&turn["used"]["by_model"]) {
        writeln!(out, "used {}: {}", text(&model["model"]), used(model))?;
    }
    match turn["checkpoint"]["reason"].as_str() {
        Some(reason) => writeln!(out, "its session cannot go back to it: {reason}")?,
        None => writeln!(out, "its session can go back to it: daoyou turns restore {}", text(&turn["turn"]))?,
    }
    for row in items(&turn["outbox"]) {
        let [slot, state, channel, chat, content] =
            ["slot", "state", "channel", "chat_id", "content"].map(|key| text(&row[key]));
        writeln!(out, "{slot} [{state}] to {channel} {chat}: {content}")?;
    }
    Ok(())
}

/// Formats tokens, and the cost if it is known.
pub fn used(used: &Value) -> String {
    let cost = used["cost"].as_str().map(|cost| format!("{}{cost}", tr(", cost ", "，费用 "))).unwrap_or_default();
    let numbers = ["input", "cached", "output"].map(|key| used[key].to_string());
    let words = tr("{} tokens in ({} cached), {} out", "输入 {} 个 token（其中缓存 {}），输出 {}");
    format!("{}{cost}", fill_template(words, &numbers))
}

/// Writes keys and values, one pair per line.
pub fn fields(value: &Value, mut out: impl Write) -> io::Result<()> {
    let Value::Object(fields) = value else { return writeln!(out, "{}", text(value)) };
    for (key, value) in fields {
        writeln!(out, "{key}: {}", text(value))?;
    }
    Ok(())
}

/// Prints the result of a change: its keys and values, or JSON.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_fields(answer: &Value, format: Output) -> anyhow::Result<CommandExit> {
    print(answer, format, |out| fields(answer, out))
}

fn summary(step: &Value) -> String {
    let body = &step["body"];
    match step["kind"].as_str() {
        Some("context") => {
            let agent = body["agent"].as_str().map(|agent| format!("agent {agent}, ")).unwrap_or_default();
            format!("{agent}model {}, messages {}..{}", text(&body["model"]), text(&body["from"]), text(&body["to"]))
        }
        Some("response") => {
            let response = &body["response"];
            let call = |call: &Value| format!("{}({})", text(&call["name"]), text(&call["arguments"]));
            let calls: Vec<String> = items(&response["tool_calls"]).iter().map(call).collect();
            let usage = &response["usage"];
            let tokens = format!("{} tokens in, {} out", text(&usage["input_tokens"]), text(&usage["output_tokens"]));
            let cost = &response["cost"];
            let cost = match cost["micros"].as_u64() {
                Some(micros) => format!(", {} {}", micros as f64 / 1e6, text(&cost["currency"])),
                None => String::new(),
            };
            format!("{}{} [{tokens}{cost}]", text(&response["text"]), calls.join(", "))
        }
        Some("tool_started") => text(&body["name"]),
        Some("tool_result") => {
            let result = &body["result"];
            let outcome = if result["success"] == true { text(&result["content"]) } else { text(&result["error"]) };
            format!("{}: {outcome}", text(&body["name"]))
        }
        _ => text(body),
    }
}

fn cell(value: &Value) -> String {
    let words = match value {
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => text(other),
    };
    truncate(&one_line(&words), CELL_LIMIT)
}

fn line(value: &Value, limit: usize) -> String {
    truncate(&one_line(&text(value)), limit)
}

/// Parses a UTC time as it occurs in the data.
fn instant(text: &str) -> Option<Timestamp> {
    let may_be = (20..=30).contains(&text.len()) && text.ends_with('Z') && text.as_bytes()[10] == b'T';
    if may_be { text.parse().ok() } else { None }
}

/// Formats a field for people; times are in the local time zone.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => instant(text).map_or_else(|| field(text), local_time),
        other => field(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_by_their_width_on_the_screen() {
        let rows = json!([{"name": "晨报", "state": "enabled"}, {"name": "a…", "state": "paused"}]);
        let mut out = Vec::new();
        table(&rows, &[("NAME", "name"), ("STATE", "state")], "", &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME  STATE\n晨报  enabled\na…    paused\n");
    }
}
