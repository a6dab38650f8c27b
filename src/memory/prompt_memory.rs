//! Removes forgotten memories from the turns that used them: from prompts, from the memories attached to messages, and from
//! tool results. Such copies may be in the logs of other conversations than the one in which the memory was stated.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::mentions::{MentionDetector, without_mentions};
use super::message_text::{IS_DATA, found_in_memory, without_memory, written};
use super::remember::remove;
use super::{MemoryEntry, MemoryKind, MemoryOwner, word_index};
use crate::chat::ChatMessage;
use crate::store::forgetting::{self, ExposedMessage, FORGOTTEN};
use crate::store::{Connection, StoreError, log_purge, meta};
use crate::text::{comparison_key, narrow, one_line};

/// A session and one of its turns.
type TurnKey = (String, String);

/// The tolerance for a clock that was set back: a message may seem older than a memory that it used. In milliseconds.
const CLOCK_TOLERANCE_MS: i64 = 86_400_000;
/// The beginning of a line that shows a memory.
const BULLET: &str = "- ";

/// Removes forgotten memories of `owner` from the turns that used them, and the words that mention the memories from the
/// messages of those turns. `sources` are the turns in which the memories were stated. Any later turn of the owner may have
/// had the memories in its prompt. Returns the sessions that changed.
///
/// # Errors
/// The store cannot be written.
pub(super) fn redact_prompts(
    connection: &Connection,
    owner: &MemoryOwner,
    (entries, detectors): (&[&MemoryEntry], Vec<MentionDetector>),
    sources: &BTreeSet<TurnKey>,
) -> Result<BTreeSet<String>, StoreError> {
    let marks = ForgottenMarks {
        detectors,
        labels: message_labels(connection, sources)?,
        ..ForgottenMarks::of_entries(entries)
    };
    let since = entries.iter().map(|entry| entry.created_at).min().unwrap_or_default() - CLOCK_TOLERANCE_MS;
    let turns: Vec<&str> = sources.iter().map(|(_, turn)| turn.as_str()).collect();
    let (mut copies, mut redacted, mut open) = (BTreeSet::new(), Vec::new(), TurnRows::default());
    forgetting::visit_exposed(
        connection,
        (owner.as_str(), since),
        &turns,
        |ExposedMessage { session, turn, seq, body }| {
            if turns.contains(&turn.as_str()) {
                copies.insert((session, turn));
                return;
            }
            if open.place.0 != session || open.place.1 != turn {
                let place = (session, turn);
                redacted.extend(std::mem::replace(&mut open, TurnRows { place, rows: Vec::new() }).redacted(&marks));
            }
            open.rows.push((seq, body));
        },
    )?;
    redacted.extend(open.redacted(&marks));
    // A forked conversation contains the same turns.
    for (session, turn) in copies.difference(sources) {
        forget_turn(connection, session, turn)?;
    }
    let mut sessions: BTreeSet<String> = copies.into_iter().map(|(session, _)| session).collect();
    forget_command_replies(connection, (owner, since), &marks)?;
    for (place, left) in redacted {
        write_redacted(connection, (&place.0, &place.1), left)?;
        sessions.insert(place.0);
    }
    Ok(sessions)
}

/// Removes the delivered replies to slash commands that show a forgotten memory, such as the lists of `/memory`.
fn forget_command_replies(
    connection: &Connection,
    (owner, since): (&MemoryOwner, i64),
    marks: &ForgottenMarks,
) -> Result<(), StoreError> {
    let mut shown = BTreeSet::new();
    forgetting::visit_command_replies(connection, (owner.as_str(), since), |turn, reply| {
        let is_listed = marks.listed.iter().any(|line| reply.contains(line.as_str()));
        let states = |it: &MentionDetector| it.is_named_in(&reply) || it.is_stated_in(&reply);
        if is_listed || marks.detectors.iter().any(states) {
            shown.insert(turn);
        }
    })?;
    shown.iter().try_for_each(|turn| forgetting::forget_delivered(connection, turn))
}

/// Removes the words of a turn in which a memory was stated, and the task that was recorded of the turn. Returns true if the
/// turn had ended.
pub(super) fn forget_turn(connection: &Connection, session: &str, turn: &str) -> Result<bool, StoreError> {
    for task in forgetting::task_memories(connection, session, turn)? {
        remove(connection, task)?;
    }
    // The index entries are removed first, since their removal may need the words.
    word_index::remove_turn(connection, session, turn)?;
    forgetting::forget_turn(connection, session, turn)
}

/// Consecutive messages of one turn, as seq and body.
#[derive(Default)]
struct TurnRows {
    place: TurnKey,
    rows: Vec<(i64, String)>,
}

impl TurnRows {
    /// Returns the redacted messages; `None` if nothing changes.
    fn redacted(self, marks: &ForgottenMarks) -> Option<(TurnKey, Vec<(i64, RedactedMessage)>)> {
        if !self.rows.iter().any(|(_, body)| marks.may_be_in(body)) {
            return None;
        }
        let (seqs, bodies): (Vec<i64>, Vec<String>) = self.rows.into_iter().unzip();
        let left = seqs.into_iter().zip(marks.redact(&bodies)).filter_map(|(seq, left)| Some((seq, left?)));
        let left: Vec<_> = left.collect();
        (!left.is_empty()).then_some((self.place, left))
    }
}

/// Writes the redacted messages of a turn, and removes the data that was derived from the originals.
fn write_redacted(
    connection: &Connection,
    (session, turn): (&str, &str),
    left: Vec<(i64, RedactedMessage)>,
) -> Result<(), StoreError> {
    let mut cleared = Vec::new();
    for (seq, RedactedMessage { body, is_cleared, is_question }) in left {
        forgetting::replace_body(connection, session, seq, &body)?;
        if is_cleared {
            cleared.push(seq);
        }
        if is_cleared && is_question {
            forgetting::replace_inbox_text(connection, turn, FORGOTTEN)?;
        }
    }
    forgetting::forget_steps(connection, turn)?;
    if !cleared.is_empty() {
        word_index::remove_messages(connection, session, &cleared)?;
        forgetting::forget_delivered(connection, turn)?;
        // The task of a turn contains its answer.
        for task in forgetting::task_memories(connection, session, turn)? {
            remove(connection, task)?;
        }
    }
    Ok(())
}

/// A redacted message.
struct RedactedMessage {
    body: String,
    is_cleared: bool,
    /// The message is the user's.
    is_question: bool,
}

/// Redacts the messages that a turn adds to its session at its end, if memories were forgotten while it ran. Returns true if
/// any message changed.
///
/// # Errors
/// The store cannot be read or written.
pub fn redact_ended_turn(
    connection: &Connection,
    turn: &str,
    messages: &mut [ChatMessage],
) -> Result<bool, StoreError> {
    let mut pending = PendingRedactions::read(connection)?;
    let detectors =
        pending.0.iter().filter(|(turns, _)| turns.contains(turn)).flat_map(|(_, detectors)| detectors.clone());
    let detectors: Vec<MentionDetector> = detectors.collect();
    pending.remove(connection, turn)?;
    if detectors.is_empty() {
        return Ok(false);
    }
    let marks = ForgottenMarks { detectors, ..ForgottenMarks::default() };
    let bodies = messages.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let mut is_changed = false;
    for (message, left) in messages.iter_mut().zip(marks.redact(&bodies)) {
        if let Some(redacted) = left.and_then(|left| parse_message(&left.body)) {
            *message = redacted;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// The pending redactions of turns that were running when a memory was forgotten: their prompts and outputs may contain the
/// memory. The store keeps these turns with the detectors of the memory until they end.
#[derive(Default, Deserialize, Serialize)]
struct PendingRedactions(Vec<(BTreeSet<String>, Vec<MentionDetector>)>);

impl PendingRedactions {
    const KEY: &str = "forgetting";

    fn read(connection: &Connection) -> Result<Self, StoreError> {
        let stored = meta::get(connection, Self::KEY)?.filter(|stored| !stored.is_empty());
        Ok(stored.and_then(|stored| serde_json::from_str(&stored).ok()).unwrap_or_default())
    }

    /// Stores the redactions, and drops those of turns that have ended or cannot know the memory: the store must not keep the words
    /// of a memory for days because an unrelated turn waits for an approval.
    fn write(mut self, connection: &Connection) -> Result<(), StoreError> {
        let open = forgetting::running_turns(connection, MemoryOwner::everyone().as_str())?;
        for (turns, detectors) in &mut self.0 {
            let mut kept = BTreeSet::new();
            for turn in std::mem::take(turns).into_iter().filter(|turn| open.contains(turn)) {
                if may_know(connection, &turn, detectors)? {
                    kept.insert(turn);
                }
            }
            *turns = kept;
        }
        self.0.retain(|(turns, _)| !turns.is_empty());
        // The write-ahead log still has the words that are dropped here, and the steps of a turn that ends.
        log_purge::request();
        let stored = if self.0.is_empty() { String::new() } else { serde_json::to_string(&self)? };
        meta::set(connection, Self::KEY, &stored)
    }

    fn remove(&mut self, connection: &Connection, turn: &str) -> Result<(), StoreError> {
        let is_known = !self.0.is_empty();
        for (turns, _) in &mut self.0 {
            turns.remove(turn);
        }
        if is_known { std::mem::take(self).write(connection) } else { Ok(()) }
    }
}

/// Returns true if a turn that has not ended may know one of the memories. A parked turn continues from its steps alone, and its next
/// prompt no longer has the memory.
fn may_know(connection: &Connection, turn: &str, detectors: &[MentionDetector]) -> Result<bool, StoreError> {
    let Some(texts) = forgetting::texts_of_parked_turn(connection, turn)? else { return Ok(true) };
    Ok(texts.iter().any(|text| {
        // In JSON, the mark of a line break would become a part of the next word.
        let text = text.replace("\\n", " ").replace("\\t", " ");
        let narrow = narrow(&text).to_lowercase();
        detectors.iter().any(|it| it.may_be_in(&narrow) || it.is_named_in(&text) || it.is_quoted_in(&text))
    }))
}

/// Schedules the redaction of the running turns of `owner`, and restarts parked turns that have read a forgotten memory.
///
/// # Errors
/// The store cannot be written.
pub(super) fn redact_running_turns(
    connection: &Connection,
    owner: &MemoryOwner,
    detectors: Vec<MentionDetector>,
) -> Result<(), StoreError> {
    let mut restarted = BTreeSet::new();
    forgetting::visit_resting_steps(connection, owner.as_str(), |turn, body| {
        if detectors.iter().any(|detector| detector.is_named_in(&body) || detector.is_stated_in(&body)) {
            restarted.insert(turn);
        }
    })?;
    restarted.iter().try_for_each(|turn| forgetting::restart_turn(connection, turn))?;
    let running = forgetting::running_turns(connection, owner.as_str())?;
    let mut pending = PendingRedactions::read(connection)?;
    if !running.is_empty() && !detectors.is_empty() {
        pending.0.push((running, detectors));
    }
    if pending.0.is_empty() { Ok(()) } else { pending.write(connection) }
}

fn parse_message(body: &str) -> Option<ChatMessage> {
    serde_json::from_str(body).ok()
}

/// Returns the labels that mark forgotten messages in tool results: ` · cli:direct #12 · `.
fn message_labels(connection: &Connection, sources: &BTreeSet<TurnKey>) -> Result<Vec<String>, StoreError> {
    let mut labels = Vec::new();
    for (session, turn) in sources {
        let rows = forgetting::messages_of_turn(connection, session, turn)?;
        labels.extend(rows.into_iter().map(|(seq, _)| format!(" · {session} #{seq} · ")));
    }
    Ok(labels)
}

/// The marks of lines that show forgotten memories.
#[derive(Default)]
struct ForgottenMarks {
    detectors: Vec<MentionDetector>,
    /// The memories as prompts show them, as comparison keys.
    shown: Vec<String>,
    /// `- id 12 ·`, the beginning of a memory's line in a tool result.
    ids: Vec<String>,
    /// ``- `12` ``, the beginning of a memory's line in a list of `/memory`.
    listed: Vec<String>,
    /// ` · cli:direct #12 · `, the label of a forgotten message in a tool result.
    labels: Vec<String>,
}

impl ForgottenMarks {
    /// Redacts the messages of a turn; `None` for each one that stays as it is.
    fn redact(&self, bodies: &[String]) -> Vec<Option<RedactedMessage>> {
        let messages: Vec<Option<ChatMessage>> = bodies.iter().map(|body| parse_message(body)).collect();
        let given = |message: &ChatMessage| self.without_shown_memories(message);
        // The messages of a turn that found a memory may mention it too.
        let was_found = messages.iter().flatten().any(|message| given(message).is_some());
        let mut question = String::new();
        let left = bodies.iter().zip(&messages).map(|(body, message)| {
            let message = message.as_ref()?;
            let is_question = matches!(message, ChatMessage::User { .. });
            if let ChatMessage::User { content, .. } = message {
                written(content).clone_into(&mut question);
            }
            let is_cleared = self.is_mentioned_by(message, &question, was_found);
            let body = match given(message) {
                Some(message) if !is_cleared => serde_json::to_string(&message).ok()?,
                None if !is_cleared => return None,
                _ => forgetting::without_words(body),
            };
            Some(RedactedMessage { body, is_cleared, is_question })
        });
        left.collect()
    }

    fn of_entries(entries: &[&MemoryEntry]) -> Self {
        let shown = |entry: &&MemoryEntry| match entry.kind {
            MemoryKind::Preference | MemoryKind::Case => {
                comparison_key(&one_line(&format!("{}: {}", entry.name, entry.text)))
            }
            MemoryKind::Fact | MemoryKind::Task | MemoryKind::Summary => comparison_key(&one_line(&entry.text)),
        };
        Self {
            shown: entries.iter().map(shown).filter(|shown| !shown.is_empty()).collect(),
            ids: entries.iter().map(|entry| format!("{BULLET}id {} ·", entry.id)).collect(),
            listed: entries.iter().map(|entry| format!("{BULLET}`{}` ", entry.id)).collect(),
            ..Self::default()
        }
    }

    /// Returns true if a text may contain a mark. This check is cheaper than parsing the text.
    fn may_be_in(&self, text: &str) -> bool {
        let narrow = narrow(text).to_lowercase();
        self.detectors.iter().any(|detector| detector.may_be_in(&narrow))
            || self.ids.iter().chain(&self.labels).any(|mark| text.contains(mark.as_str()))
            || self.detectors.len() < self.shown.len()
    }

    /// Removes the lines that show a memory from a message or a tool result; `None` if there is none.
    fn without_shown_memories(&self, message: &ChatMessage) -> Option<ChatMessage> {
        match message {
            ChatMessage::User { content, images } => {
                let left = self.without_lines(found_in_memory(content))?;
                let shown = without_memory(content);
                let content = if left.contains("\n- ") { format!("{shown}{left}") } else { shown.to_owned() };
                Some(ChatMessage::User { content, images: images.clone() })
            }
            ChatMessage::Tool { call_id, name, content, images } if content.contains(IS_DATA) => {
                let left = self.without_lines(content)?;
                let content = if left.contains("\n- ") { left } else { FORGOTTEN.to_owned() };
                let (call_id, name, images) = (call_id.clone(), name.clone(), images.clone());
                Some(ChatMessage::Tool { call_id, name, content, images })
            }
            _ => None,
        }
    }

    fn without_lines(&self, text: &str) -> Option<String> {
        let left: Vec<&str> = text.split('\n').filter(|line| !self.is_memory_line(line)).collect();
        let left = left.join("\n");
        (left.len() < text.len()).then_some(left)
    }

    /// Returns true if a line shows a forgotten memory. The whole line is then removed.
    fn is_memory_line(&self, line: &str) -> bool {
        let Some(text) = line.strip_prefix(BULLET) else { return false };
        let is_marked = self.ids.iter().any(|id| line.starts_with(id.as_str()))
            || self.labels.iter().any(|place| line.contains(place.as_str()));
        is_marked || self.is_shown(text) || without_mentions(text, &self.detectors).is_some()
    }

    /// Returns true if a text is a forgotten memory as prompts show it, which may be truncated.
    fn is_shown(&self, text: &str) -> bool {
        let (is_cut, text) = text.strip_suffix('…').map_or((false, text), |text| (true, text));
        let text = comparison_key(text);
        !text.is_empty()
            && self.shown.iter().any(|shown| if is_cut { shown.starts_with(&text) } else { *shown == text })
    }

    /// Returns true if a message of a turn about `question` mentions a forgotten memory: the question, the agent's answer,
    /// reasoning or calls, or the result of a tool that is not a memory tool.
    fn is_mentioned_by(&self, message: &ChatMessage, question: &str, was_found: bool) -> bool {
        let any = |tells: &dyn Fn(&MentionDetector) -> bool| self.detectors.iter().any(tells);
        match message {
            ChatMessage::User { content, .. } => any(&|it| it.is_stated_in(written(content))),
            // Results of the memory tools are redacted line by line.
            ChatMessage::Tool { content, .. } if content.contains(IS_DATA) => false,
            ChatMessage::Tool { content, .. } => any(&|it| it.is_quoted_in(content) || it.is_named_in(content)),
            ChatMessage::Assistant { content, reasoning, tool_calls } => {
                let thought = reasoning.as_ref().map_or("", |reasoning| reasoning.text.as_str());
                let called = tool_calls.iter().map(|call| call.arguments.as_str());
                let mut all = [content.as_str(), thought].into_iter().chain(called);
                let tells = |it: &MentionDetector, text: &str| {
                    it.is_disclosed_by(text, question) || (was_found && it.is_answered(text, question))
                };
                all.any(|text| any(&|it| tells(it, text)) || without_mentions(text, &self.detectors).is_some())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::memory::testing::entry;
    use crate::memory::{
        MemoryConfig, MemoryOrigin, MemorySource, NewMemoryEntry, RecallQuery, forget, recall, remember,
    };
    use crate::store::Store;
    use crate::store::inbox::{self, NewInboxRow};
    use crate::store::{Durability, memories, messages, meta, ownership, turn_steps};

    #[test]
    fn lines_that_show_forgotten_memories_are_detected() {
        let long = "word ".repeat(100) + "end";
        let cat = entry(12, MemoryKind::Fact, "", "The user's cat is called Momo");
        let editor = entry(13, MemoryKind::Preference, "editor", "vim");
        let summary = entry(14, MemoryKind::Summary, "s", &long);
        for (entry, line, expected) in [
            (&cat, "- The user's cat is called Momo", true),
            (&cat, "- id 12 · 2026-11-21 · told · anything", true),
            (&cat, "- id 120 · 2026-11-21 · told · Ann sings", false),
            (&cat, "- 2026-11-21 14:05 · cli:direct #7 · fits 0.83 · she is grey", true),
            (&cat, "- 2026-11-21 14:05 · cli:direct #77 · fits 0.83 · she is grey", false),
            (&cat, "- 2026-11-21 14:05 · s #1 · fits 0.83 · I said that the cat is Momo. And more", true),
            (&cat, "- Ann has a dog. Her cat is called Momo.", true),
            (&cat, "- Ann has a dog", false),
            (&cat, "What is remembered: the cat Momo", false),
            (&editor, "- editor: vim", true),
            (&editor, "- editor: emacs", false),
            (&summary, &format!("- {}…", &long[..99]), true),
            (&summary, "- word", false),
        ] {
            let mentioned = Some(entry).filter(|entry| entry.kind != MemoryKind::Summary);
            let marks = ForgottenMarks {
                labels: vec![" · cli:direct #7 · ".to_owned()],
                detectors: mentioned.into_iter().map(MentionDetector::of_entry).collect(),
                ..ForgottenMarks::of_entries(&[entry])
            };
            assert_eq!(marks.is_memory_line(line), expected, "{line}");
            assert!(!expected || marks.may_be_in(line), "{line}");
        }
    }

    fn turn(connection: &Connection, session: &str, log: &[ChatMessage]) -> Result<Uuid, StoreError> {
        let id = Uuid::now_v7();
        let rows = log.iter().map(|message| (message.role(), serde_json::to_string(message).unwrap()));
        messages::append(connection, session, id, rows)?;
        turn_steps::append(connection, id, "note", &serde_json::to_string(log)?)?;
        Ok(id)
    }

    /// Returns the messages of a session.
    fn left(connection: &Connection, session: &str) -> Result<String, StoreError> {
        let rows = messages::range(connection, session, 0, 99)?;
        Ok(rows.into_iter().map(|row| row.body).collect::<Vec<_>>().join("\n"))
    }

    /// Stores a memory that was stated in `a`, used in `b` and by another owner, and forked. Returns the turn that stated it.
    fn talk(connection: &Connection) -> Result<Uuid, StoreError> {
        let asked = "what is my cat called?\n\n[Runtime Context]\nCurrent Time: now\n\n[Memory]\nfound:";
        let call = |name: &str| ChatMessage::Assistant {
            content: String::new(),
            reasoning: None,
            tool_calls: vec![crate::chat::ToolCall { id: "1".into(), name: name.into(), arguments: "{}".into() }],
        };
        let found = |content: &str| ChatMessage::Tool {
            call_id: "1".into(),
            name: "recall".into(),
            content: content.into(),
            images: Vec::new(),
        };
        let source = turn(connection, "a", &[ChatMessage::user("my cat is Momo"), ChatMessage::assistant("noted")])?;
        turn(
            connection,
            "b",
            &[
                ChatMessage::user(format!("{asked}\n- My cat is called Momo\n- Ann sings")),
                call("recall"),
                found(&format!(
                    "What is remembered {IS_DATA}\n- id 1 · 2026 · told · My cat is called Momo\n- id 2 · x"
                )),
                ChatMessage::assistant("Momo, of course."),
            ],
        )?;
        turn(
            connection,
            "b",
            &[
                ChatMessage::user("how are you?\n\n[Runtime Context]\nx\n\n[Memory]\nfound:\n- My cat is called Momo"),
                ChatMessage::assistant("I am fine."),
            ],
        )?;
        turn(connection, "copy", &[ChatMessage::user("hello")])?;
        connection.execute(
            "INSERT INTO messages SELECT 'copy', 0, 1 + seq, role, body, turn, at, digest FROM messages WHERE session = 'a'",
            [],
        )?;
        connection.execute("UPDATE sessions SET next_seq = 3 WHERE session = 'copy'", [])?;
        turn(connection, "others", &[ChatMessage::user(format!("{asked}\n- My cat is called Momo"))])?;
        for (session, owner) in [("a", "owner"), ("b", "owner"), ("copy", "owner"), ("others", "name:bob")] {
            let owner = Some(owner.to_owned());
            ownership::set(connection, session, &messages::Ownership { owner, is_shared: false })?;
        }
        Ok(source)
    }

    #[tokio::test]
    async fn forgetting_redacts_all_conversations_that_used_the_memory() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| -> Result<_, StoreError> {
            let source = talk(connection)?;
            let source = MemorySource { session: "a".to_owned(), seq: None, turn: Some(source.to_string()) };
            let cat = "My cat is called Momo";
            let new = NewMemoryEntry {
                source: Some(source),
                confidence: 0.5,
                ..NewMemoryEntry::new(MemoryOwner::gateway(), MemoryKind::Fact, cat, MemoryOrigin::Stated)
            };
            let id = remember(connection, &new, &MemoryConfig::default())?.id();
            crate::memory::rebuild_index(connection, &crate::memory::Identities::default())?;
            forget(connection, &[id])?;
            assert!(memories::find(connection, id)?.is_none() && meta::get(connection, meta::FORGET_COUNT)?.is_some());
            let steps = "SELECT group_concat(body) FROM turn_steps";
            let steps: String = connection.query_row(steps, [], |row| row.get(0))?;
            let (text, owners, kinds) = ("momo".to_owned(), vec![MemoryOwner::gateway()], vec![MemoryKind::Fact]);
            let query = RecallQuery { text, owners, kinds, messages: true, limit: 9, ..RecallQuery::default() };
            let hits = recall::recall(connection, &query, None)?.len();
            Ok((["a", "b", "copy", "others"].map(|session| left(connection, session).unwrap()), steps, hits))
        };
        let ([a, b, copy, others], steps, hits) = store.write(Durability::Logged, work).await.unwrap();
        for (text, kept) in
            [(&a, "[forgotten]"), (&b, "- Ann sings"), (&b, "- id 2"), (&b, "I am fine."), (&copy, "hello")]
        {
            assert!(!text.contains("Momo") && text.contains(kept), "{text}");
        }
        assert!(b.contains(r#""content":"[forgotten]""#) && !b.contains("found:\"}"), "{b}");
        assert!(others.contains("Momo"), "the memory of another owner stays");
        assert_eq!((steps.matches("Momo").count(), hits), (1, 0), "{steps}");
    }

    #[tokio::test]
    async fn the_words_of_a_memory_are_kept_only_for_turns_that_may_know_it() {
        let (_folder, store) = Store::temporary();
        let cat = entry(1, MemoryKind::Fact, "", "The cat is called Momo");
        let work = move |connection: &Connection| -> Result<_, StoreError> {
            let mut found = Vec::new();
            // A parked turn and its last step, or a turn that runs.
            for (step, is_parked) in [(r#"{"text":"the weather"}"#, true), (r#"{"text":"x\nMomo"}"#, true), ("", false)]
            {
                let turn = Uuid::now_v7();
                inbox::insert(connection, &NewInboxRow::sample(turn, &turn.to_string()))?;
                turn_steps::append(connection, turn, "note", step)?;
                inbox::mark_running(connection, inbox::last_seq(connection)?)?;
                if is_parked {
                    inbox::mark_waiting(connection, turn)?;
                }
                redact_running_turns(connection, &MemoryOwner::gateway(), vec![MentionDetector::of_entry(&cat)])?;
                found.push(meta::get(connection, PendingRedactions::KEY)?.unwrap_or_default().contains("momo"));
                // A running turn that is parked later without the memory needs no redaction either.
                inbox::mark_waiting(connection, turn)?;
                connection.execute("DELETE FROM turn_steps WHERE turn = ?", [turn.to_string()])?;
                PendingRedactions::read(connection)?.write(connection)?;
                found.push(!meta::get(connection, PendingRedactions::KEY)?.unwrap_or_default().is_empty());
            }
            Ok(found)
        };
        let found = store.write(Durability::Logged, work).await.unwrap();
        assert_eq!(found, [false, false, true, false, true, false]);
    }
}
