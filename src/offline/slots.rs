//! The kinds of argument that a pattern may ask for, and what each accepts.

use super::arithmetic;
use crate::text::Language;
use crate::text::time_expression::{self, TimeExpression, TimeParseError};

/// The longest file name, address, id or question that is taken out of a message, in bytes.
const MAX_TOKEN: usize = 512;
/// The longest time in words, in bytes.
const MAX_WHEN: usize = 150;
/// What `*` may stand for, in bytes: a rule about small talk must not take hold of a long text.
const MAX_ANY: usize = 30;

/// Words after which "run …" is talk and not a command.
const NO_COMMANDS: &[&str] = &[
    "me",
    "through",
    "away",
    "out",
    "into",
    "a",
    "an",
    "the",
    "it",
    "this",
    "that",
    "my",
    "your",
    "our",
    "for",
    "to",
    "with",
    "of",
    "over",
    "by",
    "on",
    "in",
    "some",
    "all",
    "everything",
    "as",
];

/// Commands that are known without being announced: alone, or with an option.
const UNIX: &[&str] = &[
    "cat", "date", "df", "du", "env", "find", "free", "grep", "head", "hostname", "id", "ls", "ps", "pwd", "sort",
    "tail", "uname", "uptime", "wc", "whoami",
];

/// Words that make a name no name but a question.
const NO_NAMES: &[&str] = &["什么", "哪些", "哪里", "怎么", "看看", "看一下"];

/// Words for the workspace itself.
const HERE: &[&str] = &[
    "here",
    "there",
    "workspace",
    "this",
    "current",
    "当前",
    "工作区",
    "工作",
    "这里",
    "这个",
    "根",
    "本",
    "所有",
    "全部",
];

/// One kind of argument, by its name in a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// `*`: a few words that do not matter.
    Any,
    /// `{path}`: one word with a `.` or `/` in it, or anything in quotes.
    Path,
    /// `{file}`: a path whose last part has an ending, such as `.md`.
    File,
    /// `{name}`: a path, or one plain word where the pattern says that it is a file.
    Name,
    /// `{folder}`: a path, one word, or words for the workspace.
    Folder,
    /// `{glob}`: one word with `*` or `?` in it.
    Glob,
    /// `{text}`: anything, kept as it is.
    Text,
    /// `{note}`: anything, without the colon or comma before it.
    Note,
    /// `{query}`: a few words, without the question mark after them.
    Query,
    /// `{command}`: a command line, as it is said in a sentence.
    Command,
    /// `{shell}`: a command line as it stands.
    Shell,
    /// `{unix}`: a line that is plainly a command, though nothing says so.
    Unix,
    /// `{id}`: one word with a digit in it.
    Id,
    /// `{url}`: an http or https address.
    Url,
    /// `{sum}`: something to work out.
    Sum,
    /// `{plainsum}`: the same, where nothing else says that it is one.
    PlainSum,
    /// `{when}`: a time.
    TimeExpression,
    /// `{after}`: a note that does not go on with the time before it.
    After,
    /// `{before}`: a text that does not end with words of time.
    Before,
    /// `{unclear}`: a text that begins or ends with words of time.
    Unclear,
}

const NAMES: &[(&str, Slot)] = &[
    ("path", Slot::Path),
    ("file", Slot::File),
    ("name", Slot::Name),
    ("folder", Slot::Folder),
    ("glob", Slot::Glob),
    ("text", Slot::Text),
    ("note", Slot::Note),
    ("query", Slot::Query),
    ("command", Slot::Command),
    ("shell", Slot::Shell),
    ("unix", Slot::Unix),
    ("id", Slot::Id),
    ("url", Slot::Url),
    ("sum", Slot::Sum),
    ("plainsum", Slot::PlainSum),
    ("when", Slot::TimeExpression),
    ("after", Slot::After),
    ("before", Slot::Before),
    ("unclear", Slot::Unclear),
];

/// The arguments found in a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slots {
    /// A file, a folder, a pattern of file names or an address.
    pub path: Option<String>,
    /// What is to be written, noted, looked for, run or worked out; or an id.
    pub text: Option<String>,
    pub when: Option<TimeExpression>,
    /// What of a time was not understood.
    pub unclear: Option<TimeParseError>,
}

impl Slot {
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, slot)| *slot)
    }

    /// The longest text that it can hold, in bytes.
    pub fn limit(self) -> usize {
        match self {
            Self::Any => MAX_ANY,
            Self::TimeExpression => MAX_WHEN,
            Self::Text | Self::Note | Self::After | Self::Before | Self::Command | Self::Shell => usize::MAX,
            _ => MAX_TOKEN,
        }
    }

    /// Whether the longest text is tried first.
    pub fn is_greedy(self) -> bool {
        self == Self::TimeExpression
    }

    /// Puts the text into `slots` if it is of this kind.
    pub fn accept(self, text: &str, language: Language, slots: &mut Slots) -> bool {
        let trimmed = text.trim();
        let found = match self {
            Self::Any => return true,
            Self::TimeExpression => {
                slots.when = time_expression::parse(trimmed).ok();
                return slots.when.is_some();
            }
            Self::After => {
                return !time_expression::starts_with_time(trimmed, language)
                    && Self::Note.accept(text, language, slots);
            }
            Self::Before => {
                return !time_expression::ends_with_time(trimmed, language) && Self::Text.accept(text, language, slots);
            }
            Self::Unclear => {
                slots.unclear = time_expression::explain_partial_time(trimmed, language);
                return slots.unclear.is_some();
            }
            Self::Path => path(trimmed).filter(|(name, quoted)| *quoted || name.contains(['.', '/'])),
            Self::File => path(trimmed).filter(|(name, quoted)| *quoted || has_ending(name)),
            Self::Name => path(trimmed),
            Self::Folder => folder(trimmed).map(|name| (name, false)),
            Self::Glob => path(trimmed).filter(|(name, _)| name.contains(['*', '?'])),
            Self::Url => return keep(&mut slots.path, url(trimmed)),
            Self::Text => return keep(&mut slots.text, some(unquoted(trimmed).unwrap_or(trimmed))),
            Self::Note => {
                let note = trimmed.trim_start_matches([':', '：', ',', '，', ' ']);
                return keep(&mut slots.text, some(unquoted(note).unwrap_or(note)));
            }
            Self::Query => {
                let query =
                    trimmed.trim_start_matches([':', '：', ' ']).trim_end_matches(['?', '？', '。', '！']).trim();
                let query = some(unquoted(query).unwrap_or(query)).filter(|query| !query.starts_with('-'));
                return keep(&mut slots.text, query);
            }
            Self::Command => {
                let said = trimmed.trim_end_matches(['?', '？', '。', '！']);
                return keep(&mut slots.text, command(said.strip_suffix(" please").unwrap_or(said)));
            }
            Self::Shell => return keep(&mut slots.text, command(trimmed)),
            Self::Unix => return keep(&mut slots.text, command(trimmed).filter(|line| is_unix(line))),
            Self::Id => return keep(&mut slots.text, id(trimmed)),
            Self::Sum => return keep(&mut slots.text, sum(trimmed)),
            Self::PlainSum => {
                return keep(&mut slots.text, sum(trimmed).filter(|sum| arithmetic::is_plainly_a_sum(sum)));
            }
        };
        keep(&mut slots.path, found.map(|(name, _)| name))
    }
}

fn keep(place: &mut Option<String>, found: Option<&str>) -> bool {
    *place = found.map(str::to_owned);
    place.is_some()
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// What stands between a pair of quotes that hold the whole text.
fn unquoted(text: &str) -> Option<&str> {
    const PAIRS: [(char, char); 6] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('‘', '’'), ('「', '」')];
    PAIRS.iter().find_map(|(open, close)| {
        let inner = text.strip_prefix(*open)?.strip_suffix(*close)?;
        (!inner.contains(*open) && !inner.contains(*close)).then_some(inner)
    })
}

/// A file's name, and whether it stood in quotes: one word, no option, no address.
fn path(text: &str) -> Option<(&str, bool)> {
    if let Some(quoted) = unquoted(text) {
        return some(quoted.trim()).filter(|name| !name.contains(char::is_control)).map(|name| (name, true));
    }
    let name = text.trim_end_matches(['?', '？', '!', '！', '。', ',', '，', '：', ':']);
    let is_dots = name.trim_end_matches('.').rsplit('/').next().is_some_and(str::is_empty);
    let name = if is_dots { name } else { name.trim_end_matches('.') };
    let is_word = !name.contains(|c: char| c.is_whitespace() || c.is_control() || "，。：；！？、\"`<>|@".contains(c));
    (is_word && !name.is_empty() && !name.starts_with('-') && !name.contains("://")).then_some((name, false))
}

/// Whether the last part of a path is `NAME.ENDING`, with something on both sides.
fn has_ending(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.rsplit_once('.').is_some_and(|(stem, ending)| !stem.trim_matches('.').is_empty() && !ending.is_empty())
}

fn folder(text: &str) -> Option<&str> {
    let lead = ["the ", "my ", "folder ", "directory ", "文件夹", "目录"];
    let tail = [" folder", " directory", " dir", "文件夹", "目录", "的"];
    let text = lead.iter().find_map(|word| text.strip_prefix(word)).unwrap_or(text).trim();
    let text = tail.iter().find_map(|word| text.strip_suffix(word)).unwrap_or(text).trim();
    if text.is_empty() || HERE.iter().any(|word| word.eq_ignore_ascii_case(text.trim_end_matches(['?', '？']))) {
        return Some(".");
    }
    path(text).map(|(name, _)| name).filter(|name| !NO_NAMES.iter().any(|word| name.contains(word)))
}

fn url(text: &str) -> Option<&str> {
    let address = text.trim_end_matches(['?', '？', '。', '！', '!', ',']);
    let is_http = address.starts_with("http://") || address.starts_with("https://");
    (is_http && !address.contains(char::is_whitespace)).then_some(address)
}

/// A command starts like one: with a letter, a path or a variable, and not with a word of ordinary speech.
fn command(text: &str) -> Option<&str> {
    let command = text.trim_start_matches([':', '：', ' ']);
    let command = unquoted(command).map_or(command, str::trim);
    let first = command.split_whitespace().next()?.to_ascii_lowercase();
    let starts = first.starts_with(|c: char| c.is_ascii_alphabetic() || "./~_$({[".contains(c));
    (starts && !NO_COMMANDS.contains(&first.as_str()) && !command.contains('\0')).then_some(command)
}

fn is_unix(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_known = words.next().is_some_and(|first| UNIX.contains(&first));
    is_known && words.next().is_none_or(|second| second.starts_with('-'))
}

fn id(text: &str) -> Option<&str> {
    let id = text.trim_start_matches(['#', '＃', ' ', ':', '：']).trim_end_matches(['.', '。', '?', '？', '!', '！']);
    let is_id = id.contains(|c: char| c.is_ascii_digit()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    is_id.then_some(id)
}

fn sum(text: &str) -> Option<&str> {
    arithmetic::evaluate(text).map(|_| text)
}
