//! The conversation in the form that the service requires: the user begins and ends it, roles alternate, and the results of an
//! answer's calls come first in the next message, one for each call.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use daoyou_channels::text::hex;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::chat::{ChatMessage, ImageRef, Reasoning, ToolCall};
use crate::llm::remote::{ToolNames, numbered_name};
use crate::llm::{Image, Images};

/// The user's message at the beginning of a conversation that begins with the assistant, and at the end of one that ends with
/// it.
const BEGINNING: &str = "(What was said before is left out.)";
const GO_ON: &str = "Go on.";
/// The placeholder for the result of a call without one.
const NO_RESULT: &str = "error: there is no result; whether it took effect is unknown";

/// The longest id that is sent unchanged. The service's own ids have 30 characters, and its limit is not documented.
const ID_LIMIT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MessageRole {
    User,
    Assistant,
}

#[derive(Debug, Serialize)]
pub(super) struct AnthropicMessage<'a> {
    pub role: MessageRole,
    pub content: Vec<SentBlock<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum SentBlock<'a> {
    /// The service's own reasoning. It is sent back unchanged, since the service verifies the signatures.
    Reasoning(&'a Value),
    Content {
        #[serde(flatten)]
        content: SentContent<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum SentContent<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: ImageSource<'a>,
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

/// The bytes of an image.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum ImageSource<'a> {
    Base64 { media_type: &'static str, data: &'a str },
}

/// The mark up to which the service caches a request, for the next request.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum CacheControl {
    Ephemeral,
}

pub(super) struct AnthropicConversation<'a> {
    pub messages: Vec<AnthropicMessage<'a>>,
    /// The index of the message with the user's newest text.
    newest: usize,
}

impl<'a> AnthropicConversation<'a> {
    /// Converts messages. `images` are the images that are sent; `provider` is the provider that gets its own reasoning back.
    pub(super) fn new(
        messages: &'a [Arc<ChatMessage>],
        images: &'a Images,
        names: &'a ToolNames,
        provider: &str,
    ) -> Self {
        let mut made = Self { messages: Vec::new(), newest: 0 };
        let mut used = HashSet::new();
        let mut rest = messages;
        while let [message, after @ ..] = rest {
            rest = after;
            match &**message {
                ChatMessage::User { content, images: wanted } => made.add_user(content, wanted, images),
                ChatMessage::Assistant { content, reasoning, tool_calls } => {
                    let thoughts = reasoning.as_ref().filter(|reasoning| reasoning.provider == provider);
                    let sent: Vec<_> = tool_calls.iter().map(|call| next_call_id(&mut used, &call.id)).collect();
                    made.add_assistant(content, thoughts, tool_calls, &sent, names);
                    if !tool_calls.is_empty() {
                        let until = rest.iter().position(|next| matches!(**next, ChatMessage::Assistant { .. }));
                        made.add_results(tool_calls, sent, &rest[..until.unwrap_or(rest.len())]);
                    }
                }
                // The results of a call were added with the call; all other results are dropped.
                ChatMessage::Tool { .. } => {}
            }
        }
        if made.messages.last().is_none_or(|last| last.role == MessageRole::Assistant) {
            made.add_text(GO_ON);
        }
        made
    }

    /// Returns true if each answer of the current turn begins with its reasoning, as the service requires with thinking on.
    /// Answers of other services, and answers without thinking, lack it.
    pub(super) fn has_reasoning_throughout(&self) -> bool {
        let mut begin = self.newest;
        // A text after results belongs to the same turn as the results.
        while begin >= 2 && self.messages[begin].has_results() {
            begin -= 2;
        }
        let answers = self.messages[begin..].iter().filter(|message| message.role == MessageRole::Assistant);
        answers.into_iter().all(|message| matches!(message.content.first(), Some(SentBlock::Reasoning(_))))
    }

    pub(super) fn remove_reasoning(&mut self) {
        for message in &mut self.messages {
            message.content.retain(|block| !matches!(block, SentBlock::Reasoning(_)));
        }
    }

    /// Returns the names of all tools that were called, each once, in order.
    pub(super) fn called(&self) -> Vec<&str> {
        let mut called = Vec::new();
        for block in self.messages.iter().flat_map(|message| &message.content) {
            if let SentBlock::Content { content: SentContent::ToolUse { name, .. }, .. } = block
                && !called.contains(&name.as_ref())
            {
                called.push(name.as_ref());
            }
        }
        called
    }

    /// Sets cache marks at the end of the parts that later requests share: the messages before the user's newest text for the
    /// next turn, and the whole conversation for the next step.
    pub(super) fn mark_for_cache(&mut self) {
        let last = self.messages.len().checked_sub(1);
        for at in [self.newest.checked_sub(1), last].into_iter().flatten() {
            if let Some(SentBlock::Content { cache_control, .. }) =
                self.messages.get_mut(at).and_then(|message| message.content.last_mut())
            {
                *cache_control = Some(CacheControl::Ephemeral);
            }
        }
    }

    fn add_text(&mut self, text: &'a str) {
        self.add(MessageRole::User, [SentBlock::content_block(SentContent::Text { text })]);
        self.newest = self.messages.len() - 1;
    }

    /// Adds a user's message, with its images first: the service understands images best before the text about them.
    fn add_user(&mut self, text: &'a str, wanted: &'a [ImageRef], images: &'a Images) {
        let source = |image: &'a Image| ImageSource::Base64 { media_type: image.media_type(), data: image.base64() };
        let pictures: Vec<_> = images
            .of(wanted)
            .map(|image| SentBlock::content_block(SentContent::Image { source: source(image) }))
            .collect();
        if !pictures.is_empty() {
            self.add(MessageRole::User, pictures);
            self.newest = self.messages.len() - 1;
        }
        // The service refuses blank texts.
        if !text.trim().is_empty() {
            self.add_text(text);
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
            self.add_text(BEGINNING);
        }
        let thoughts = thoughts.into_iter().flat_map(|reasoning| &reasoning.blocks).map(SentBlock::Reasoning);
        let text = text.map(|text| SentBlock::content_block(SentContent::Text { text }));
        let calls = calls.iter().zip(sent_ids).map(|(call, id)| {
            // The service accepts only objects as input. For any other input, the result of the call tells the model what it
            // wrote.
            let input = serde_json::from_str(&call.arguments).unwrap_or_default();
            SentBlock::content_block(SentContent::ToolUse {
                id: id.clone(),
                name: names.service_name(&call.name),
                input,
            })
        });
        self.add(MessageRole::Assistant, thoughts.chain(text).chain(calls));
    }

    /// Adds the results of `calls`. `after` holds the messages between the calls and the next answer.
    fn add_results(&mut self, calls: &[ToolCall], sent_ids: Vec<String>, after: &'a [Arc<ChatMessage>]) {
        let mut results: Vec<(&str, &'a str)> = after.iter().filter_map(|message| result(message)).collect();
        for (call, tool_use_id) in calls.iter().zip(sent_ids) {
            let at = results.iter().position(|(id, _)| *id == call.id);
            let content = at.map_or(NO_RESULT, |at| results.remove(at).1);
            self.add(MessageRole::User, [SentBlock::content_block(SentContent::ToolResult { tool_use_id, content })]);
        }
    }

    fn add(&mut self, role: MessageRole, blocks: impl IntoIterator<Item = SentBlock<'a>>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.content.extend(blocks),
            _ => self.messages.push(AnthropicMessage { role, content: blocks.into_iter().collect() }),
        }
    }
}

impl AnthropicMessage<'_> {
    fn has_results(&self) -> bool {
        matches!(self.content.first(), Some(SentBlock::Content { content: SentContent::ToolResult { .. }, .. }))
    }
}

impl<'a> SentBlock<'a> {
    fn content_block(content: SentContent<'a>) -> Self {
        Self::Content { content, cache_control: None }
    }
}

fn result(message: &ChatMessage) -> Option<(&str, &str)> {
    match message {
        ChatMessage::Tool { call_id, content, .. } => Some((call_id, content)),
        _ => None,
    }
}

/// Returns the id of the next call of a conversation; `used` holds the ids of those before, so that the id does not depend on
/// later messages. The service accepts ids of the form `^[a-zA-Z0-9_-]+$`, each once in a whole conversation, while other
/// services reuse ids from answer to answer.
fn next_call_id(used: &mut HashSet<String>, id: &str) -> String {
    numbered_name(&cleaned(id), |sent| !used.insert(sent.to_owned()))
}

fn cleaned(id: &str) -> String {
    let is_clean = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=ID_LIMIT).contains(&id.len()) && id.bytes().all(is_clean) {
        return id.to_owned();
    }
    format!("toolu_{}", hex(&Sha256::digest(id.as_bytes())[..12]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_clean_and_unique() {
        let mut used = HashSet::new();
        let long = "x".repeat(65);
        let sent: Vec<_> = ["a", "a", "a_2", "a", "b.c", "b c", "", &long].map(|id| next_call_id(&mut used, id)).into();
        assert_eq!(sent[..4], ["a", "a_2", "a_2_2", "a_3"]);
        assert!(sent[4..].iter().all(|id| id.starts_with("toolu_") && id.len() == 30), "{sent:?}");
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), sent.len());
    }
}
