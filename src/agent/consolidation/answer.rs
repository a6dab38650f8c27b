//! What a model writes of a part of a conversation, read and checked: a summary, and what is worth remembering.

use serde_json::{Value, json};

use super::grounds::{self, Dropped, Ground};
use super::part::Part;
use super::transcript::{Line, Who};
use crate::agent::think;
use crate::chat::ToolSpec;
use crate::llm::ChatResponse;
use crate::memory::{MemoryKind, MemoryOrigin, MemorySource, NewMemoryEntry, Owner};
use crate::text::one_line;

/// The tool that the model answers with.
pub(super) const SAVE: &str = "save_memory";

/// The longest summary that is kept, in characters.
pub(super) const SUMMARY_CHARS: usize = 4_000;
/// Of what is remembered, how much of each kind at once, and how long one may be, in characters.
const FACTS: usize = 30;
const PREFERENCES: usize = 20;
const CASES: usize = 5;
const FACT_CHARS: usize = 300;
const CASE_CHARS: usize = 1_000;
const NAME_CHARS: usize = 80;
const TAGS: usize = 8;
/// How sure what was noticed is, where the model does not say.
const CONFIDENCE: f64 = 0.7;
/// Said in so few words, in characters, what the agent asked before it belongs to it: yes.
const SHORT: usize = 40;

/// What is kept of a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub summary: String,
    pub entries: Vec<Noticed>,
}

/// Something worth remembering.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Noticed {
    pub entry: NewMemoryEntry,
    /// What is known and no longer true.
    pub replaces: Option<i64>,
}

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Nonsense {
    #[error("the model wrote no summary")]
    Empty,
    #[error("the model's arguments of {SAVE} cannot be read")]
    Unreadable,
    #[error("the model's summary is as long as what it tells")]
    Repeated,
}

/// The tool as the model is told of it.
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

/// Reads a model's answer about `part`. Of a model that calls no tool the text is the summary.
///
/// # Errors
/// It is no summary.
pub(super) fn read(response: &ChatResponse, part: &Part) -> Result<Answer, Nonsense> {
    let call = response.tool_calls.iter().find(|call| call.name.eq_ignore_ascii_case(SAVE));
    let arguments = match call {
        Some(call) => object(&call.arguments).ok_or(Nonsense::Unreadable)?,
        None => {
            let text = think::strip(&response.text);
            // Some models write the call as text.
            object(&text).filter(|value| value["summary"].is_string()).unwrap_or_else(|| json!({"summary": text}))
        }
    };
    let summary = tidy(arguments["summary"].as_str().unwrap_or_default(), SUMMARY_CHARS);
    let length = |text: &str| text.chars().count();
    let told = part.lines.iter().map(|line| length(&line.text)).sum::<usize>() + length(&part.before);
    if summary.is_empty() {
        return Err(Nonsense::Empty);
    }
    if call.is_none() && told > 1_000 && length(&summary) * 4 > told * 3 {
        return Err(Nonsense::Repeated);
    }
    let list = |key: &str, most: usize| {
        arguments[key].as_array().map(Vec::as_slice).unwrap_or_default().iter().take(most).cloned().collect::<Vec<_>>()
    };
    let mut entries = Vec::new();
    type Read = fn(&Value, &Part) -> Option<Result<Noticed, Dropped>>;
    let kinds: [(&str, usize, Read); 3] =
        [("facts", FACTS, fact), ("preferences", PREFERENCES, preference), ("cases", CASES, case)];
    for (kind, most, read) in kinds {
        for value in list(kind, most) {
            match read(&value, part) {
                Some(Ok(noticed)) => entries.push(noticed),
                Some(Err(reason)) => {
                    let (session, message) = (&part.task.session, value["message"].to_string());
                    tracing::info!(session, kind, message, %reason, "something that the model noticed is not remembered");
                }
                None => {
                    tracing::info!(
                        session = part.task.session,
                        kind,
                        "something that the model noticed cannot be read"
                    );
                }
            }
        }
    }
    Ok(Answer { summary, entries })
}

fn fact(value: &Value, part: &Part) -> Option<Result<Noticed, Dropped>> {
    let text = line(value.as_str().or_else(|| value["text"].as_str())?, FACT_CHARS);
    Some(told_by(&text, &value["message"], part).map(|(owner, source)| known_fact(value, text, (owner, source), part)))
}

fn known_fact(value: &Value, text: String, (owner, source): (Owner, MemorySource), part: &Part) -> Noticed {
    let confidence = value["confidence"].as_f64().filter(|c| (0.0..=1.0).contains(c)).unwrap_or(CONFIDENCE);
    let replaces = number(&value["replaces"])
        .filter(|id| part.known.iter().any(|known| known.id == *id && known.owner == owner && known.text != text));
    let entry = entry(owner, MemoryKind::Fact, String::new(), text, (json!({}), source, confidence));
    Noticed { entry, replaces }
}

fn preference(value: &Value, part: &Part) -> Option<Result<Noticed, Dropped>> {
    let (key, text) = (line(value["key"].as_str()?, NAME_CHARS), line(value["value"].as_str()?, FACT_CHARS));
    if key.is_empty() || text.is_empty() {
        return None;
    }
    let told = told_by(&format!("{key} {text}"), &value["message"], part);
    let made = |(owner, source)| entry(owner, MemoryKind::Preference, key, text, (json!({}), source, CONFIDENCE));
    Some(told.map(|told| Noticed { entry: made(told), replaces: None }))
}

fn case(value: &Value, part: &Part) -> Option<Result<Noticed, Dropped>> {
    let of = |key: &str, chars| Some(line(value[key].as_str()?, chars)).filter(|text: &String| !text.is_empty());
    let (title, problem, solution) =
        (of("title", NAME_CHARS)?, of("problem", CASE_CHARS)?, of("solution", CASE_CHARS)?);
    let told = told_by(&format!("{title} {problem}"), &value["message"], part);
    let tags = value["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tags: Vec<_> = tags.iter().filter_map(Value::as_str).take(TAGS).map(|tag| line(tag, NAME_CHARS)).collect();
    let detail = json!({"problem": problem, "solution": solution, "tags": tags});
    let text = format!("{problem}\n{solution}");
    let made = |(owner, source)| entry(owner, MemoryKind::Case, title, text, (detail, source, CONFIDENCE));
    Some(told.map(|told| Noticed { entry: made(told), replaces: None }))
}

fn entry(
    owner: Owner,
    kind: MemoryKind,
    name: String,
    text: String,
    (detail, source, confidence): (Value, MemorySource, f64),
) -> NewMemoryEntry {
    NewMemoryEntry { owner, kind, name, text, detail, origin: MemoryOrigin::Noticed, source: Some(source), confidence }
}

/// Who told it, and where. What nobody said who has a memory, is nothing to be remembered, whoever claims it.
fn told_by(text: &str, number: &Value, part: &Part) -> Result<(Owner, MemorySource), Dropped> {
    let place = self::number(number).and_then(|number| usize::try_from(number - 1).ok());
    let named = place.map_or(Err(Dropped::NoMessage), |place| told_in(text, place, part, true));
    // With several people it must be said whose words they are; of one it can be found.
    let found = |why: Dropped| {
        let places = (0..part.lines.len()).filter(|_| !part.ownership.is_shared);
        let best = places.max_by_key(|place| match &part.lines[*place].who {
            Who::Person { .. } => grounds::overlap(text, &part.lines[*place].text),
            _ => 0,
        });
        best.map_or(Err(why), |best| told_in(text, best, part, false).map_err(|_| why))
    };
    let (owner, at) = named.or_else(found)?;
    let source = MemorySource { session: part.task.session.clone(), seq: Some(at.seq), turn: Some(at.turn.clone()) };
    Ok((owner, source))
}

/// `is_named`: the model itself says that it stands there.
fn told_in<'a>(text: &str, place: usize, part: &'a Part, is_named: bool) -> Result<(Owner, &'a Line), Dropped> {
    let line = part.lines.get(place).ok_or(Dropped::NoMessage)?;
    let Who::Person { owner: Some(owner), recalled, .. } = &line.who else { return Err(Dropped::NoOwner) };
    let mut ground = Ground { said: line.text.clone(), asked: String::new(), found: recalled.clone() };
    let mut turns = vec![line.turn.as_str()];
    if line.text.chars().count() < SHORT
        && let Some(before) = part.lines[..place].iter().rev().find(|line| !matches!(line.who, Who::Tool { .. }))
        && before.who == Who::Agent
    {
        grounds::question(&before.text).clone_into(&mut ground.asked);
        turns.push(&before.turn);
    }
    for other in part.lines.iter().filter(|other| turns.contains(&other.turn.as_str())) {
        if let Who::Tool { found, .. } = &other.who {
            ground.found.push('\n');
            ground.found.push_str(found);
        }
    }
    if ground.tells(text) {
        return Ok((owner.clone(), line));
    }
    // Its words cannot be compared: then the message that it names must do, where nothing else could have said it.
    if !is_named || !grounds::is_other_script(text, &line.text) || is_recalled(text, &ground.found) {
        return Err(Dropped::NotSaid);
    }
    let outside = part.lines.iter().filter_map(|other| match &other.who {
        Who::Tool { is_recalled: false, found } => Some(found.as_str()),
        Who::Person { owner: of, .. } if of.as_ref() != Some(owner) => Some(other.text.as_str()),
        _ => None,
    });
    let is_alone = outside.into_iter().all(|outside| !grounds::may_come_from(text, outside));
    if is_alone { Ok((owner.clone(), line)) } else { Err(Dropped::Unsure) }
}

/// Whether what stood there speaks of it already.
fn is_recalled(text: &str, found: &str) -> bool {
    grounds::overlap(text, found) > 0
}

/// A whole number, which some models write as text.
fn number(value: &Value) -> Option<i64> {
    let text = value.as_str().map(|text| text.trim_matches(|c: char| !c.is_ascii_digit()));
    value.as_i64().or_else(|| text?.parse().ok())
}

/// The JSON object in a text, which may stand among words or in a fence.
fn object(text: &str) -> Option<Value> {
    let whole = serde_json::from_str::<Value>(text.trim()).ok();
    let inner = || serde_json::from_str::<Value>(text.get(text.find('{')?..=text.rfind('}')?)?).ok();
    whole.or_else(inner).filter(Value::is_object)
}

/// A text in which no line can be taken for a heading or break of the prompt, cut at the end of a sentence.
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
