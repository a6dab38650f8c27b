//! The rules that every service has for a conversation, and the repair of one that breaks them.
//!
//! The rules are those of OpenAI's chat completions and of Anthropic's messages together, so that a conversation can move from
//! one to the other at any point.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::remote::numbered_name;
use crate::chat::{ChatMessage, ImageRef, ToolCall};

/// The placeholder for the result of a call whose own result is lost.
pub const NO_RESULT: &str = "Error: no result was kept of this call; whether it took effect is unknown";
/// The placeholder at the beginning of a conversation that would begin with the model's message.
const NOT_SHOWN: &str = "(The beginning of this conversation is not shown.)";
/// The placeholder for a message without text.
const NO_TEXT: &str = "(no text)";
/// The message at the end of a conversation that would end with the model's message, so that there is something to answer.
const GO_ON: &str = "(Please go on.)";

/// The place where a conversation breaks a rule, and the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MessageFlaw(String);

/// Checks that all services accept these messages: the first is the user's and the last is not the model's; none is empty; the
/// model does not speak twice in a row; ids of calls are unique; and each call is answered exactly once, in order, directly
/// after the message that made it.
///
/// # Errors
/// The first [`MessageFlaw`].
pub fn check<'a>(messages: impl IntoIterator<Item = &'a ChatMessage>) -> Result<(), MessageFlaw> {
    let mut ids = HashSet::new();
    let mut open: &[ToolCall] = &[];
    let mut before = None;
    for (at, message) in messages.into_iter().enumerate() {
        let role = message.role();
        let flaw = |what: &str| Err(MessageFlaw(format!("message {at} ({role}): {what}")));
        if let ChatMessage::Tool { call_id, .. } = message {
            match open.split_first() {
                Some((call, rest)) if call.id == *call_id => open = rest,
                Some((call, _)) => return flaw(&format!("answers {call_id:?} where {:?} is next", call.id)),
                None => return flaw(&format!("answers {call_id:?}, which is not an open call")),
            }
            before = Some(role);
            continue;
        }
        if let Some(call) = open.first() {
            return flaw(&format!("comes before the result of {:?}", call.id));
        }
        match message {
            ChatMessage::User { content, .. } if is_blank(content) => return flaw("is empty"),
            ChatMessage::Assistant { content, tool_calls, .. } => {
                if before.is_none() {
                    return flaw("is the first");
                }
                if before == Some(role) {
                    return flaw("follows the model's own words");
                }
                if tool_calls.is_empty() && is_blank(content) {
                    return flaw("is empty");
                }
                if let Some(call) = tool_calls.iter().find(|call| call.id.is_empty() || !ids.insert(call.id.as_str())) {
                    return flaw(&format!("the id {:?} is empty or not the only one", call.id));
                }
                open = tool_calls;
            }
            _ => {}
        }
        before = Some(role);
    }
    match (open.first(), before) {
        (Some(call), _) => Err(MessageFlaw(format!("the end: {:?} has no result", call.id))),
        (None, None) => Err(MessageFlaw("there is no message".to_owned())),
        (None, Some("assistant")) => Err(MessageFlaw("the end: nothing is left to answer".to_owned())),
        (None, Some(_)) => Ok(()),
    }
}

/// Repairs messages so that they pass [`check`], and returns the first flaw; valid messages stay as they are. The repair drops
/// only results that belong to no call.
pub fn repair(messages: &mut Vec<Arc<ChatMessage>>) -> Option<MessageFlaw> {
    let flaw = check(messages.iter().map(Arc::as_ref)).err()?;
    let known = messages.iter().flat_map(|message| message.tool_calls()).map(|call| call.id.clone()).collect();
    let mut repairer = HistoryRepairer { known, ..HistoryRepairer::default() };
    for message in std::mem::take(messages) {
        repairer.take(Arc::unwrap_or_clone(message));
    }
    *messages = repairer.finish().into_iter().map(Arc::new).collect();
    Some(flaw)
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

#[derive(Default)]
struct HistoryRepairer {
    out: Vec<ChatMessage>,
    /// The original ids of all calls.
    known: HashSet<String>,
    /// The ids of the calls in `out`.
    used: HashSet<String>,
    /// For each original id of a call, the positions in `out` for its results.
    waiting: HashMap<String, VecDeque<usize>>,
}

impl HistoryRepairer {
    fn take(&mut self, message: ChatMessage) {
        match message {
            ChatMessage::User { content, images } if is_blank(&content) => {
                self.out.push(ChatMessage::User { content: NO_TEXT.to_owned(), images });
            }
            ChatMessage::User { .. } => self.out.push(message),
            ChatMessage::Tool { call_id, content, images, .. } => self.answer(&call_id, content, images),
            ChatMessage::Assistant { ref content, ref tool_calls, .. } => {
                if !(tool_calls.is_empty() && is_blank(content)) {
                    self.push_message(message);
                }
            }
        }
    }

    /// Adds a message of the model, with a place for the result of each call.
    fn push_message(&mut self, mut message: ChatMessage) {
        let ChatMessage::Assistant { content, tool_calls, .. } = &mut message else { return };
        match self.out.last() {
            None => self.out.push(ChatMessage::user(NOT_SHOWN)),
            Some(ChatMessage::Assistant { content: before, .. }) => {
                // The last message of `out` is the model's only if it called no tools, since results follow calls.
                *content = format!("{before}\n\n{content}").trim_end().to_owned();
                self.out.pop();
            }
            Some(_) => {}
        }
        for call in &*tool_calls {
            // An older call with the same id gets no result any more: the next result belongs to the newer call.
            self.waiting.remove(&call.id);
        }
        let mut places = Vec::with_capacity(tool_calls.len());
        let first = self.out.len() + 1;
        for (place, call) in tool_calls.iter_mut().enumerate() {
            self.waiting.entry(call.id.clone()).or_default().push_back(first + place);
            call.id = self.unique_id(&call.id);
            places.push(ChatMessage::tool(&call.id, &call.name, NO_RESULT));
        }
        self.out.push(message);
        self.out.append(&mut places);
    }

    fn answer(&mut self, call_id: &str, result: String, seen: Vec<ImageRef>) {
        let place = self.waiting.get_mut(call_id).and_then(VecDeque::pop_front);
        if let Some(ChatMessage::Tool { content, images, .. }) = place.and_then(|place| self.out.get_mut(place)) {
            (*content, *images) = (result, seen);
        }
    }

    /// Returns `wanted`, or a similar id that no other call has.
    fn unique_id(&mut self, wanted: &str) -> String {
        let wanted = if wanted.is_empty() { "call" } else { wanted };
        numbered_name(wanted, |id| (id != wanted && self.known.contains(id)) || !self.used.insert(id.to_owned()))
    }

    fn finish(mut self) -> Vec<ChatMessage> {
        match self.out.last() {
            None => self.out.push(ChatMessage::user(NO_TEXT)),
            Some(ChatMessage::Assistant { .. }) => self.out.push(ChatMessage::user(GO_ON)),
            Some(_) => {}
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The letters of a script: `u` is a user's message, `t` the model's text, `cXY` calls with the ids X and Y, `rX` the
    /// result of X. An upper-case letter means a message without text.
    fn read(script: &str) -> Vec<Arc<ChatMessage>> {
        let message = |word: &str| {
            let (kind, ids) = word.split_at(1);
            let call = |id: char| ToolCall { id: id.to_string(), name: "x".to_owned(), arguments: "{}".to_owned() };
            match kind {
                "u" => ChatMessage::user(format!("said{ids}")),
                "U" => ChatMessage::user(" \n"),
                "t" => ChatMessage::assistant(format!("told{ids}")),
                "T" => ChatMessage::assistant(""),
                "c" => ChatMessage::Assistant {
                    content: String::new(),
                    reasoning: None,
                    tool_calls: ids.chars().map(call).collect(),
                },
                "r" => ChatMessage::tool(ids, "x", format!("result {ids}")),
                other => panic!("{other:?} is not a kind of message"),
            }
        };
        script.split_whitespace().map(|word| Arc::new(message(word))).collect()
    }

    fn check_all(messages: &[Arc<ChatMessage>]) -> Result<(), MessageFlaw> {
        check(messages.iter().map(Arc::as_ref))
    }

    fn write(messages: &[Arc<ChatMessage>]) -> String {
        let word = |message: &Arc<ChatMessage>| match &**message {
            ChatMessage::User { content, .. } => match content.as_str() {
                NOT_SHOWN => "(before)".to_owned(),
                NO_TEXT => "(empty)".to_owned(),
                GO_ON => "(on)".to_owned(),
                text => text.replace("said", "u"),
            },
            ChatMessage::Assistant { content, tool_calls, .. } => {
                let ids: Vec<_> = tool_calls.iter().map(|call| call.id.as_str()).collect();
                let calls = if ids.is_empty() { String::new() } else { format!("c{}", ids.join(",")) };
                content.replace("told", "t").replace("\n\n", "+") + &calls
            }
            ChatMessage::Tool { call_id, content, .. } if content == NO_RESULT => format!("r{call_id}=none"),
            ChatMessage::Tool { call_id, content, .. } => {
                let of = content.trim_start_matches("result ");
                if of == call_id { format!("r{call_id}") } else { format!("r{call_id}={of}") }
            }
        };
        messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_rule_says_what_is_wrong_and_is_repaired() {
        for (script, flaw, repaired) in [
            ("u", "", "u"),
            ("u t u", "", "u t u"),
            ("u u", "", "u u"),
            ("u cab ra rb ccd rc rd t u", "", "u ca,b ra rb cc,d rc rd t u"),
            ("", "there is no message", "(empty)"),
            ("t u", "message 0 (assistant): is the first", "(before) t u"),
            ("ra u", "message 0 (tool): answers \"a\", which is not an open call", "u"),
            ("ra rb t u", "message 0 (tool): answers \"a\", which is not an open call", "(before) t u"),
            ("u ca", "the end: \"a\" has no result", "u ca ra=none"),
            ("u ca u", "message 2 (user): comes before the result of \"a\"", "u ca ra=none u"),
            ("u ca u ra", "message 2 (user): comes before the result of \"a\"", "u ca ra u"),
            ("u cab rb ra", "message 2 (tool): answers \"b\" where \"a\" is next", "u ca,b ra rb"),
            ("u cab ra cc rb rc", "message 3 (assistant): comes before the result of \"b\"", "u ca,b ra rb cc rc"),
            ("u ca ra ra", "message 3 (tool): answers \"a\", which is not an open call", "u ca ra"),
            ("u ca ra rb", "message 3 (tool): answers \"b\", which is not an open call", "u ca ra"),
            ("u caa ra ra", "message 1 (assistant): the id \"a\" is empty or not the only one", "u ca,a_2 ra ra_2=a"),
            (
                "u ca ra t u ca ra",
                "message 5 (assistant): the id \"a\" is empty or not the only one",
                "u ca ra t u ca_2 ra_2=a",
            ),
            ("u ca ca ra", "message 2 (assistant): comes before the result of \"a\"", "u ca ra=none ca_2 ra_2=a"),
            ("U t u", "message 0 (user): is empty", "(empty) t u"),
            ("u T u", "message 1 (assistant): is empty", "u u"),
            ("u t1 t2 u", "message 2 (assistant): follows the model's own words", "u t1+t2 u"),
            ("u t1 ca ra", "message 2 (assistant): follows the model's own words", "u t1ca ra"),
            ("u t", "the end: nothing is left to answer", "u t (on)"),
        ] {
            let mut messages = read(script);
            assert_eq!(check_all(&messages).err().map_or(String::new(), |flaw| flaw.to_string()), flaw, "{script}");
            assert_eq!(repair(&mut messages).map_or(String::new(), |flaw| flaw.to_string()), flaw, "{script}");
            assert_eq!(write(&messages), repaired, "{script}");
            assert_eq!(check_all(&messages), Ok(()), "{script}");
        }
    }

    #[test]
    fn a_new_id_is_none_that_comes_later() {
        let mut messages = read("u ca ra ca ra u");
        if let Some(ChatMessage::Assistant { tool_calls, .. }) = messages.get_mut(3).map(Arc::make_mut) {
            tool_calls.push(ToolCall { id: "a_2".to_owned(), name: "x".to_owned(), arguments: String::new() });
        }
        repair(&mut messages);
        assert_eq!(write(&messages), "u ca ra ca_3,a_2 ra_3=a ra_2=none u");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_made_valid(
            words in prop::collection::vec(
                prop::sample::select(vec!["u", "U", "t", "T", "ca", "cab", "cba", "cc", "caa", "ra", "rb", "rc", "rd"]),
                0..24,
            ),
        ) {
            let mut messages = read(&words.join(" "));
            let before = messages.clone();
            let flaw = repair(&mut messages);
            prop_assert_eq!(check_all(&messages), Ok(()));
            prop_assert_eq!(flaw.is_none(), before == messages);
            let occurrences = |messages: &[Arc<ChatMessage>], word: &str| format!("{messages:?}").matches(word).count();
            for word in ["said", "told"] {
                prop_assert_eq!(occurrences(&before, word), occurrences(&messages, word), "no word is lost");
            }
            let calls = |messages: &[Arc<ChatMessage>]| messages.iter().flat_map(|message| message.tool_calls()).count();
            prop_assert_eq!(calls(&before), calls(&messages), "no call is lost");
            prop_assert_eq!(repair(&mut messages), None);
        }
    }
}
