//! Reads conversations from files: exports of `sessions export`, and files of other assistants. An export has one message a
//! line, or is a readable text with these lines in a comment. A file of another assistant is one object with all messages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use daoyou_channels::json::check_keys;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::Value;
use uuid::{ContextV7, Uuid};

use crate::chat::ChatMessage;
use crate::store::session_import::ImportedMessage;

/// The maximum number of messages of one file.
const MAX_MESSAGES: usize = 200_000;

/// A conversation read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    pub conversation: ImportedConversation,
    pub messages: Vec<ImportedMessage>,
}

/// What a file says of its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImportedConversation {
    #[serde(rename = "session")]
    pub key: Option<String>,
    pub owner: Option<String>,
    /// Several people have written in the conversation.
    #[serde(rename = "shared")]
    pub is_shared: bool,
    /// The conversation may hold foreign content: it has results of tools, or its export says so.
    #[serde(rename = "tainted")]
    pub is_tainted: bool,
}

/// A line of `sessions export`.
#[derive(Deserialize)]
struct ExportedLine {
    at: Timestamp,
    turn: Uuid,
    message: ChatMessage,
    /// The conversation of the message, the same on each line; missing in exports of earlier versions.
    #[serde(flatten)]
    conversation: ImportedConversation,
}

/// The beginning of the HTML comment that holds the lines of an export in a readable text. Each line is in base64, so that
/// nothing in it ends the comment.
const COMMENT_START: &str = "<!-- What `daoyou sessions import` reads, a message a line:\n";
const COMMENT_END: &str = "-->";

/// The error for a text without an export.
const NO_EXPORT: &str = "this is not a conversation: neither lines of `daoyou sessions export`, nor its text \
                         (--format md) with the comment at its end, nor an object {\"messages\": […]}";

/// Formats the lines of an export as the HTML comment that ends a readable text.
pub fn as_comment(lines: &[Value]) -> String {
    let mut comment = COMMENT_START.to_owned();
    for line in lines {
        STANDARD.encode_string(line.to_string(), &mut comment);
        comment.push('\n');
    }
    comment + COMMENT_END
}

/// Returns the lines of an export that a text holds in a comment.
fn in_comment(text: &str) -> Option<String> {
    // An editor may have changed the ends of the lines. The lines themselves are in base64.
    let text = text.replace("\r\n", "\n");
    // A message may contain such a comment as well; the last one is the export's.
    let from = text.rfind(COMMENT_START)? + COMMENT_START.len();
    let lines = &text[from..];
    let lines = lines[..lines.find(COMMENT_END)?].lines().map(|line| STANDARD.decode(line.trim()));
    let lines = lines.map(|line| line.ok().and_then(|line| String::from_utf8(line).ok()));
    Some(lines.collect::<Option<Vec<_>>>()?.join("\n"))
}

/// A whole conversation in one object. Its own summaries are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WholeFile {
    key: Option<String>,
    messages: Vec<Value>,
    created_at: Option<Value>,
}

/// Reads a file; times without a zone are in `zone`.
///
/// # Errors
/// The faults of the file, each with its line or the number of its message.
pub fn read(text: &str, zone: &TimeZone, now: Timestamp) -> Result<SessionFile, Vec<String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // An object with `messages` is a whole conversation; one with `message` is a line of an export.
    let whole = serde_json::from_str::<Value>(text).ok().filter(|value| value.get("messages").is_some());
    let file = match whole {
        Some(value) => {
            check_keys(text).map_err(|error| vec![format!("this is not a conversation: {error}")])?;
            read_whole(value, zone, now)
        }
        None if text.trim_start().starts_with('{') || text.trim().is_empty() => read_lines(text),
        None => match in_comment(text) {
            Some(lines) => read_lines(&lines),
            None => Err(vec![NO_EXPORT.to_owned()]),
        },
    }?;
    match file.messages.len() {
        0 => Err(vec!["there is no message in it".to_owned()]),
        many if many > MAX_MESSAGES => {
            Err(vec![format!("there are {many} messages in it; allowed: at most {MAX_MESSAGES}")])
        }
        _ => Ok(file),
    }
}

fn read_lines(text: &str) -> Result<SessionFile, Vec<String>> {
    let (mut messages, mut faults, mut known) = (Vec::new(), Vec::new(), None);
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        match read_line(line) {
            Ok((_, other)) if known.as_ref().is_some_and(|known| *known != other) => {
                let wrong = "it is of another conversation than the lines before it; import each by itself";
                faults.push(format!("line {number}: {wrong}"));
            }
            Ok((message, conversation)) => {
                messages.push(message);
                known = Some(conversation);
            }
            Err(wrong) => faults.push(format!("line {number}: {wrong}")),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut conversation: ImportedConversation = known.unwrap_or_default();
    conversation.is_tainted |= messages.iter().any(|message: &ImportedMessage| message.role == "tool");
    Ok(SessionFile { conversation, messages })
}

fn read_line(line: &str) -> Result<(ImportedMessage, ImportedConversation), String> {
    let ExportedLine { at, turn, message, conversation } = daoyou_channels::json::from_str(line).map_err(|error| {
        let fault = daoyou_channels::json::fault_of_line(&error);
        format!(
            "this is not a line of `daoyou sessions export`, {{\"at\", \"turn\", \"message\": {{\"role\", …}}}}: \
             {fault}"
        )
    })?;
    Ok((imported_message(&message, turn, at)?, conversation))
}

fn read_whole(value: Value, zone: &TimeZone, now: Timestamp) -> Result<SessionFile, Vec<String>> {
    let file: WholeFile =
        serde_json::from_value(value).map_err(|error| vec![format!("this is not a conversation: {error}")])?;
    let (mut messages, mut faults) = (Vec::new(), Vec::new());
    // A message without a time has the time of the message before it.
    let mut at = file.created_at.as_ref().and_then(|created| parse_time(created, zone)).unwrap_or(now);
    let order = ContextV7::new();
    let mut turn = new_turn_id(&order, at);
    for (number, message) in (1..).zip(&file.messages) {
        match read_message(message, zone, at) {
            Ok((message, time)) => {
                at = time;
                // A user's message begins a turn.
                if matches!(message, ChatMessage::User { .. }) {
                    turn = new_turn_id(&order, at);
                }
                messages.extend(imported_message(&message, turn, at).map_err(|wrong| faults.push(wrong)).ok());
            }
            Err(wrong) => faults.push(format!("message {number}: {wrong}")),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(SessionFile {
        conversation: ImportedConversation { key: file.key, ..ImportedConversation::default() },
        messages,
    })
}

fn read_message(message: &Value, zone: &TimeZone, before: Timestamp) -> Result<(ChatMessage, Timestamp), String> {
    let Some(content) = message.get("content").and_then(Value::as_str) else {
        return Err("its \"content\" is missing, or no text".to_owned());
    };
    let at = match message.get("timestamp") {
        None | Some(Value::Null) => before,
        Some(time) => parse_time(time, zone).ok_or_else(|| {
            format!(
                "its \"timestamp\" is {time}; allowed: a time such as \"2026-03-08T09:00:00\", or seconds since 1970"
            )
        })?,
    };
    match message.get("role").and_then(Value::as_str) {
        Some("user") => Ok((ChatMessage::user(content), at)),
        Some("assistant") => Ok((ChatMessage::assistant(content), at)),
        _ => {
            let role = message.get("role").unwrap_or(&Value::Null);
            Err(format!("its \"role\" is {role}; allowed: \"user\", \"assistant\""))
        }
    }
}

fn imported_message(message: &ChatMessage, turn: Uuid, at: Timestamp) -> Result<ImportedMessage, String> {
    let body = serde_json::to_string(message).map_err(|error| error.to_string())?;
    Ok(ImportedMessage { role: message.role(), body, turn: turn.to_string(), at: at.as_millisecond() })
}

/// Creates the id of a turn. Ids sort by time, and those of the same time by their order in the file.
fn new_turn_id(order: &ContextV7, at: Timestamp) -> Uuid {
    let seconds = u64::try_from(at.as_second()).unwrap_or(0);
    Uuid::new_v7(uuid::Timestamp::from_unix(order, seconds, at.subsec_nanosecond().unsigned_abs()))
}

/// Parses a time with or without a zone, or a number of seconds or milliseconds.
fn parse_time(value: &Value, zone: &TimeZone) -> Option<Timestamp> {
    /// Numbers from this one on are milliseconds. Read as seconds, this number is in the year 5138; read as milliseconds, in
    /// March 1973.
    const MILLISECONDS_FROM: f64 = 1e11;
    match value {
        Value::String(text) => {
            let text = text.trim();
            let civil = || text.parse::<DateTime>().ok()?.to_zoned(zone.clone()).ok().map(|at| at.timestamp());
            text.parse::<Timestamp>().ok().or_else(civil)
        }
        Value::Number(number) => {
            let number = number.as_f64().filter(|number| *number >= 0.0)?;
            let ms = if number < MILLISECONDS_FROM { number * 1_000.0 } else { number };
            Timestamp::from_millisecond(ms as i64).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SessionFile, Vec<String>> {
        let now = "2026-06-01T00:00:00Z".parse().unwrap();
        super::read(text, &TimeZone::get("Asia/Shanghai").unwrap(), now)
    }

    #[test]
    fn a_whole_conversation_becomes_turns_in_their_order() {
        let file = read(
            r#"{"key": "telegram:42", "messages": [
                {"role": "user", "content": "hi", "timestamp": "2026-01-01T10:00:00.123456"},
                {"role": "assistant", "content": "hello", "timestamp": "2026-01-01T02:00:01Z"},
                {"role": "user", "content": "and now?", "timestamp": 1767232860},
                {"role": "assistant", "content": "now", "tools_used": []}],
              "lastConsolidated": 2, "createdAt": "2026-01-01T10:00:00", "updatedAt": "2026-01-01T10:01:00"}"#,
        )
        .unwrap();
        assert_eq!(file.conversation.key.as_deref(), Some("telegram:42"));
        let at: Vec<_> =
            file.messages.iter().map(|message| Timestamp::from_millisecond(message.at).unwrap().to_string()).collect();
        assert_eq!(
            at,
            ["2026-01-01T02:00:00.123Z", "2026-01-01T02:00:01Z", "2026-01-01T02:01:00Z", "2026-01-01T02:01:00Z"]
        );
        let turn = |at: usize| file.messages[at].turn.as_str();
        assert!(turn(0) == turn(1) && turn(2) == turn(3) && turn(0) < turn(2));
        assert_eq!(file.messages[1].body, r#"{"role":"assistant","content":"hello"}"#);
    }

    #[test]
    fn exports_are_read_back_unchanged() {
        let turn = "019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b";
        let call = r#"{"role":"assistant","content":"","tool_calls":[{"id":"1","name":"exec","arguments":"{}"}]}"#;
        let result = r#"{"role":"tool","call_id":"1","name":"exec","content":"done"}"#;
        let line = |message: &str| {
            format!(r#"{{"at":"2026-01-01T10:00:00Z","message":{message},"role":"x","seq":7,"turn":"{turn}"}}"#)
        };
        let file = read(&[line(call), String::new(), line(result)].join("\n")).unwrap();
        assert_eq!((file.conversation.key, file.messages.len()), (None, 2));
        assert!(file.conversation.is_tainted, "it has the result of a tool");
        assert_eq!(file.messages[0].body, call);
        assert_eq!((file.messages[1].role, file.messages[1].turn.as_str()), ("tool", turn));
    }

    #[test]
    fn readable_exports_are_read_back() {
        let tricky = format!("a --> b {COMMENT_START}{{}}\n--> --- \u{9b}\u{202e}");
        let line = |session: &str, owner: &str| {
            serde_json::json!({
                "at": "2026-01-01T10:00:00Z", "turn": Uuid::nil(), "seq": 0, "role": "user",
                "message": { "role": "user", "content": tricky }, "session": session, "owner": owner,
            })
        };
        let text = |lines: &[Value]| format!("# cli:direct\n\n{tricky}\n\n{}\n", as_comment(lines));
        let same = [line("cli:direct", "ann"), line("cli:direct", "ann")];
        let file = read(&text(&same)).unwrap();
        assert_eq!(
            (file.conversation.key.as_deref(), file.conversation.owner.as_deref(), file.conversation.is_shared),
            (Some("cli:direct"), Some("ann"), false)
        );
        let body = serde_json::json!({ "role": "user", "content": tricky });
        let read_back: Vec<Value> =
            file.messages.iter().map(|message| serde_json::from_str(&message.body).unwrap()).collect();
        assert_eq!(read_back, [body.clone(), body]);
        assert!(!file.conversation.is_tainted);
        let marked = |mut line: Value| {
            line["tainted"] = Value::Bool(true);
            line
        };
        assert!(read(&text(&same.clone().map(marked))).unwrap().conversation.is_tainted);
        let with_crlf = format!("\u{feff}{}", text(&same).replace('\n', "\r\n"));
        assert_eq!(read(&with_crlf).unwrap(), file);
        let faults = read(&text(&[line("cli:direct", "ann"), line("cli:other", "ann")])).unwrap_err();
        assert!(faults.len() == 1 && faults[0].starts_with("line 2: it is of another"), "{faults:?}");
    }

    #[test]
    fn faults_name_their_line_or_message() {
        for (text, faults) in [
            ("", vec!["no message"]),
            ("{}\n\nno JSON", vec!["line 1: ", "…}}: expected ident, in column 2"]),
            ("# cli:direct\n\n## user, 2026-01-01T10:00:00Z\n\nhi\n", vec!["nor its text (--format md) with"]),
            (r#"{"messages": []}"#, vec!["no message"]),
            (r#"{"messages": 7}"#, vec!["not a conversation"]),
            (
                r#"{"messages": [{"role": "system", "content": "x"}, {"role": "user"},
                    {"role": "user", "content": "x", "timestamp": "noon"}, {"role": "user", "content": "x"}]}"#,
                vec![
                    "message 1: its \"role\" is \"system\"",
                    "message 2: its \"content\"",
                    "message 3: its \"timestamp\"",
                ],
            ),
        ] {
            let found = read(text).unwrap_err();
            assert_eq!(found.len(), faults.len(), "{found:?}");
            assert!(found.iter().zip(&faults).all(|(found, words)| found.contains(words)), "{found:?}");
        }
    }
}
