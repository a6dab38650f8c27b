//! Reminders as calls of the `cron` tool, and what it answered in words for the user.

use daoyou_channels::settings::Span;
use serde_json::{Map, Value, json};

use super::context::Now;
use super::phrases::{Phrases, fill};
use super::plan::{Step, Tools};
use super::understand::{Language, Wish};
use super::when::Due;

pub(super) const CRON: &str = "cron";
/// What a reminder is called, in characters of its text.
const NAME_CHARS: usize = 30;

/// The reminder that the wish asks for. It goes out as it stands: no model has to be there when its time comes.
pub(super) fn add(wish: &Wish, tools: Tools<'_>, now: Option<&Now>) -> Step {
    let phrases = wish.language.phrases();
    let text = wish.slots.text.as_deref().unwrap_or(phrases.nothing_named);
    let Some(when) = wish.slots.when else {
        return ask_when(wish);
    };
    let (key, value) = match when.due(now) {
        // To the second, which the message's own clock does not know.
        Some(Due::In(seconds)) => ("at", format!("in {}", Span::from_secs(seconds))),
        Some(Due::At(at)) => ("at", now.map_or_else(|| at.to_string(), |now| now.stamp(at))),
        Some(Due::Every(seconds)) => ("every", Span::from_secs(seconds).to_string()),
        Some(Due::Cron(expression)) => ("cron_expr", expression),
        Some(Due::Past) => return Step::Say(phrases.past.to_owned()),
        None => return Step::Say(phrases.no_clock.to_owned()),
    };
    let mut arguments = Map::new();
    if let Some(now) = now.filter(|now| key == "cron_expr" && now.has_named_zone()) {
        arguments.insert("tz".to_owned(), json!(now.zone));
    }
    let message = fill(phrases.due, &[("text", text)]);
    for (key, value) in
        [("action", "add"), ("kind", "message"), ("message", &message), ("name", &name(text)), (key, &value)]
    {
        arguments.insert(key.to_owned(), json!(value));
    }
    tools.call(wish.language, &[CRON], |_| Value::Object(arguments.clone()))
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
            let template = if argument("at").is_empty() { phrases.cron_repeats } else { phrases.cron_add };
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
