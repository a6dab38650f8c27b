//! Parses and checks a model's answer: a summary, and memories.

use serde_json::{Value, json};

use super::evidence::{self, Evidence, RejectReason};
use super::part::ConversationPart;
use super::transcript::{LineAuthor, TranscriptLine};
use crate::chat::ToolSpec;
use crate::llm::ChatResponse;
use crate::memory::{MemoryKind, MemoryOrigin, MemoryOwner, MemorySource, NewMemoryEntry};
use crate::text::{one_line, think};

/// The tool that the model answers with.
const SAVE: &str = "save_memory";

/// The longest summary, in characters.
pub(super) const SUMMARY_CHARS: usize = 4_000;
/// The maximum number of memories of each kind in one answer, and the longest of each, in characters.
const FACTS: usize = 30;
const PREFERENCES: usize = 20;
const CASES: usize = 5;
const FACT_CHARS: usize = 300;
const CASE_CHARS: usize = 1_000;
const NAME_CHARS: usize = 80;
const TAGS: usize = 8;
/// The confidence of a memory if the model gives none.
const CONFIDENCE: f64 = 0.7;
/// A message with fewer characters, such as "yes", may answer the agent's question before it.
const SHORT_CHARS: usize = 40;

/// The usable content of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SummaryAnswer {
    pub summary: String,
    pub entries: Vec<ExtractedMemory>,
}

/// A memory that the model extracted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExtractedMemory {
    pub entry: NewMemoryEntry,
    /// The id of the known fact that it replaces.
    pub replaces: Option<i64>,
}

/// The reason why an answer is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnusableAnswer {
    #[error("the model wrote no summary")]
    Empty,
    #[error("the model's arguments of {SAVE} cannot be read")]
    Unreadable,
    #[error("the model's summary is as long as what it tells")]
    Repeated,
}

/// Returns the definition of the tool.
pub(super) fn spec() -> ToolSpec {
    let message = json!({"type": "integer", "description": "the number of the message that says it"});
    let text = |description: &str| json!({"type": "string", "description": description});
    ToolSpec {
        name: SAVE.to_owned(),
        description: "Saves the summary of the conversation, and what is worth remembering of it.".to_owned(),
        parameters: json!({
            "type": "object",
            "required": ["summary"],
            "properties": {
                "summary": text("the whole summary: what the summary so far says, with what is new"),
                "facts": {"type": "array", "items": {
                    "type": "object",
                    "required": ["text", "message"],
                    "properties": {
                        "text": text("one sentence that can be understood alone"),
                        "message": message,
                        "replaces": {"type": "integer", "description": "the number of the known fact that is no longer true"},
                        "confidence": {"type": "number", "description": "0 to 1: how surely it was said"},
                    },
                }},
                "preferences": {"type": "array", "items": {
                    "type": "object",
                    "required": ["key", "value", "message"],
                    "properties": {"key": text("such as language"), "value": text("such as Chinese"), "message": message},
                }},
                "cases": {"type": "array", "items": {
                    "type": "object",
                    "required": ["title", "problem", "solution", "message"],
                    "properties": {
                        "title": text("a few words"),
                        "problem": text("what was wrong"),
                        "solution": text("what solved it"),
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "message": message,
                    },
                }},
            },
        }),
    }
}

/// Reads a model's answer about `part`. If the model calls no tool, its text is the summary.
///
/// # Errors
/// The answer is unusable.
pub(super) fn read(response: &ChatResponse, part: &ConversationPart) -> Result<SummaryAnswer, UnusableAnswer> {
    let call = response.tool_calls.iter().find(|call| call.name.eq_ignore_ascii_case(SAVE));
    let arguments = match call {
        Some(call) => object(&call.arguments).ok_or(UnusableAnswer::Unreadable)?,
        None => {
            let text = think::strip(&response.text);
            // Some models write the call as text.
            object(&text).filter(|value| value["summary"].is_string()).unwrap_or_else(|| json!({"summary": text}))
        }
    };
    let summary = tidy(arguments["summary"].as_str().unwrap_or_default(), SUMMARY_CHARS);
    let length = |text: &str| text.chars().count();
    let length_of_part = part.lines.iter().map(|line| length(&line.text)).sum::<usize>() + length(&part.before);
    if summary.is_empty() {
        return Err(UnusableAnswer::Empty);
    }
    if call.is_none() && length_of_part > 1_000 && length(&summary) * 4 > length_of_part * 3 {
        return Err(UnusableAnswer::Repeated);
    }
    let list = |key: &str, most: usize| {
        arguments[key].as_array().map(Vec::as_slice).unwrap_or_default().iter().take(most).cloned().collect::<Vec<_>>()
    };
    let mut entries = Vec::new();
    type EntryReader = fn(&Value, &ConversationPart) -> Option<Result<ExtractedMemory, RejectReason>>;
    let kinds: [(&str, usize, EntryReader); 3] =
        [("facts", FACTS, fact), ("preferences", PREFERENCES, preference), ("cases", CASES, case)];
    for (kind, most, read) in kinds {
        for value in list(kind, most) {
            match read(&value, part) {
                Some(Ok(noticed)) => entries.push(noticed),
                Some(Err(reason)) => {
                    let (session, message) = (&part.task.session, value["message"].to_string());
                    tracing::info!(session, kind, message, %reason, "an extracted memory is rejected");
                }
                None => {
                    tracing::info!(session = part.task.session, kind, "an extracted memory cannot be parsed");
                }
            }
        }
    }
    Ok(SummaryAnswer { summary, entries })
}

fn fact(value: &Value, part: &ConversationPart) -> Option<Result<ExtractedMemory, RejectReason>> {
    let text = line(value.as_str().or_else(|| value["text"].as_str())?, FACT_CHARS);
    let confidence = value["confidence"].as_f64().filter(|c| (0.0..=1.0).contains(c)).unwrap_or(CONFIDENCE);
    let speaker = find_speaker(&text, &value["message"], part);
    Some(speaker.map(|speaker| {
        let entry = NewMemoryEntry { confidence, ..entry_of(speaker, MemoryKind::Fact, text) };
        let mut others = part.known.iter().filter(|known| known.owner == entry.owner && known.text != entry.text);
        // In a tainted conversation, foreign content may have told the model to replace a true fact.
        let replaced = number(&value["replaces"]).filter(|_| !part.is_tainted);
        let replaces = replaced.filter(|id| others.any(|known| known.id == *id));
        ExtractedMemory { entry, replaces }
    }))
}

fn preference(value: &Value, part: &ConversationPart) -> Option<Result<ExtractedMemory, RejectReason>> {
    let (key, text) = (line(value["key"].as_str()?, NAME_CHARS), line(value["value"].as_str()?, FACT_CHARS));
    if key.is_empty() || text.is_empty() {
        return None;
    }
    let speaker = find_speaker(&format!("{key} {text}"), &value["message"], part);
    let new_entry = |speaker| NewMemoryEntry { name: key, ..entry_of(speaker, MemoryKind::Preference, text) };
    Some(speaker.map(|speaker| ExtractedMemory { entry: new_entry(speaker), replaces: None }))
}

fn case(value: &Value, part: &ConversationPart) -> Option<Result<ExtractedMemory, RejectReason>> {
    let of = |key: &str, chars| Some(line(value[key].as_str()?, chars)).filter(|text: &String| !text.is_empty());
    let (title, problem, solution) =
        (of("title", NAME_CHARS)?, of("problem", CASE_CHARS)?, of("solution", CASE_CHARS)?);
    if part.is_tainted {
        return Some(Err(RejectReason::ForeignCase));
    }
    let speaker = find_speaker(&format!("{title} {problem}"), &value["message"], part);
    let tags = value["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tags: Vec<_> = tags.iter().filter_map(Value::as_str).take(TAGS).map(|tag| line(tag, NAME_CHARS)).collect();
    let detail = json!({"problem": problem, "solution": solution, "tags": tags});
    let text = format!("{problem}\n{solution}");
    let new_entry = |speaker| NewMemoryEntry { name: title, detail, ..entry_of(speaker, MemoryKind::Case, text) };
    Some(speaker.map(|speaker| ExtractedMemory { entry: new_entry(speaker), replaces: None }))
}

/// Creates an entry without a name, with the owner and the source of a speaker's message.
fn entry_of((owner, source): (MemoryOwner, MemorySource), kind: MemoryKind, text: String) -> NewMemoryEntry {
    let entry = NewMemoryEntry::new(owner, kind, text, MemoryOrigin::Noticed);
    NewMemoryEntry { source: Some(source), confidence: CONFIDENCE, ..entry }
}

/// Returns the owner and the source of the message that states `text`. Only statements of a person who has a memory are
/// accepted.
fn find_speaker(
    text: &str,
    number: &Value,
    part: &ConversationPart,
) -> Result<(MemoryOwner, MemorySource), RejectReason> {
    let place = self::number(number).and_then(|number| usize::try_from(number.checked_sub(1)?).ok());
    let named = place.map_or(Err(RejectReason::NoMessage), |place| check_message(text, place, part, true));
    // With several people, the answer must name the message. With one person, a search can find it.
    let found = |why: RejectReason| {
        let candidates = (0..part.lines.len()).filter(|_| !part.ownership.is_shared);
        let best = candidates.max_by_key(|place| match &part.lines[*place].author {
            LineAuthor::Person { .. } => evidence::overlap(text, &part.lines[*place].text),
            _ => 0,
        });
        best.map_or(Err(why), |best| check_message(text, best, part, false).map_err(|_| why))
    };
    let (owner, at) = named.or_else(found)?;
    let source = MemorySource { session: part.task.session.clone(), seq: Some(at.seq), turn: Some(at.turn.clone()) };
    Ok((owner, source))
}

/// Checks that the message at `place` states `text`. `is_named` means that the model named this message.
fn check_message<'a>(
    text: &str,
    place: usize,
    part: &'a ConversationPart,
    is_named: bool,
) -> Result<(MemoryOwner, &'a TranscriptLine), RejectReason> {
    let line = part.lines.get(place).ok_or(RejectReason::NoMessage)?;
    let LineAuthor::Person { owner: Some(owner), recalled, name } = &line.author else {
        return Err(RejectReason::NoOwner);
    };
    let mut evidence = Evidence { statement: line.text.clone(), asked: String::new(), found: recalled.clone() };
    let mut turns = vec![line.turn.as_str()];
    if line.text.chars().count() < SHORT_CHARS
        && let Some(before) =
            part.lines[..place].iter().rev().find(|line| !matches!(line.author, LineAuthor::Tool { .. }))
        && before.author == LineAuthor::Agent
    {
        evidence::question(&before.text).clone_into(&mut evidence.asked);
        turns.push(&before.turn);
    }
    for other in part.lines.iter().filter(|other| turns.contains(&other.turn.as_str())) {
        if let LineAuthor::Tool { found, .. } = &other.author {
            evidence.found.push('\n');
            evidence.found.push_str(found);
        }
    }
    if part.is_tainted && !evidence.states_each_word_of(text, name) {
        return Err(RejectReason::NotVerbatim);
    }
    if evidence.supports(text) {
        return Ok((owner.clone(), line));
    }
    // Words in different scripts cannot be compared. Then the named message is enough, if no other source could have stated the
    // text.
    if !is_named || !evidence::is_other_script(text, &line.text) || is_recalled(text, &evidence.found) {
        return Err(RejectReason::NotSaid);
    }
    let outside = part.lines.iter().filter_map(|other| match &other.author {
        LineAuthor::Tool { is_recalled: false, found } => Some(found.as_str()),
        LineAuthor::Person { owner: of, .. } if of.as_ref() != Some(owner) => Some(other.text.as_str()),
        _ => None,
    });
    let is_alone = outside.into_iter().all(|outside| !evidence::may_come_from(text, outside));
    if is_alone { Ok((owner.clone(), line)) } else { Err(RejectReason::Unsure) }
}

/// Returns true if `found`, which holds tool results and recalled memories, mentions `text`.
fn is_recalled(text: &str, found: &str) -> bool {
    evidence::overlap(text, found) > 0
}

/// Reads an integer, which some models write as text.
fn number(value: &Value) -> Option<i64> {
    let text = value.as_str().map(|text| text.trim_matches(|c: char| !c.is_ascii_digit()));
    value.as_i64().or_else(|| text?.parse().ok())
}

/// Finds the JSON object in a text, which may be surrounded by words or a fence.
fn object(text: &str) -> Option<Value> {
    let whole = serde_json::from_str::<Value>(text.trim()).ok();
    let inner = || serde_json::from_str::<Value>(text.get(text.find('{')?..=text.rfind('}')?)?).ok();
    whole.or_else(inner).filter(Value::is_object)
}

/// Removes headings and breaks, which the prompt uses itself, and cuts the text at the end of a sentence.
fn tidy(text: &str, chars: usize) -> String {
    let is_break = |line: &str| line.chars().all(|c| matches!(c, '-' | '=' | '*' | ' ')) && !line.is_empty();
    let lines = text.trim().lines().map(|line| line.trim_end().trim_start_matches('#').trim_start());
    let mut text = lines.filter(|line| !is_break(line)).collect::<Vec<_>>().join("\n");
    if let Some((end, _)) = text.char_indices().nth(chars) {
        let sentence = text[..end].rfind(['.', '。', '!', '！', '?', '？', '\n']).filter(|at| *at > end / 2);
        let end = sentence.map_or(end, |at| text[at..].chars().next().map_or(at, |c| at + c.len_utf8()));
        text.truncate(end);
    }
    text.truncate(text.trim_end().len());
    text
}

fn line(text: &str, chars: usize) -> String {
    one_line(text).chars().take(chars).collect()
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
