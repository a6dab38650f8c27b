//! `daoyou status` and `daoyou models`, for people.

use std::io::{self, Write};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::show::{self, Columns, text};
use crate::gateway::{age, bytes};

const COLUMNS: Columns = &[("", "mark"), ("PROVIDER", "name"), ("KEY", "needs"), ("USUAL MODEL", "model")];

/// The most names of a service's models that are listed.
const NAMES: usize = 500;

/// Some lines, the most important first.
pub fn status(status: &Value, mut out: impl Write) -> io::Result<()> {
    let up = status["gateway"] == "up";
    let head = match up {
        true => format!("up {}, pid {}, version {}", text(&status["uptime"]), status["pid"], text(&status["version"])),
        false => "down; `daoyou gateway` starts it".to_owned(),
    };
    writeln!(out, "gateway   {head}")?;
    let intake = text(&status["parts"]["intake"]);
    if up && intake != "ok" {
        writeln!(out, "          takes no messages: {intake}")?;
    }
    writeln!(out, "home      {}", text(&status["home"]))?;
    writeln!(out, "listen    {}", text(&status["listen"]))?;
    writeln!(out, "model     {}", text(&status["model"]))?;
    for row in status["circuits"].as_array().into_iter().flatten() {
        writeln!(out, "          {} fails again and again: {}", text(&row["provider"]), circuit_words(row))?;
    }
    let database = &status["database"];
    let size = |key: &str| bytes(database[key].as_u64().unwrap_or(0));
    match database["size"].as_u64() {
        Some(_) => writeln!(out, "database  {}, log {}, not in use {}", size("size"), size("wal"), size("free"))?,
        None => writeln!(out, "database  none yet")?,
    }
    let losses = status["losses"].as_array().map(Vec::as_slice).unwrap_or_default();
    for loss in losses {
        writeln!(out, "LOST      {}: {}", text(&loss["at"]), text(&loss["what"]))?;
    }
    if !losses.is_empty() {
        writeln!(out, "          put this away with: daoyou status --acknowledge")?;
    }
    for (number, channel) in status["channels"].as_array().into_iter().flatten().enumerate() {
        let label = if number == 0 { "channels" } else { "" };
        writeln!(out, "{label:8}  {}", channel_line(channel))?;
    }
    let queues = &status["queues"];
    let waits = |count: &str, oldest: &str| match ago(&queues[oldest]) {
        Some(age) => format!("{} (oldest {age})", queues[count]),
        None => queues[count].to_string(),
    };
    writeln!(
        out,
        "queues    in {}, {} running{}; out {}; dead letters {}",
        waits("inbound", "oldest_inbound"),
        queues["running"],
        match queues["waiting"].as_u64() {
            None | Some(0) => String::new(),
            Some(waiting) => format!(", {waiting} waiting for a model"),
        },
        waits("outbound", "oldest_outbound"),
        status["dead_letters"]
    )?;
    if status["dead_messages"].as_u64().is_some_and(|dead| dead > 0) {
        writeln!(out, "          {} messages were given up: `daoyou queue list`", status["dead_messages"])?;
    }
    let today = &status["today"];
    let cost = if today["cost"].is_null() { String::new() } else { format!(", cost {}", text(&today["cost"])) };
    writeln!(
        out,
        "today     {} turns, {} tokens in ({} cached), {} out{cost}",
        today["turns"], today["input"], today["cached"], today["output"]
    )?;
    for (number, turn) in status["last_turns"].as_array().into_iter().flatten().enumerate() {
        let label = if number == 0 { "turns" } else { "" };
        let error = turn["error"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
        let when = ago(&turn["at"]).map(|age| format!("{age} ago")).unwrap_or_default();
        writeln!(out, "{label:8}  {}{error}  {}  {when}", text(&turn["outcome"]), text(&turn["session"]))?;
    }
    Ok(())
}

/// Whether a provider is asked, in words.
fn circuit_words(row: &Value) -> String {
    match row["circuit_seconds"].as_u64() {
        Some(seconds) => format!("not asked for the next {seconds} s"),
        None => "asked with one call at a time".to_owned(),
    }
}

fn channel_line(channel: &Value) -> String {
    let mut line = format!("{} {}", text(&channel["name"]), text(&channel["state"]));
    if channel["queued"].as_u64().is_some_and(|queued| queued > 0) {
        line.push_str(&format!(", {} queued", channel["queued"]));
    }
    if let Some(error) = channel["error"].as_str() {
        line.push_str(&format!(": {error}"));
    }
    line
}

/// How long ago a time of the JSON was.
fn ago(time: &Value) -> Option<String> {
    let then: Timestamp = time.as_str()?.parse().ok()?;
    Some(age(then.as_millisecond(), Timestamp::now().as_millisecond()))
}

/// The services, and below them the models of those that were asked.
pub fn models(found: &Value, mut out: impl Write) -> io::Result<()> {
    let providers = || found["providers"].as_array().into_iter().flatten();
    match (found["takes"].as_str(), found["error"].as_str()) {
        (Some(takes), _) => writeln!(out, "agent.model = {}, which is {takes}\n", found["model"])?,
        (None, error) => writeln!(out, "agent.model = {}: {}\n", found["model"], error.unwrap_or_default())?,
    }
    let rows: Value = providers()
        .map(|row| {
            let mark = if row["in_use"] == true { "*" } else { "" };
            json!({ "mark": mark, "name": row["name"], "needs": needs(row), "model": row["model"] })
        })
        .collect();
    show::table(&rows, COLUMNS, "", &mut out)?;
    writeln!(out, "\n* answers now. A service needs a key alone: in its variable, or under [providers.NAME]")?;
    for row in providers() {
        let name = text(&row["name"]);
        if let Some(error) = row["error"].as_str() {
            writeln!(out, "\n{name}: {error}")?;
        }
        if row["circuit"].as_str().is_some_and(|state| state != "closed") {
            writeln!(out, "\n{name} fails again and again: {}", circuit_words(row))?;
        }
        if let Some(models) = row["models"].as_array() {
            writeln!(out, "\n{name} lists {} models", models.len())?;
            for model in models.iter().take(NAMES) {
                writeln!(out, "  {name}/{}", text(model))?;
            }
            if models.len() > NAMES {
                writeln!(out, "  and {} more; --json has them all", models.len() - NAMES)?;
            }
        }
    }
    Ok(())
}

/// Whether it can be used, in a few words.
fn needs(row: &Value) -> String {
    match (row["configured"] == true, row["key"] == true, row["needs_key"] == true) {
        (true, ..) => "configured".to_owned(),
        (_, true, _) => format!("{} is set", text(&row["key_variables"][0])),
        (.., true) => format!("needs {}", text(&row["key_variables"][0])),
        _ if row["name"] == "offline" => "built in".to_owned(),
        _ => "a server on this machine".to_owned(),
    }
}
