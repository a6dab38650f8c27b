//! What is learned without a model: preferences in what somebody writes, and what a turn came to. Few patterns, and safe ones:
//! what is concluded wrongly has to be forgotten by hand.

use serde_json::{Value, json};

use super::wording::{is_ideograph, narrow_text, one_line, shortened};
use super::{Kind, NewEntry, Origin, Owner, Source};

/// How certain it is what somebody says of himself, and what only stands in what he writes.
const SAID: f64 = 0.7;
const GUESSED: f64 = 0.3;
/// Says so in a preference's detail.
pub(super) const GUESS: &str = "guess";
/// The longest text that is looked through, and the longest value, in characters.
const LOOKED_AT: usize = 4_000;
const VALUE_CHARS: usize = 40;
/// How much of a message and of its answer a task keeps, in characters.
const TASK_CHARS: usize = 200;
/// Tools of a turn that are named.
const TASK_TOOLS: usize = 20;

/// Words of a message that tell the language that somebody programs in.
const LANGUAGES: [(&str, &str); 3] = [("python", "python"), ("javascript", "javascript"), ("js", "javascript")];

/// How a sentence begins that says something of its writer; the key of what it says.
const EN: [(&str, Key); 7] = [
    ("call me ", Key::Of("call_me")),
    ("please call me ", Key::Of("call_me")),
    ("my name is ", Key::Of("name")),
    ("i prefer ", Key::Likes("yes")),
    ("i like ", Key::Likes("yes")),
    ("i don't like ", Key::Likes("no")),
    ("i do not like ", Key::Likes("no")),
];
const ZH: [(&str, Key); 8] = [
    ("请叫我", Key::Of("call_me")),
    ("叫我", Key::Of("call_me")),
    ("我叫", Key::Of("name")),
    ("我的名字是", Key::Of("name")),
    ("我喜欢", Key::Likes("yes")),
    ("我更喜欢", Key::Likes("yes")),
    ("我偏好", Key::Likes("yes")),
    ("我不喜欢", Key::Likes("no")),
];

/// What a pattern's words say.
#[derive(Clone, Copy)]
enum Key {
    /// The words are the value of this.
    Of(&'static str),
    /// The words are what is liked, or not: both may hold of several things, so each is a key of its own.
    Likes(&'static str),
}

/// Words with which no name and no thing begins: what follows is something else.
const NO_THINGS: [&str; 30] = [
    "to", "that", "this", "it", "if", "when", "how", "what", "your", "you", "him", "her", "them", "these", "those",
    "not", "a", "an", "the", "my", "his", "in", "on", "at", "back", "later", "when", "tomorrow", "is", "being",
];
/// Chinese words that make a sentence a question, a condition or somebody else's.
const NO_THINGS_ZH: [&str; 10] = ["什么", "吗", "怎么", "谁", "你", "他", "她", "它", "这", "那"];

/// Preferences that somebody tells in what he writes: key, value, confidence.
pub fn preferences_in(text: &str) -> Vec<(String, String, f64)> {
    let text: String = narrow_text(text.chars().take(LOOKED_AT));
    let mut found: Vec<(String, String, f64)> = Vec::new();
    for sentence in text.split(['.', '!', ';', '\n', '。', ';', ',', '，', '、']) {
        // Whoever asks says nothing of himself.
        let is_question = sentence.contains(['?', '？']);
        let said = if is_question { None } else { said_in(sentence.trim()) };
        if let Some(said) = said.filter(|said| found.iter().all(|(key, _, _)| *key != said.0)) {
            found.push(said);
        }
    }
    let words: Vec<String> =
        text.split(|c: char| !c.is_alphanumeric() && c != '.' && c != '_' && c != '/').map(str::to_lowercase).collect();
    let uses = |word: &str| words.iter().any(|written| ascii_word(written).any(|part| part == word));
    if let Some((_, language)) = LANGUAGES.into_iter().find(|(word, _)| uses(word)) {
        found.push(("preferred_language".to_owned(), language.to_owned(), GUESSED));
    }
    found
}

/// The parts of a word that stand between ideographs; one with a point in it, as `main.js`, is a name and no word.
fn ascii_word(written: &str) -> impl Iterator<Item = &str> {
    let written = written.trim_matches(['.', '/', '_']);
    let is_name = written.contains(['.', '/', '_']);
    written.split(is_ideograph).filter(move |_| !is_name)
}

fn said_in(sentence: &str) -> Option<(String, String, f64)> {
    let lower = sentence.to_lowercase();
    // Lower case of other scripts may be of other length; then nothing is cut out of the text as it was written.
    let rest_of = |start: &str| {
        let rest = lower.strip_prefix(start)?;
        sentence.get(sentence.len().checked_sub(rest.len())?..)
    };
    let en = EN.iter().find_map(|(start, key)| Some((english_thing(rest_of(start)?)?, *key)));
    let zh = || ZH.iter().find_map(|(start, key)| Some((chinese_thing(rest_of(start)?)?, *key)));
    let (thing, key) = en.or_else(zh)?;
    Some(match key {
        Key::Of(name) => (name.to_owned(), thing, SAID),
        Key::Likes(answer) => (format!("likes {}", thing.to_lowercase()), answer.to_owned(), SAID),
    })
}

fn english_thing(rest: &str) -> Option<String> {
    let joined = [" and ", " but ", " because ", " when ", " if ", " over ", " more than ", " to ", " so ", " - "];
    let end = joined.iter().filter_map(|word| rest.find(word)).min().unwrap_or(rest.len());
    let thing = one_line(&rest[..end]);
    let thing = thing.trim_matches(['"', '\'', '“', '”', ':', ' ']);
    let first = thing.split(' ').next().unwrap_or_default().to_lowercase();
    let fits = !thing.is_empty() && thing.chars().count() <= VALUE_CHARS && thing.split(' ').count() <= 4;
    (fits && !NO_THINGS.contains(&first.as_str()) && thing.chars().any(char::is_alphabetic)).then(|| thing.to_owned())
}

fn chinese_thing(rest: &str) -> Option<String> {
    let thing = one_line(rest);
    let thing = thing.trim_matches(['"', '“', '”', '「', '」', ':', '：', ' ', '吧', '了']);
    let count = thing.chars().count();
    let fits = (1..=12).contains(&count) && !NO_THINGS_ZH.iter().any(|word| thing.contains(word));
    fits.then(|| thing.to_owned())
}

/// What is remembered of such preferences.
pub fn as_preferences(text: &str, owner: &Owner, source: &Source) -> Vec<NewEntry> {
    let new = |(name, text, confidence)| NewEntry {
        owner: owner.clone(),
        kind: Kind::Preference,
        name,
        text,
        detail: if confidence > GUESSED { json!({}) } else { json!({ (GUESS): true }) },
        origin: Origin::Noticed,
        source: Some(source.clone()),
        confidence,
    };
    preferences_in(text).into_iter().map(new).collect()
}

/// What a turn came to.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// What was asked.
    pub input: &'a str,
    pub result: &'a str,
    pub success: bool,
    /// `PROVIDER/MODEL`.
    pub agent: &'a str,
}

/// The task to be remembered of a turn that used `tools`; none of one that only talked and went well, or that only worked on
/// the memory itself.
pub fn task_of<'a>(
    done: Done<'_>,
    tools: impl Iterator<Item = &'a str>,
    owner: &Owner,
    source: &Source,
) -> Option<NewEntry> {
    const OWN: [&str; 4] = ["remember", "recall", "forget", "search_history"];
    let mut used: Vec<&str> = Vec::new();
    for tool in tools {
        if used.len() < TASK_TOOLS && !used.contains(&tool) {
            used.push(tool);
        }
    }
    let did_something = used.iter().any(|tool| !OWN.contains(tool));
    let text = shortened(&one_line(done.input), TASK_CHARS);
    if text.is_empty() || (done.success && !did_something) {
        return None;
    }
    let result = shortened(&one_line(done.result), TASK_CHARS);
    let detail: Value = json!({"agent": done.agent, "result": result, "success": done.success, "tools": used});
    Some(NewEntry {
        owner: owner.clone(),
        kind: Kind::Task,
        name: String::new(),
        text,
        detail,
        origin: Origin::Noticed,
        source: Some(source.clone()),
        confidence: 1.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_of_what_somebody_writes() {
        for (text, expected) in [
            ("Write a Python script", &[("preferred_language", "python", GUESSED)][..]),
            ("用python写一个脚本", &[("preferred_language", "python", GUESSED)]),
            ("a JS function, please", &[("preferred_language", "javascript", GUESSED)]),
            ("run main.js and pythonic things", &[]),
            ("Call me Max.", &[("call_me", "Max", SAID)]),
            ("Hello! My name is Ann Lee and I need help", &[("name", "Ann Lee", SAID)]),
            ("call me back", &[]),
            ("call me when it is done", &[]),
            ("I prefer short answers.", &[("likes short answers", "yes", SAID)]),
            ("I don't like Tea", &[("likes tea", "no", SAID)]),
            ("I like to think that it works", &[]),
            ("Do you know that I like tea?", &[]),
            ("I like tea?", &[]),
            ("我叫张三，我喜欢茶。", &[("name", "张三", SAID), ("likes 茶", "yes", SAID)]),
            ("请叫我老王", &[("call_me", "老王", SAID)]),
            ("我喜欢什么", &[]),
            ("我不喜欢香菜！", &[("likes 香菜", "no", SAID)]),
            ("他说我叫什么吗", &[]),
            ("", &[]),
        ] {
            let found = preferences_in(text);
            let found: Vec<_> = found.iter().map(|(key, value, sure)| (key.as_str(), value.as_str(), *sure)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_task_is_what_was_done_with_tools_or_failed() {
        let source = Source { session: "s".to_owned(), seq: None, turn: None };
        let task = |success, tools: &[&str]| {
            let done = Done { input: "do\nit", result: "done", success, agent: "a/b" };
            task_of(done, tools.iter().copied(), &Owner::gateway(), &source)
        };
        for (success, tools, expected) in [
            (true, &[][..], None),
            (true, &["remember", "recall"], None),
            (true, &["exec", "exec", "read_file"], Some(json!(["exec", "read_file"]))),
            (false, &[], Some(json!([]))),
        ] {
            let task = task(success, tools);
            assert_eq!(task.as_ref().map(|task| task.detail["tools"].clone()), expected, "{success} {tools:?}");
            assert!(task.is_none_or(|task| task.text == "do it" && task.detail["result"] == "done"));
        }
    }
}
