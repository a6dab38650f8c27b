//! Reminders as calls of the `cron` tool, and what it answered in words for the user.

use daoyou_channels::settings::Span;
use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use super::context::Now;
use super::phrases::{Phrases, fill};
use super::plan::{Step, Tools};
use super::understand::Wish;
use crate::text::Language;
use crate::text::time_expression::{DueTime, TimeFault};

pub(super) const CRON: &str = "cron";
/// What a reminder is called, in characters of its text.
const NAME_CHARS: usize = 30;

/// The reminder that the wish asks for. It goes out as it stands: no model has to be there when its time comes.
pub(super) fn add(wish: &Wish, tools: Tools<'_>, now: Option<&Now>) -> Step {
    let phrases = wish.language.phrases();
    let text = wish.slots.text.as_deref().unwrap_or(phrases.nothing_named);
    let Some(when) = &wish.slots.when else {
        return ask_when(wish);
    };
    let stamp = |at: DateTime| now.map_or_else(|| at.to_string(), |now| now.stamp(at));
    let times = match when.due(now.map(|now| now.at)) {
        Some(DueTime::At(at)) if now.is_some_and(|now| at <= now.at) => return Step::Say(phrases.past.to_owned()),
        Some(DueTime::At(at)) => vec![("at", stamp(at))],
        // To the second, which the message's own clock does not know.
        Some(DueTime::In(seconds)) => vec![("at", format!("in {}", Span::from_secs(seconds)))],
        Some(DueTime::Every { seconds, first }) => {
            let every = ("every", Span::from_secs(seconds).to_string());
            first.map(|first| ("at", stamp(first))).into_iter().chain([every]).collect()
        }
        Some(DueTime::Cron(expression)) => {
            let zone = now.filter(|now| now.has_zone()).map(|now| ("tz", now.zone.clone()));
            zone.into_iter().chain([("cron_expr", expression)]).collect()
        }
        None if now.is_none() => return Step::Say(phrases.no_clock.to_owned()),
        None => return no_such_date(wish),
    };
    let message = fill(phrases.due, &[("text", text)]);
    let what = [("action", "add"), ("kind", "message"), ("message", &message), ("name", &name(text))];
    let what = what.into_iter().map(|(key, value)| (key, value.to_owned()));
    let arguments: Map<_, _> = what.chain(times).map(|(key, value)| (key.to_owned(), json!(value))).collect();
    tools.call(wish.language, &[CRON], |_| Value::Object(arguments.clone()))
}

/// Says what of the time was understood, and what was not.
pub(super) fn tell_unclear(wish: &Wish) -> Step {
    let Some(wrong) = &wish.slots.unclear else { return ask_when(wish) };
    match wish.language {
        Language::En => say_unclear(wish, &wrong.to_string()),
        Language::Zh => say_unclear(wish, &wrong.chinese()),
    }
}

fn no_such_date(wish: &Wish) -> Step {
    match wish.language {
        Language::En => say_unclear(wish, &TimeFault::NoSuchDate.to_string()),
        Language::Zh => say_unclear(wish, TimeFault::NoSuchDate.chinese()),
    }
}

fn say_unclear(wish: &Wish, wrong: &str) -> Step {
    Step::Say(fill(wish.language.phrases().unclear, &[("wrong", wrong)]))
}

/// Asks for the time that a reminder lacks.
pub(super) fn ask_when(wish: &Wish) -> Step {
    let default = match wish.language {
        Language::En => "stretch",
        Language::Zh => "喝水",
    };
    let text = wish.slots.text.as_deref().unwrap_or(default);
    Step::Say(fill(wish.language.phrases().when, &[("text", text)]))
}

/// Takes a reminder away, by its id or what it says.
pub(super) fn remove(wish: &Wish, tools: Tools<'_>) -> Step {
    let id = name(wish.slots.text.as_deref().unwrap_or_default());
    tools.call(wish.language, &[CRON], |_| json!({ "action": "remove", "job_id": id }))
}

/// What the tool answered, in words.
pub(super) fn tell(arguments: &Value, result: &str, phrases: &Phrases) -> String {
    let argument = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
    let (template, values) = match argument("action") {
        "add" => {
            let repeats = ["every", "cron_expr"].into_iter().any(|key| !argument(key).is_empty());
            let template = if repeats { phrases.cron_repeats } else { phrases.cron_add };
            let prefix = phrases.due.split('{').next().unwrap_or_default();
            let message = argument("message");
            let text = message.strip_prefix(prefix).unwrap_or(message);
            let id = between(result, "(id: ", ")");
            match (id, result.rsplit_once("next: ")) {
                (Some(id), Some((_, time))) => (template, [("text", text), ("time", time.trim()), ("id", id)]),
                _ => (phrases.cron_done, [("text", text), ("time", ""), ("id", "")]),
            }
        }
        "list" if result.starts_with("No scheduled jobs") => (phrases.cron_none, Default::default()),
        "list" => (phrases.cron_list, Default::default()),
        _ => (phrases.cron_remove, [("id", argument("job_id")), ("time", ""), ("text", "")]),
    };
    let values: Vec<_> = values.into_iter().chain([("result", result)]).collect();
    fill(template, &values)
}

fn name(text: &str) -> String {
    text.chars().take(NAME_CHARS).collect::<String>().trim().to_owned()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.rsplit_once(before)?;
    Some(rest.split_once(after)?.0)
}
