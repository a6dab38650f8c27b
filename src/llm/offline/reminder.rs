//! A reminder as a call of the `cron` tool.

use serde_json::{Map, Value, json};

use super::context::Now;
use super::phrases::fill;
use super::plan::{Step, Tools};
use super::understand::{Language, Wish};
use super::when::Due;

const CRON: &str = "cron";

/// The reminder that the wish asks for.
pub(super) fn add(wish: &Wish, tools: Tools<'_>, now: Option<&Now>) -> Step {
    let phrases = wish.language.phrases();
    let text = wish.slots.text.as_deref().unwrap_or(phrases.nothing_named);
    let Some(when) = wish.slots.when else {
        return ask_when(wish);
    };
    let due = match when.due(now) {
        None => return Step::Say(phrases.no_clock.to_owned()),
        Some(Due::Past) => return Step::Say(phrases.past.to_owned()),
        Some(due) => due,
    };
    let mut arguments = Map::new();
    arguments.insert("action".to_owned(), json!("add"));
    let prompt = fill(phrases.due_prompt, &[("text", text)]);
    arguments.insert(tools.key(CRON, &["prompt", "message", "content", "text"]), json!(prompt));
    match due {
        Due::At(at) => {
            let stamp = now.map_or_else(|| at.to_string(), |now| now.stamp(at));
            arguments.insert(tools.key(CRON, &["at", "at_time", "when"]), json!(stamp));
        }
        Due::Every(seconds) => {
            let key = tools.key(CRON, &["every", "every_seconds", "interval"]);
            let is_number = tools.argument_type(CRON, &key) == Some("integer") || key == "every_seconds";
            arguments.insert(key, if is_number { json!(seconds) } else { json!(format!("{seconds}s")) });
        }
        Due::Cron(expression) => {
            arguments.insert(tools.key(CRON, &["cron", "cron_expr", "expression", "expr"]), json!(expression));
            if let Some(now) = now.filter(|now| now.has_named_zone()) {
                arguments.insert(tools.key(CRON, &["tz", "timezone"]), json!(now.zone));
            }
        }
        Due::Past => {}
    }
    if tools.takes(CRON, "name") {
        arguments.insert("name".to_owned(), json!(text.chars().take(30).collect::<String>()));
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

/// Takes a reminder away.
pub(super) fn remove(wish: &Wish, tools: Tools<'_>) -> Step {
    let id = wish.slots.text.as_deref().unwrap_or_default();
    let key = tools.key(CRON, &["id", "job_id", "job"]);
    let id = tools.id(CRON, &key, id);
    tools.call(wish.language, &[CRON], |_| json!({ "action": "remove", key.as_str(): id }))
}
