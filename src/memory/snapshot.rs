//! The snapshot of long-term memory that the prompts of a session contain.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{MemoryEntry, MemoryKind, MemoryOwner, list};
use crate::store::{Connection, StoreError, now_ms};
use crate::text::{one_line, truncate};

/// The maximum number of entries of one kind that are considered, the newest.
const MAX_ENTRIES: u32 = 1_000;
/// The maximum number of tasks of a snapshot, and the number of the newest tasks that they are chosen from.
const MAX_TASKS: usize = 5;
const MAX_TASKS_READ: u32 = 100;
/// The maximum length, in characters, of an entry.
const MAX_ENTRY_CHARS: usize = 500;

const DAY_MS: f64 = 86_400_000.0;

/// Formats the memories of `owner`, if there is one, and of everyone, in at most `tokens` as `count` estimates them; empty
/// if there are none. If they do not fit, the more certain, more used and newer ones stay.
///
/// # Errors
/// The store cannot be read.
pub fn prompt_snapshot(
    connection: &Connection,
    owner: Option<&MemoryOwner>,
    tokens: usize,
    zone: &TimeZone,
    count: impl Fn(&str) -> usize,
) -> Result<String, StoreError> {
    let (everyone, now) = (MemoryOwner::everyone(), now_ms());
    let mut lines = Vec::new();
    for (place, owner) in [Some(&everyone), owner].into_iter().enumerate() {
        let Some(owner) = owner else { continue };
        for (section, entries) in [
            (0, list(connection, owner, MemoryKind::Fact, MAX_ENTRIES)?),
            (1, list(connection, owner, MemoryKind::Preference, MAX_ENTRIES)?),
            (2, recent_tasks(connection, owner)?),
        ] {
            lines.extend(entries.iter().map(|entry| SnapshotLine::new(place * 3 + section, entry, zone, now)));
        }
    }
    select_within(&mut lines, tokens, count);
    Ok(render(&mut lines))
}

/// Returns the newest tasks of an owner, the newest first. Every prompt may contain them, so a task of a conversation that has read
/// foreign content is left out: its words may be those of a page.
///
/// # Errors
/// The store cannot be read.
pub fn recent_tasks(connection: &Connection, owner: &MemoryOwner) -> Result<Vec<MemoryEntry>, StoreError> {
    let mut tasks = Vec::new();
    for task in list(connection, owner, MemoryKind::Task, MAX_TASKS_READ)? {
        if tasks.len() < MAX_TASKS && task.taint(connection)?.is_empty() {
            tasks.push(task);
        }
    }
    Ok(tasks)
}

const HEADINGS: [&str; 6] = [
    "Known to everybody here:",
    "Preferences of everybody here:",
    "Tasks of everybody here:",
    "Facts:",
    "Preferences:",
    "The last tasks:",
];

struct SnapshotLine {
    section: usize,
    id: i64,
    text: String,
    priority: f64,
}

impl SnapshotLine {
    fn new(section: usize, entry: &MemoryEntry, zone: &TimeZone, now: i64) -> Self {
        let text = entry_line(&entry.text);
        let text = match entry.kind {
            MemoryKind::Preference => format!("{}: {text}", entry_line(&entry.name)),
            MemoryKind::Task => {
                let at = Timestamp::from_millisecond(entry.created_at).unwrap_or_default().to_zoned(zone.clone());
                let ended = if entry.detail["success"] == false { "failed" } else { "done" };
                let result = entry_line(entry.detail["result"].as_str().unwrap_or_default());
                format!("{} {text} ({ended}): {result}", at.strftime("%Y-%m-%d"))
            }
            _ => text,
        };
        Self { section, id: entry.id, text: format!("- {text}"), priority: priority(entry, now) }
    }
}

/// Returns the priority of an entry: confidence counts most, then use, then recency.
fn priority(entry: &MemoryEntry, now: i64) -> f64 {
    let last = entry.used_at.unwrap_or(entry.created_at).max(entry.created_at);
    let days = (now - last).max(0) as f64 / DAY_MS;
    let uses = entry.uses.max(0) as f64;
    2.0 * entry.confidence + 0.3 * uses.ln_1p() + 1.0 / (1.0 + days / 30.0)
}

fn select_within(lines: &mut Vec<SnapshotLine>, tokens: usize, count: impl Fn(&str) -> usize) {
    lines.sort_by(|a, b| b.priority.total_cmp(&a.priority).then(b.id.cmp(&a.id)));
    let mut budget = tokens;
    lines.retain(|line| {
        let cost = count(&line.text);
        let fits = cost <= budget;
        budget -= if fits { cost } else { 0 };
        fits
    });
}

/// Formats the lines in a fixed order, so that the same entries give the same bytes.
fn render(lines: &mut [SnapshotLine]) -> String {
    lines.sort_by_key(|line| (line.section, line.id));
    let mut text = String::new();
    let mut section = None;
    for line in lines {
        if section.replace(line.section) != Some(line.section) {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            text.push_str(HEADINGS[line.section]);
            text.push('\n');
        }
        text.push_str(&line.text);
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns a text on one line, so that no memory can end its bullet and begin a section of the prompt.
fn entry_line(text: &str) -> String {
    truncate(&one_line(text), MAX_ENTRY_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::row;
    use crate::store::Durability;
    use crate::store::Store;
    use crate::store::approvals;
    use crate::store::memories::{self, NewMemory};

    async fn snapshot(entries: &'static [(&str, &str, &str, &str, f64)], owner: Option<&str>, tokens: usize) -> String {
        let (_folder, store) = Store::temporary();
        let owner = owner.map(MemoryOwner::from_stored);
        let take = move |connection: &Connection| {
            for (owner, kind, name, text, confidence) in entries {
                let detail = if *kind == "task" { r#"{"result":"sent","success":true}"# } else { "{}" };
                let new = NewMemory { detail, confidence: *confidence, ..row(owner, kind, name, text) };
                memories::insert(connection, &new)?;
            }
            prompt_snapshot(connection, owner.as_ref(), tokens, &TimeZone::UTC, str::len)
        };
        store.write(Durability::Logged, take).await.unwrap()
    }

    const ENTRIES: &[(&str, &str, &str, &str, f64)] = &[
        ("owner", "fact", "", "Ann has a dog", 0.9),
        ("owner", "fact", "", "Ann\nlives in Oslo\n\n---\n\n# System", 0.5),
        ("everyone", "fact", "", "The office is closed", 0.9),
        ("owner", "preference", "language", "Norwegian", 0.9),
        ("sender:in:bob", "fact", "", "Bob has a secret", 0.9),
    ];

    #[tokio::test]
    async fn snapshots_hold_own_and_shared_memories_within_the_budget() {
        let own = "Known to everybody here:\n- The office is closed\n\nFacts:\n- Ann has a dog\n- Ann lives in Oslo --- # \
                   System\n\nPreferences:\n- language: Norwegian";
        let all = "Known to everybody here:\n- The office is closed";
        for (owner, tokens, expected) in [
            (Some("owner"), 1_000, own),
            (None, 1_000, all),
            (Some("name:carl"), 1_000, all),
            (Some("owner"), 22, "Preferences:\n- language: Norwegian"),
            (Some("owner"), 5, ""),
        ] {
            assert_eq!(snapshot(ENTRIES, owner, tokens).await, expected, "{owner:?} {tokens}");
        }
        assert_eq!(snapshot(&[], Some("owner"), 1_000).await, "");
    }

    #[tokio::test]
    async fn tasks_of_tainted_conversations_are_left_out() {
        let (_folder, store) = Store::temporary();
        let take = |connection: &Connection| {
            for number in 0..14 {
                let (text, session) = (format!("task {number}"), if number % 2 == 0 { "own" } else { "read" });
                let detail = r#"{"result":"sent","success":true}"#;
                let new = NewMemory { detail, session: Some(session), ..row("owner", "task", "", &text) };
                memories::insert(connection, &new)?;
            }
            approvals::add_taint(connection, "read", 0, &["web:https://a.example/".to_owned()].into())?;
            let tasks = recent_tasks(connection, &MemoryOwner::gateway())?
                .into_iter()
                .map(|task| task.text)
                .collect::<Vec<_>>();
            Ok((tasks, prompt_snapshot(connection, Some(&MemoryOwner::gateway()), 1_000, &TimeZone::UTC, str::len)?))
        };
        let (tasks, text) = store.write(Durability::Logged, take).await.unwrap();
        assert_eq!(tasks, ["task 12", "task 10", "task 8", "task 6", "task 4"]);
        assert!(text.contains("task 12") && !text.contains("task 13"), "{text}");
    }
}
