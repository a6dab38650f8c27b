//! From a wish to what is done about it: an answer, or a call of a tool that is offered.

use jiff::civil::Weekday;
use serde_json::{Value, json};

use super::arithmetic;
use super::context::Now;
use super::phrases::{Ability, fill};
use super::reminder;
use super::rules::Intent;
use super::understand::Wish;
use crate::chat::ToolSpec;
use crate::text::Language;

/// Names under which a clock may be offered as a tool.
const CLOCKS: [&str; 4] = ["time", "current_time", "get_time", "get_current_time"];

/// What a search by `exec` begins with; the wording of its result knows it by this.
pub(super) const GREP: &str = "grep -rnI --exclude-dir=.git -e ";
/// What finding files by `exec` begins with.
pub(super) const FIND: &str = "find . ";

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Say(String),
    Call { name: String, arguments: Value },
}

/// The tools that the request offers.
#[derive(Clone, Copy)]
pub(super) struct Tools<'a>(pub &'a [ToolSpec]);

impl Tools<'_> {
    fn spec(&self, name: &str) -> Option<&ToolSpec> {
        self.0.iter().find(|spec| spec.name == name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.spec(name).is_some()
    }

    /// Calls the first of `names` that is offered; says plainly which is lacking when none is.
    pub fn call(&self, language: Language, names: &[&str], arguments: impl Fn(&str) -> Value) -> Step {
        match names.iter().find(|name| self.has(name)) {
            Some(name) => Step::Call { name: (*name).to_owned(), arguments: arguments(name) },
            None => Step::Say(fill(language.phrases().no_tool, &[("tool", names.first().unwrap_or(&""))])),
        }
    }

    /// The argument's JSON type in the tool's schema; of several, the first that is not null.
    pub fn argument_type(&self, tool: &str, argument: &str) -> Option<&str> {
        match self.argument(tool, argument)?.get("type")? {
            Value::String(name) => Some(name),
            Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            _ => None,
        }
    }

    /// An id in the type that the tool's schema asks for.
    pub fn id(&self, tool: &str, argument: &str, id: &str) -> Value {
        match (self.argument_type(tool, argument), id.parse::<u64>()) {
            (Some("integer" | "number"), Ok(number)) => json!(number),
            _ => json!(id),
        }
    }

    fn argument(&self, tool: &str, argument: &str) -> Option<&Value> {
        self.spec(tool)?.parameters.get("properties")?.get(argument)
    }
}

/// What is done about one wish.
pub(super) fn plan(wish: &Wish, tools: Tools<'_>, now: Option<&Now>) -> Step {
    let phrases = wish.language.phrases();
    let path = wish.slots.path.as_deref().unwrap_or(".");
    let text = wish.slots.text.as_deref().unwrap_or_default();
    let call = |names: &[&str], arguments: Value| tools.call(wish.language, names, |_| arguments.clone());
    let say = |text: &str| Step::Say(text.to_owned());
    match wish.intent {
        Intent::Greeting => introduce(phrases.greeting, wish.language, tools),
        Intent::WhoAreYou => introduce(phrases.who, wish.language, tools),
        Intent::Unknown => introduce(phrases.unknown, wish.language, tools),
        Intent::Help => help(wish.language, tools),
        Intent::Connect => say(phrases.connect),
        Intent::Thanks => say(phrases.thanks),
        Intent::Goodbye => say(phrases.goodbye),
        Intent::NeverMind => say(phrases.never_mind),
        Intent::Time => clock(phrases.time, wish.language, tools, now),
        Intent::Date => clock(phrases.date, wish.language, tools, now),
        Intent::Calculate => sum(wish.language, text),
        Intent::ListReminders => call(&[reminder::CRON], json!({ "action": "list" })),
        Intent::CancelReminder => reminder::remove(wish, tools),
        Intent::Remind => reminder::add(wish, tools, now),
        Intent::RemindUnclear => reminder::tell_unclear(wish),
        Intent::RemindWhen => reminder::ask_when(wish),
        Intent::Message => call(&["message"], json!({ "content": text })),
        Intent::Run => call(&["exec"], json!({ "command": text })),
        Intent::Fetch => call(&["web_fetch"], json!({ "url": path })),
        Intent::WebSearch => call(&["web_search"], json!({ "query": text })),
        Intent::WriteFile => call(&["write_file"], json!({ "path": path, "content": text })),
        Intent::WriteWhat => Step::Say(fill(phrases.write_what, &[("path", path)])),
        Intent::ReadFile => call(&["read_file"], json!({ "path": path })),
        Intent::ListFiles => call(&["list_dir"], json!({ "path": path })),
        Intent::FindFiles => find_files(wish.language, tools, path),
        Intent::Search => search(wish.language, tools, text, path),
        Intent::Recall | Intent::ForgetWhich => call(&["recall"], json!({ "query": text })),
        Intent::RecallWhat => call(&["recall"], json!({ "query": "" })),
        Intent::Forget => call(&["forget"], json!({ "id": tools.id("forget", "id", text) })),
        Intent::Remember => call(&["remember"], json!({ "content": text })),
    }
}

fn introduce(template: &str, language: Language, tools: Tools<'_>) -> Step {
    let phrases = language.phrases();
    let can: Vec<&str> = abilities(language, tools).map(|ability| ability.short).collect();
    Step::Say(fill(template, &[("can", &can.join(phrases.comma)), ("connect", phrases.connect)]))
}

fn help(language: Language, tools: Tools<'_>) -> Step {
    let phrases = language.phrases();
    let line = |ability: &Ability| fill(phrases.example, &[("short", ability.short), ("examples", ability.examples)]);
    let examples: Vec<String> = abilities(language, tools).map(line).collect();
    Step::Say(fill(phrases.help, &[("examples", &examples.join("\n")), ("connect", phrases.connect)]))
}

/// What it can do with the tools that there are.
fn abilities<'a>(language: Language, tools: Tools<'a>) -> impl Iterator<Item = &'static Ability> + 'a {
    let offered = move |needed: &[&str]| needed.is_empty() || needed.iter().any(|name| tools.has(name));
    language.phrases().abilities.iter().filter(move |ability| offered(ability.tools))
}

/// The time: by a tool made for it, else as the message's context tells it, else by `date`.
fn clock(template: &str, language: Language, tools: Tools<'_>, now: Option<&Now>) -> Step {
    let phrases = language.phrases();
    if let Some(name) = CLOCKS.into_iter().find(|name| tools.has(name)) {
        return Step::Call { name: name.to_owned(), arguments: json!({}) };
    }
    match now {
        Some(now) => {
            let time = now.at.strftime("%H:%M").to_string();
            let date = now.at.strftime("%Y-%m-%d").to_string();
            let weekday = weekday(phrases.weekdays, now.at.weekday());
            let values = [("time", time.as_str()), ("date", &date), ("weekday", weekday), ("zone", &now.zone)];
            Step::Say(fill(template, &values))
        }
        None if tools.has("exec") => tools.call(language, &["exec"], |_| json!({ "command": "date" })),
        None => Step::Say(phrases.no_clock.to_owned()),
    }
}

fn weekday(names: [&'static str; 7], day: Weekday) -> &'static str {
    let index = usize::try_from(day.to_monday_zero_offset()).unwrap_or_default();
    names.get(index).copied().unwrap_or_default()
}

fn sum(language: Language, text: &str) -> Step {
    let phrases = language.phrases();
    let sum = text.trim_end_matches(['=', '?', '？', '＝', ' ']);
    match arithmetic::evaluate(text).filter(|value| value.is_finite()) {
        Some(value) => Step::Say(fill(phrases.sum, &[("sum", sum), ("value", &arithmetic::write(value))])),
        None => Step::Say(fill(phrases.no_value, &[("sum", sum)])),
    }
}

/// Searches with `grep`, or with the command of that name: finding nothing is then no error.
fn search(language: Language, tools: Tools<'_>, word: &str, path: &str) -> Step {
    tools.call(language, &["grep", "exec"], |tool| match tool {
        "grep" if path == "." => json!({ "pattern": literally(word) }),
        "grep" => json!({ "pattern": literally(word), "path": path }),
        _ => json!({ "command": format!("{GREP}{} -F -- {} || [ $? -eq 1 ]", quoted(word), quoted(path)) }),
    })
}

fn find_files(language: Language, tools: Tools<'_>, pattern: &str) -> Step {
    let anywhere = !pattern.contains('/');
    tools.call(language, &["glob", "exec"], |tool| match tool {
        "glob" if anywhere => json!({ "pattern": format!("**/{pattern}") }),
        "glob" => json!({ "pattern": pattern }),
        _ if anywhere => json!({ "command": format!("{FIND}-name {}", quoted(pattern)) }),
        _ => json!({ "command": format!("{FIND}-path {}", quoted(&format!("./{pattern}"))) }),
    })
}

/// A regular expression that matches just these words.
fn literally(word: &str) -> String {
    let mut pattern = String::with_capacity(word.len());
    for c in word.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// One word for a POSIX shell (POSIX.1-2024, Shell Command Language, 2.2.2): between single quotes nothing is special.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("it's; rm -rf $HOME `x`"), r"'it'\''s; rm -rf $HOME `x`'");
        assert_eq!(literally("a.b(c)"), r"a\.b\(c\)");
    }
}
