//! The conversation in the form that the service takes: the user begins and ends it, roles alternate, and the results of
//! an answer's calls stand first in the message after it, each call answered once.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use super::ids::Ids;
use crate::chat::{ChatMessage, ImageRef, Reasoning, ToolCall};
use crate::llm::remote::ToolNames;
use crate::llm::{Image, Images};

/// What stands for the user where a conversation begins or ends with the assistant.
const BEGINNING: &str = "(What was said before is left out.)";
const GO_ON: &str = "Go on.";
/// The result of a call that has none.
const NO_RESULT: &str = "error: there is no result; whether it took effect is unknown";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
}

#[derive(Debug, Serialize)]
pub(super) struct SentMessage<'a> {
    pub role: Role,
    pub content: Vec<Block<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Block<'a> {
    /// The service's own thoughts, just as they came: it knows them by their signatures.
    Thought(&'a Value),
    Said {
        #[serde(flatten)]
        said: Said<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Said<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    ToolUse {
        id: String,
        name: Cow<'a, str>,
        input: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(skip_serializing_if = "str::is_empty")]
        content: &'a str,
    },
}

/// The bytes of a picture.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Source<'a> {
    Base64 { media_type: &'static str, data: &'a str },
}

/// Everything up to here is to be kept by the service for the next request.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum CacheControl {
    Ephemeral,
}

pub(super) struct Conversation<'a> {
    pub messages: Vec<SentMessage<'a>>,
    /// Where the newest text of the user stands.
    newest: usize,
}

impl<'a> Conversation<'a> {
    /// `images`: the pictures that are sent; `provider`: whose thoughts go back.
    pub(super) fn new(messages: &'a [ChatMessage], images: &'a Images, names: &'a ToolNames, provider: &str) -> Self {
        let mut made = Self { messages: Vec::new(), newest: 0 };
        let mut ids = Ids::default();
        let mut rest = messages;
        while let [message, after @ ..] = rest {
            rest = after;
            match message {
                ChatMessage::User { content, images: wanted } => made.add_user(content, wanted, images),
                ChatMessage::Assistant { content, reasoning, tool_calls } => {
                    let thoughts = reasoning.as_ref().filter(|reasoning| reasoning.provider == provider);
                    let sent: Vec<_> = tool_calls.iter().map(|call| ids.next(&call.id)).collect();
                    made.add_assistant(content, thoughts, tool_calls, &sent, names);
                    if !tool_calls.is_empty() {
                        let until = rest.iter().position(|next| matches!(next, ChatMessage::Assistant { .. }));
                        made.add_results(tool_calls, sent, &rest[..until.unwrap_or(rest.len())]);
                    }
                }
                // Those that belong to a call have been added with it; one of no call answers nothing.
                ChatMessage::Tool { .. } => {}
            }
        }
        if made.messages.last().is_none_or(|last| last.role == Role::Assistant) {
            made.add_words(GO_ON);
        }
        made
    }

    /// Whether each answer of the running turn begins with its thoughts, as the service wants it where it is to think:
    /// the answers of others, or given without thinking, do not.
    pub(super) fn is_thought_through(&self) -> bool {
        let mut begin = self.newest;
        // A text that follows results belongs to the turn whose results they are.
        while begin >= 2 && self.messages[begin].has_results() {
            begin -= 2;
        }
        let answers = self.messages[begin..].iter().filter(|message| message.role == Role::Assistant);
        answers.into_iter().all(|message| matches!(message.content.first(), Some(Block::Thought(_))))
    }

    pub(super) fn leave_thoughts_out(&mut self) {
        for message in &mut self.messages {
            message.content.retain(|block| !matches!(block, Block::Thought(_)));
        }
    }

    pub(super) fn has_calls(&self) -> bool {
        self.messages.iter().any(SentMessage::has_results)
    }

    /// The names of all tools that were called, each once, in order.
    pub(super) fn called(&self) -> Vec<&str> {
        let mut called = Vec::new();
        for block in self.messages.iter().flat_map(|message| &message.content) {
            if let Block::Said { said: Said::ToolUse { name, .. }, .. } = block
                && !called.contains(&name.as_ref())
            {
                called.push(name.as_ref());
            }
        }
        called
    }

    /// Marks what the next requests have in common with this one: the next turn's all before the newest text of the
    /// user, the next step's all of it.
    pub(super) fn mark_for_cache(&mut self) {
        let last = self.messages.len().checked_sub(1);
        for at in [self.newest.checked_sub(1), last].into_iter().flatten() {
            if let Some(Block::Said { cache_control, .. }) =
                self.messages.get_mut(at).and_then(|message| message.content.last_mut())
            {
                *cache_control = Some(CacheControl::Ephemeral);
            }
        }
    }

    fn add_words(&mut self, text: &'a str) {
        self.add(Role::User, [Block::said(Said::Text { text })]);
        self.newest = self.messages.len() - 1;
    }

    /// The service understands pictures best that stand before the words about them.
    fn add_user(&mut self, text: &'a str, wanted: &'a [ImageRef], images: &'a Images) {
        let source = |image: &'a Image| Source::Base64 { media_type: image.media_type(), data: image.base64() };
        let pictures: Vec<_> =
            images.of(wanted).map(|image| Block::said(Said::Image { source: source(image) })).collect();
        if !pictures.is_empty() {
            self.add(Role::User, pictures);
            self.newest = self.messages.len() - 1;
        }
        // The service refuses texts without a letter.
        if !text.trim().is_empty() {
            self.add_words(text);
        }
    }

    fn add_assistant(
        &mut self,
        text: &'a str,
        thoughts: Option<&'a Reasoning>,
        calls: &'a [ToolCall],
        sent_ids: &[String],
        names: &'a ToolNames,
    ) {
        let text = Some(text).filter(|text| !text.trim().is_empty());
        if text.is_none() && calls.is_empty() {
            return;
        }
        if self.messages.is_empty() {
            self.add_words(BEGINNING);
        }
        let thoughts = thoughts.into_iter().flat_map(|reasoning| &reasoning.blocks).map(Block::Thought);
        let text = text.map(|text| Block::said(Said::Text { text }));
        let calls = calls.iter().zip(sent_ids).map(|(call, id)| {
            // The service takes objects only; the result of any other input tells the model what it wrote.
            let input = serde_json::from_str(&call.arguments).unwrap_or_default();
            Block::said(Said::ToolUse { id: id.clone(), name: names.sent(&call.name), input })
        });
        self.add(Role::Assistant, thoughts.chain(text).chain(calls));
    }

    /// `after`: what stands between the calls and the next answer.
    fn add_results(&mut self, calls: &[ToolCall], sent_ids: Vec<String>, after: &'a [ChatMessage]) {
        let mut results: Vec<(&str, &'a str)> = after.iter().filter_map(result).collect();
        for (call, tool_use_id) in calls.iter().zip(sent_ids) {
            let at = results.iter().position(|(id, _)| *id == call.id);
            let content = at.map_or(NO_RESULT, |at| results.remove(at).1);
            self.add(Role::User, [Block::said(Said::ToolResult { tool_use_id, content })]);
        }
    }

    fn add(&mut self, role: Role, blocks: impl IntoIterator<Item = Block<'a>>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.content.extend(blocks),
            _ => self.messages.push(SentMessage { role, content: blocks.into_iter().collect() }),
        }
    }
}

impl SentMessage<'_> {
    fn has_results(&self) -> bool {
        matches!(self.content.first(), Some(Block::Said { said: Said::ToolResult { .. }, .. }))
    }
}

impl<'a> Block<'a> {
    fn said(said: Said<'a>) -> Self {
        Self::Said { said, cache_control: None }
    }
}

fn result(message: &ChatMessage) -> Option<(&str, &str)> {
    match message {
        ChatMessage::Tool { call_id, content, .. } => Some((call_id, content)),
        _ => None,
    }
}
