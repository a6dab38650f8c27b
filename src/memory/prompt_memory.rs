//! Removes forgotten memories from the turns that used them: from prompts, from the memories attached to messages, and from
//! tool results. These are logged in other conversations than the one in which the memory was stated.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::mentions::{MentionDetector, without_mentions};
use super::message_text::{IS_DATA, found_in_memory, without_memory, written};
use super::remember::remove;
use super::{MemoryEntry, MemoryKind, Owner, word_index};
use crate::chat::ChatMessage;
use crate::store::forgetting::{self, ExposedMessage, FORGOTTEN};
use crate::store::{Connection, StoreError, meta};
use crate::text::{comparison_key, narrow, one_line};

/// A session and one of its turns.
type TurnKey = (String, String);

/// The tolerance for a clock that was set back: a message may seem older than a memory that it used. In milliseconds.
const SLACK: i64 = 86_400_000;
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
    owner: &Owner,
    (entries, telling): (&[&MemoryEntry], Vec<MentionDetector>),
    sources: &BTreeSet<TurnKey>,
) -> Result<BTreeSet<String>, StoreError> {
    let marks = ForgottenMarks { telling, places: places(connection, sources)?, ..ForgottenMarks::of_entries(entries) };
    let since = entries.iter().map(|entry| entry.created_at).min().unwrap_or_default() - SLACK;
    let turns: Vec<&str> = sources.iter().map(|(_, turn)| turn.as_str()).collect();
    let (mut copies, mut struck, mut open) = (BTreeSet::new(), Vec::new(), TurnRows::default());
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
                struck.extend(std::mem::replace(&mut open, TurnRows { place, rows: Vec::new() }).struck(&marks));
            }
            open.rows.push((seq, body));
        },
    )?;
    struck.extend(open.struck(&marks));
    // A forked conversation contains the same turns.
    for (session, turn) in copies.difference(sources) {
        forget_turn(connection, session, turn)?;
    }
    let mut sessions: BTreeSet<String> = copies.into_iter().map(|(session, _)| session).collect();
    for (place, left) in struck {
        strike_turn(connection, (&place.0, &place.1), left)?;
        sessions.insert(place.0);
    }
    Ok(sessions)
}

/// Removes the words of a turn in which a memory was stated, and the task recorded of it. Returns true if the turn had
/// ended.
pub(super) fn forget_turn(connection: &Connection, session: &str, turn: &str) -> Result<bool, StoreError> {
    for task in forgetting::task_memories(connection, session, turn)? {
        remove(connection, task)?;
    }
    // The index entries come first, since their removal may need the words.
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
    fn struck(self, marks: &ForgottenMarks) -> Option<(TurnKey, Vec<(i64, RedactedMessage)>)> {
        if !self.rows.iter().any(|(_, body)| marks.may_be_in(body)) {
            return None;
        }
        let (seqs, bodies): (Vec<i64>, Vec<String>) = self.rows.into_iter().unzip();
        let left = seqs.into_iter().zip(marks.without(&bodies)).filter_map(|(seq, left)| Some((seq, left?)));
        let left: Vec<_> = left.collect();
        (!left.is_empty()).then_some((self.place, left))
    }
}

/// Writes the redacted messages of a turn, and removes what was derived from the originals.
fn strike_turn(
    connection: &Connection,
    (session, turn): (&str, &str),
    left: Vec<(i64, RedactedMessage)>,
) -> Result<(), StoreError> {
    let mut unsaid = Vec::new();
    for (seq, RedactedMessage { body, is_wordless, is_asked }) in left {
        forgetting::replace_body(connection, session, seq, &body)?;
        if is_wordless {
            unsaid.push(seq);
        }
        if is_wordless && is_asked {
            forgetting::replace_inbox_text(connection, turn, FORGOTTEN)?;
        }
    }
    forgetting::forget_steps(connection, turn)?;
    if !unsaid.is_empty() {
        word_index::remove_said(connection, session, &unsaid)?;
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
    is_wordless: bool,
    /// The message is the user's.
    is_asked: bool,
}

/// Redacts the messages that a turn adds to its session at its end, if memories were forgotten while it ran. Returns true if
/// any message changed.
///
/// # Errors
/// The store cannot be read or written.
pub fn redact_ended_turn(connection: &Connection, turn: &str, said: &mut [ChatMessage]) -> Result<bool, StoreError> {
    let mut waiting = PendingRedactions::read(connection)?;
    let telling = waiting.0.iter().filter(|(turns, _)| turns.contains(turn)).flat_map(|(_, telling)| telling.clone());
    let telling: Vec<MentionDetector> = telling.collect();
    waiting.remove(connection, turn)?;
    let marks = ForgottenMarks { telling, ..ForgottenMarks::default() };
    let bodies = said.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let mut is_struck = false;
    for (message, left) in said.iter_mut().zip(marks.without(&bodies)) {
        if let Some(struck) = left.and_then(|left| read(&left.body)) {
            *message = struck;
            is_struck = true;
        }
    }
    Ok(is_struck)
}

/// Redactions of turns that were running when a memory was forgotten: their prompts and outputs may contain it. The store
/// keeps these turns with the detectors of the memory until they end.
#[derive(Default, Deserialize, Serialize)]
struct PendingRedactions(Vec<(BTreeSet<String>, Vec<MentionDetector>)>);

impl PendingRedactions {
    const KEY: &str = "forgetting";

    fn read(connection: &Connection) -> Result<Self, StoreError> {
        let noted = meta::get(connection, Self::KEY)?.filter(|noted| !noted.is_empty());
        Ok(noted.and_then(|noted| serde_json::from_str(&noted).ok()).unwrap_or_default())
    }

    /// Writes the redactions, without turns that have ended.
    fn write(mut self, connection: &Connection) -> Result<(), StoreError> {
        let open = forgetting::running_turns(connection, Owner::everyone().as_str())?;
        for (turns, _) in &mut self.0 {
            turns.retain(|turn| open.contains(turn));
        }
        self.0.retain(|(turns, _)| !turns.is_empty());
        let noted = if self.0.is_empty() { String::new() } else { serde_json::to_string(&self)? };
        meta::set(connection, Self::KEY, &noted)
    }

    fn remove(&mut self, connection: &Connection, turn: &str) -> Result<(), StoreError> {
        let is_known = !self.0.is_empty();
        for (turns, _) in &mut self.0 {
            turns.remove(turn);
        }
        if is_known { std::mem::take(self).write(connection) } else { Ok(()) }
    }
}

/// Schedules the redaction of the running turns of `owner`, and restarts parked turns that have read a forgotten memory.
///
/// # Errors
/// The store cannot be written.
pub(super) fn redact_running_turns(
    connection: &Connection,
    owner: &Owner,
    telling: Vec<MentionDetector>,
) -> Result<(), StoreError> {
    let mut anew = BTreeSet::new();
    forgetting::visit_resting_steps(connection, owner.as_str(), |turn, body| {
        if telling.iter().any(|telling| telling.is_named_in(&body) || telling.is_stated_in(&body)) {
            anew.insert(turn);
        }
    })?;
    anew.iter().try_for_each(|turn| forgetting::restart_turn(connection, turn))?;
    let running = forgetting::running_turns(connection, owner.as_str())?;
    let mut waiting = PendingRedactions::read(connection)?;
    if !running.is_empty() && !telling.is_empty() {
        waiting.0.push((running, telling));
    }
    if waiting.0.is_empty() { Ok(()) } else { waiting.write(connection) }
}

fn read(body: &str) -> Option<ChatMessage> {
    serde_json::from_str(body).ok()
}

/// Returns the labels of forgotten messages in tool results: ` · cli:direct #12 · `.
fn places(connection: &Connection, sources: &BTreeSet<TurnKey>) -> Result<Vec<String>, StoreError> {
    let mut places = Vec::new();
    for (session, turn) in sources {
        let said = forgetting::messages_of_turn(connection, session, turn)?;
        places.extend(said.into_iter().map(|(seq, _)| format!(" · {session} #{seq} · ")));
    }
    Ok(places)
}

/// The marks of lines that show forgotten memories.
#[derive(Default)]
struct ForgottenMarks {
    telling: Vec<MentionDetector>,
    /// The memories as they are shown, as comparison keys.
    shown: Vec<String>,
    /// `- id 12 ·`, the beginning of a memory's line in a tool result.
    ids: Vec<String>,
    /// ` · cli:direct #12 · `, the label of a forgotten message in a tool result.
    places: Vec<String>,
}

impl ForgottenMarks {
    /// Redacts the messages of a turn; `None` for each one that stays as it is.
    fn without(&self, bodies: &[String]) -> Vec<Option<RedactedMessage>> {
        let messages: Vec<Option<ChatMessage>> = bodies.iter().map(|body| read(body)).collect();
        let given = |message: &ChatMessage| self.without_given(message);
        // A turn that found a memory also writes about it.
        let was_found = messages.iter().flatten().any(|message| given(message).is_some());
        let mut question = String::new();
        let left = bodies.iter().zip(&messages).map(|(body, message)| {
            let message = message.as_ref()?;
            let is_asked = matches!(message, ChatMessage::User { .. });
            if let ChatMessage::User { content, .. } = message {
                written(content).clone_into(&mut question);
            }
            let is_wordless = self.is_told(message, &question, was_found);
            let body = match given(message) {
                Some(message) if !is_wordless => serde_json::to_string(&message).ok()?,
                None if !is_wordless => return None,
                _ => forgetting::without_words(body),
            };
            Some(RedactedMessage { body, is_wordless, is_asked })
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
            telling: Vec::new(),
            shown: entries.iter().map(shown).filter(|shown| !shown.is_empty()).collect(),
            ids: entries.iter().map(|entry| format!("{BULLET}id {} ·", entry.id)).collect(),
            places: Vec::new(),
        }
    }

    /// Returns true if a text may contain a mark. This check is cheaper than parsing the text.
    fn may_be_in(&self, text: &str) -> bool {
        let narrow = narrow(text).to_lowercase();
        self.telling.iter().any(|telling| telling.may_be_in(&narrow))
            || self.ids.iter().chain(&self.places).any(|mark| text.contains(mark.as_str()))
            || self.telling.len() < self.shown.len()
    }

    /// Removes the lines that show a memory from a message or a tool result; `None` if there is none.
    fn without_given(&self, message: &ChatMessage) -> Option<ChatMessage> {
        match message {
            ChatMessage::User { content, images } => {
                let left = self.without_lines(found_in_memory(content))?;
                let shown = without_memory(content);
                let content = if left.contains("\n- ") { format!("{shown}{left}") } else { shown.to_owned() };
                Some(ChatMessage::User { content, images: images.clone() })
            }
            ChatMessage::Tool { call_id, name, content } if content.contains(IS_DATA) => {
                let left = self.without_lines(content)?;
                let content = if left.contains("\n- ") { left } else { FORGOTTEN.to_owned() };
                Some(ChatMessage::Tool { call_id: call_id.clone(), name: name.clone(), content })
            }
            _ => None,
        }
    }

    fn without_lines(&self, text: &str) -> Option<String> {
        let left: Vec<&str> = text.split('\n').filter(|line| !self.is_line(line)).collect();
        let left = left.join("\n");
        (left.len() < text.len()).then_some(left)
    }

    /// Returns true if a line shows a forgotten memory. The whole line is then removed.
    fn is_line(&self, line: &str) -> bool {
        let Some(text) = line.strip_prefix(BULLET) else { return false };
        let is_marked = self.ids.iter().any(|id| line.starts_with(id.as_str()))
            || self.places.iter().any(|place| line.contains(place.as_str()));
        is_marked || self.is_shown(text) || without_mentions(text, &self.telling).is_some()
    }

    /// Returns true if a text is a memory as it is shown, which may be truncated.
    fn is_shown(&self, text: &str) -> bool {
        let (is_cut, text) = text.strip_suffix('…').map_or((false, text), |text| (true, text));
        let text = comparison_key(text);
        !text.is_empty()
            && self.shown.iter().any(|shown| if is_cut { shown.starts_with(&text) } else { *shown == text })
    }

    /// Returns true if a message of a turn about `question` mentions a forgotten memory: the question, the agent's answer,
    /// reasoning or calls, or the result of a tool that is none of the memory's.
    fn is_told(&self, message: &ChatMessage, question: &str, was_found: bool) -> bool {
        let any = |tells: &dyn Fn(&MentionDetector) -> bool| self.telling.iter().any(tells);
        match message {
            ChatMessage::User { content, .. } => any(&|it| it.is_stated_in(written(content))),
            // Results of the memory tools are redacted line by line.
            ChatMessage::Tool { content, .. } if content.contains(IS_DATA) => false,
            ChatMessage::Tool { content, .. } => any(&|it| it.is_whole_in(content) || it.is_named_in(content)),
            ChatMessage::Assistant { content, reasoning, tool_calls } => {
                let thought = reasoning.as_ref().map_or("", |reasoning| reasoning.text.as_str());
                let called = tool_calls.iter().map(|call| call.arguments.as_str());
                let mut all = [content.as_str(), thought].into_iter().chain(called);
                let tells = |it: &MentionDetector, text: &str| {
                    it.is_disclosed_by(text, question) || (was_found && it.is_answered(text, question))
                };
                all.any(|text| any(&|it| tells(it, text)) || without_mentions(text, &self.telling).is_some())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::memory::{MemoryConfig, MemoryOrigin, MemorySource, NewMemoryEntry, forget, recall, remember};
    use crate::store::{Durability, Store, memories, messages, meta, ownership, turn_steps};

    fn entry(id: i64, kind: MemoryKind, name: &str, text: &str) -> MemoryEntry {
        MemoryEntry {
            id,
            owner: Owner::gateway(),
            kind,
            name: name.to_owned(),
            text: text.to_owned(),
            detail: json!({}),
            origin: MemoryOrigin::Told,
            source: None,
            confidence: 1.0,
            created_at: 0,
            used_at: None,
            uses: 0,
            replaced_by: None,
        }
    }

    #[test]
    fn lines_that_tell_what_is_forgotten() {
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
            let told = Some(entry).filter(|entry| entry.kind != MemoryKind::Summary);
            let marks = ForgottenMarks {
                places: vec![" · cli:direct #7 · ".to_owned()],
                telling: told.into_iter().map(MentionDetector::of_entry).collect(),
                ..ForgottenMarks::of_entries(&[entry])
            };
            assert_eq!(marks.is_line(line), expected, "{line}");
            assert!(!expected || marks.may_be_in(line), "{line}");
        }
    }

    fn turn(connection: &Connection, session: &str, said: &[ChatMessage]) -> Result<Uuid, StoreError> {
        let id = Uuid::now_v7();
        let rows = said.iter().map(|message| (message.role(), serde_json::to_string(message).unwrap()));
        messages::append(connection, session, id, rows)?;
        turn_steps::append(connection, id, "note", &serde_json::to_string(said)?)?;
        Ok(id)
    }

    /// What a request would hold, and the words that lead to something.
    fn left(connection: &Connection, session: &str) -> Result<String, StoreError> {
        let rows = messages::range(connection, session, 0, 99)?;
        Ok(rows.into_iter().map(|row| row.body).collect::<Vec<_>>().join("\n"))
    }

    /// Said in `a`, given in `b` and to another one, and copied. Answers the turn in which it was said.
    fn talk(connection: &Connection) -> Result<Uuid, StoreError> {
        let asked = "what is my cat called?\n\n[Runtime Context]\nCurrent Time: now\n\n[Memory]\nfound:";
        let call = |name: &str| ChatMessage::Assistant {
            content: String::new(),
            reasoning: None,
            tool_calls: vec![crate::chat::ToolCall { id: "1".into(), name: name.into(), arguments: "{}".into() }],
        };
        let found =
            |content: &str| ChatMessage::Tool { call_id: "1".into(), name: "recall".into(), content: content.into() };
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
            ownership::set(connection, session, &ownership::Ownership { owner, is_shared: false })?;
        }
        Ok(source)
    }

    #[tokio::test]
    async fn it_goes_from_all_conversations_in_which_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let work = |connection: &Connection| -> Result<_, StoreError> {
            let source = talk(connection)?;
            let source = MemorySource { session: "a".to_owned(), seq: None, turn: Some(source.to_string()) };
            let new = NewMemoryEntry {
                owner: Owner::gateway(),
                kind: MemoryKind::Fact,
                name: String::new(),
                text: "My cat is called Momo".to_owned(),
                detail: json!({}),
                origin: MemoryOrigin::Told,
                source: Some(source),
                confidence: 0.5,
            };
            let id = remember(connection, &new, &MemoryConfig::default())?.id();
            crate::memory::rebuild_index(connection, &crate::memory::Identities::default())?;
            forget(connection, &[id])?;
            assert!(memories::find(connection, id)?.is_none() && meta::get(connection, meta::FORGETS)?.is_some());
            let steps = "SELECT group_concat(body) FROM turn_steps";
            let steps: String = connection.query_row(steps, [], |row| row.get(0))?;
            let ask = crate::memory::RecallQuery {
                text: "momo".to_owned(),
                owners: vec![Owner::gateway()],
                kinds: vec![MemoryKind::Fact],
                messages: true,
                session: None,
                since: None,
                until: None,
                least: 0.0,
                limit: 9,
            };
            let hits = recall::recall(connection, &ask, None)?.len();
            Ok((["a", "b", "copy", "others"].map(|session| left(connection, session).unwrap()), steps, hits))
        };
        let ([a, b, copy, others], steps, hits) = store.write(Durability::Logged, work).await.unwrap();
        for (text, kept) in
            [(&a, "[forgotten]"), (&b, "- Ann sings"), (&b, "- id 2"), (&b, "I am fine."), (&copy, "hello")]
        {
            assert!(!text.contains("Momo") && text.contains(kept), "{text}");
        }
        assert!(b.contains(r#""content":"[forgotten]""#) && !b.contains("found:\"}"), "{b}");
        assert!(others.contains("Momo"), "what is another one's is his");
        assert_eq!((steps.matches("Momo").count(), hits), (1, 0), "{steps}");
    }
}
