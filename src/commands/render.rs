//! Renders query results for people.

use std::io::{self, Write};

use daoyou_channels::text::display_width;
use jiff::Timestamp;
use serde_json::Value;

use super::exit::CommandExit;
use super::output::{field, local_time, print, tr};
use super::translation::{tr_fill, translate};
use crate::cli::Output;
use crate::text::visible::{escape_controls, quote_visibly, visible_json};
use crate::text::{one_line, truncate};

/// The columns of a list, as `(heading, key)`. `chinese.txt` has the Chinese headings.
pub type TableColumns = &'static [(&'static str, &'static str)];

pub const SESSIONS: TableColumns = &[
    ("SESSION", "session"),
    ("MESSAGES", "messages"),
    ("TOKENS", "tokens"),
    ("COST", "cost"),
    ("LAST USED", "updated_at"),
];
pub const TURNS: TableColumns = &[
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
/// The text of an empty queue. The queue does not list messages that have not failed, such as those of a gateway that was killed.
pub const EMPTY_QUEUE: &str =
    "no message is stuck, and no delivery is open; `daoyou status` counts the messages that have no reply yet";
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

/// The maximum length, in characters, of a cell.
const CELL_LIMIT: usize = 48;
/// The columns of a line of the arguments of a call, and the spaces before it.
const ARGUMENTS_WIDTH: usize = 76;
const ARGUMENTS_INDENT: &str = "    ";
/// The maximum number of characters of the reason for a skipped message.
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
    let cells = |row: &Value| {
        let cell_of = |key: &str| match key {
            "session" | "chat_id" => truncate(&session_key(&row[key]), CELL_LIMIT),
            _ => cell(&row[key]),
        };
        columns.iter().map(|(_, key)| cell_of(key)).collect()
    };
    let rows: Vec<Vec<String>> = items(list).iter().map(cells).collect();
    if rows.is_empty() {
        return writeln!(out, "{}", translate(nothing));
    }
    let heading: Vec<String> = columns.iter().map(|(heading, _)| translate(heading)).collect();
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

/// Writes each call that waits for approval, with its whole arguments.
pub fn approvals(list: &Value, mut out: impl Write) -> io::Result<()> {
    if items(list).is_empty() {
        return writeln!(out, "{}", translate("nothing waits for your approval"));
    }
    for (number, row) in items(list).iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let taint: Vec<_> = items(&row["taint"]).iter().filter_map(Value::as_str).map(quote_visibly).collect();
        let mut fields: Vec<_> = ["id", "tool"].map(|key| (key, text(&row[key]))).into();
        fields.push(("session", quote_visibly(row["session"].as_str().unwrap_or_default())));
        fields.push(("taint", taint.join(", ")));
        fields.extend(["created", "expires"].map(|key| (key, text(&row[key]))));
        fields.push(("arguments", String::new()));
        for (key, value) in fields {
            writeln!(out, "{}", tr_fill("{}: {}", "{}：{}", &[&translate(key), &value]).trim_end())?;
        }
        writeln!(out, "{}", wrapped(&visible_json(row["arguments"].clone())))?;
    }
    Ok(())
}

/// Returns a text on indented lines.
fn wrapped(text: &str) -> String {
    let mut lines = ARGUMENTS_INDENT.to_owned();
    let mut column = 0;
    for c in text.chars() {
        let width = display_width(c.encode_utf8(&mut [0; 4]));
        if column + width > ARGUMENTS_WIDTH {
            lines.push('\n');
            lines.push_str(ARGUMENTS_INDENT);
            column = 0;
        }
        lines.push(c);
        column += width;
    }
    lines
}

/// Writes the channels, and below them the messages that they skipped.
pub fn channels(list: &Value, mut out: impl Write) -> io::Result<()> {
    table(list, CHANNELS, "no channels", &mut out)?;
    for row in items(list) {
        let last = items(&row["last_skipped"]);
        if last.is_empty() {
            continue;
        }
        let (en, zh) =
            ("{} passed over {} in the last thirty days, of these last:", "{} 近三十天跳过了 {} 条，最近的有：");
        writeln!(out, "\n{}", tr_fill(en, zh, &[&text(&row["name"]), &row["skipped"]]))?;
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
pub fn turns(list: &Value, is_up: bool, out: impl Write) -> io::Result<()> {
    let mut rows = list.clone();
    let mut has_sub_agents = false;
    for row in rows.as_array_mut().into_iter().flatten() {
        let label = row["sub_agent"]["label"].take();
        has_sub_agents |= label.is_string();
        row["label"] = label;
        row["state"] = turn_state(&row["state"], is_up).into();
    }
    let columns = TURNS.iter().copied().filter(|(_, key)| has_sub_agents || *key != "label");
    table(&rows, &columns.collect::<Vec<_>>(), "no turns yet", out)
}

/// Returns the state of a turn or a message. Without a gateway, one that is marked as running was interrupted; the next start
/// continues it.
pub fn turn_state(state: &Value, is_up: bool) -> String {
    if state == "running" && !is_up { "interrupted".to_owned() } else { text(state) }
}

/// Writes each step of a turn.
pub fn turn(turn: &Value, is_up: bool, mut out: impl Write) -> io::Result<()> {
    if let Some(label) = turn["sub_agent"]["label"].as_str() {
        let (session, asked) = (text(&turn["sub_agent"]["session"]), text(&turn["sub_agent"]["turn"]));
        let en = "the turn of sub-agent {}, asked for by session {} in turn {}";
        let zh = "子智能体 {} 的回合，由会话 {} 的回合 {} 发起";
        writeln!(out, "{}", tr_fill(en, zh, &[&format!("{label:?}"), &session, &asked]))?;
    }
    for message in items(&turn["messages"]) {
        let [id, sender, channel, content] = ["id", "sender", "channel", "content"].map(|key| text(&message[key]));
        let state = turn_state(&message["state"], is_up);
        let (en, zh) = ("message {} [{}] from {} on {}: {}", "消息 {} [{}]，{} 发自 {}：{}");
        writeln!(out, "{}", tr_fill(en, zh, &[&id, &state, &sender, &channel, &content]))?;
    }
    for step in items(&turn["steps"]) {
        let [seq, at, kind] = ["seq", "at", "kind"].map(|key| text(&step[key]));
        writeln!(out, "{seq:>4}  {at}  {kind:13} {}", summary(step))?;
    }
    writeln!(out, "{}", chain(turn))?;
    for model in items(&turn["used"]["by_model"]) {
        writeln!(out, "{}", tr_fill("used {}: {}", "用量 {}：{}", &[&text(&model["model"]), &used(model)]))?;
    }
    let way_back = match turn["checkpoint"]["reason"].as_str() {
        Some(reason) => {
            tr_fill("its session cannot go back to it: {}", "会话无法回到这个回合：{}", &[&translate(reason)])
        }
        None => {
            let en = "its session can go back to it: daoyou turns restore {}";
            tr_fill(en, "会话可以回到这个回合：daoyou turns restore {}", &[&text(&turn["turn"])])
        }
    };
    writeln!(out, "{way_back}")?;
    for row in items(&turn["outbox"]) {
        let [slot, state, channel, chat, content] =
            ["slot", "state", "channel", "chat_id", "content"].map(|key| text(&row[key]));
        let (en, zh) = ("{} [{}] to {} {}: {}", "{} [{}] 发往 {} {}：{}");
        writeln!(out, "{}", tr_fill(en, zh, &[&slot, &state, &channel, &chat, &content]))?;
    }
    Ok(())
}

/// Describes whether the steps of a turn are unchanged.
fn chain(turn: &Value) -> String {
    match (turn["intact"] == true, items(&turn["steps"]).len()) {
        (false, _) => tr(
            "the hash chain of these steps is broken: they were changed after they were written",
            "这些步骤的哈希链已断：它们在写入之后被改动过",
        )
        .to_owned(),
        (true, 0) => tr("no steps are kept of this turn", "这个回合没有留下步骤").to_owned(),
        (true, steps) => tr_fill("the hash chain of these {} steps holds", "这 {} 步的哈希链完好", &[&steps]),
    }
}

/// Formats tokens, and the cost if it is known.
pub fn used(used: &Value) -> String {
    let cost = used["cost"].as_str().map(|cost| format!("{}{cost}", tr(", cost ", "，费用 "))).unwrap_or_default();
    let (en, zh) = ("{} tokens in ({} cached), {} out{}", "输入 {} 个 token（其中缓存 {}），输出 {}{}");
    tr_fill(en, zh, &[&used["input"], &used["cached"], &used["output"], &cost])
}

/// Writes keys and values, one pair per line. `chinese.txt` has the Chinese keys.
pub fn fields(value: &Value, mut out: impl Write) -> io::Result<()> {
    let Value::Object(fields) = value else { return writeln!(out, "{}", text(value)) };
    for (key, value) in fields {
        let value = match value {
            Value::Bool(true) => tr("true", "是").to_owned(),
            Value::Bool(false) => tr("false", "否").to_owned(),
            other => text(other),
        };
        writeln!(out, "{}", tr_fill("{}: {}", "{}：{}", &[&translate(key), &value]))?;
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
            let agent = body["agent"].as_str().map(|agent| tr_fill("agent {}, ", "智能体 {}，", &[&agent]));
            let [model, from, to] = ["model", "from", "to"].map(|key| text(&body[key]));
            let (en, zh) = ("{}model {}, messages {}..{}", "{}模型 {}，消息 {}..{}");
            tr_fill(en, zh, &[&agent.unwrap_or_default(), &model, &from, &to])
        }
        Some("response") => {
            let response = &body["response"];
            let call = |call: &Value| format!("{}({})", text(&call["name"]), text(&call["arguments"]));
            let calls: Vec<String> = items(&response["tool_calls"]).iter().map(call).collect();
            let usage = &response["usage"];
            let (input, output) = (text(&usage["input_tokens"]), text(&usage["output_tokens"]));
            let tokens = tr_fill("{} tokens in, {} out", "输入 {} 个 token，输出 {}", &[&input, &output]);
            let cost = &response["cost"];
            let cost = match cost["micros"].as_u64() {
                Some(micros) => format!("{}{} {}", tr(", ", "，"), micros as f64 / 1e6, text(&cost["currency"])),
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
        Value::Bool(true) => tr("yes", "是").to_owned(),
        Value::Bool(false) => tr("no", "否").to_owned(),
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

/// Returns the key of a session, or a chat. Characters of a key from elsewhere that control how it is shown are escaped.
pub fn session_key(value: &Value) -> String {
    escape_controls(value.as_str().unwrap_or_default())
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

    #[test]
    fn an_approval_shows_its_whole_arguments() {
        let command = format!("echo start;{}{}\u{202e}; rm -rf 文档", " ".repeat(3_000), "echo x; ".repeat(100));
        let row = |session: &str| {
            json!({
                "id": "3f9a1c77b2", "tool": "exec", "session": session, "taint": ["sender:webhook:in:b\u{200b}oss"],
                "created": "2026-01-02T03:04:05Z", "expires": "2026-01-03T03:04:05Z", "arguments": {"command": command},
            })
        };
        let mut out = Vec::new();
        approvals(&json!([row("webhook:in:b0. Approve \"this\""), row("cli:b")]), &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let blocks: Vec<_> = shown.split("\n\n").collect();
        let lines: Vec<_> = blocks[0].lines().collect();
        assert_eq!((blocks.len(), lines[0], lines[1]), (2, "id: 3f9a1c77b2", "tool: exec"));
        assert_eq!(lines[2], "session: \"webhook:in:b0. Approve \\u{22}this\\u{22}\"");
        assert_eq!(lines[3], "taint: \"sender:webhook:in:b\\u{200b}oss\"");
        assert!(lines[4].starts_with("created: 2026-01-0") && lines[5].starts_with("expires: 2026-01-0"), "{shown}");
        assert_eq!(lines[6], "arguments:");
        let is_wrapped = |line: &&str| line.starts_with("    ") && display_width(line) <= 4 + ARGUMENTS_WIDTH;
        assert!(lines[7..].iter().all(is_wrapped), "{shown}");
        let arguments: String = lines[7..].iter().map(|line| &line[4..]).collect();
        let expected = format!("echo start;[␠×3000]{}\\u{{202e}}; rm -rf 文档", "echo x; ".repeat(100));
        assert_eq!(arguments, format!("{{\"command\":\"{expected}\"}}"));
        let mut out = Vec::new();
        approvals(&json!([]), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "nothing waits for your approval\n");
    }
}
