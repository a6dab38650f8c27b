//! `message`: says something in a chat before the turn's answer, or in another chat.

use async_trait::async_trait;
use daoyou_channels::Trust;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Effect, Replay, Tool, ToolContext, ToolOutcome, ToolResult, tool_spec};
use crate::llm::ToolSpec;

/// The longest message, in characters.
const MAX_CHARS: usize = 100_000;

#[derive(Deserialize, JsonSchema)]
struct Args {
    content: String,
    /// Default: this chat's.
    channel: Option<String>,
    /// Default: this chat.
    chat_id: Option<String>,
}

/// Sends through the outbox: the message is committed together with this call's result.
pub struct MessageTool {
    spec: ToolSpec,
}

impl MessageTool {
    pub fn new() -> Self {
        let description =
            "Send a message now, to this chat or another. Not for the final answer: that is sent by itself.";
        Self { spec: tool_spec::<Args>("message", description) }
    }
}

impl Default for MessageTool {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Tool for MessageTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["send_message", "reply", "notify"]
    }

    fn replay(&self) -> Replay {
        Replay::Atomic
    }

    /// What a file or a page says must not choose who is written to.
    fn sealed_arguments(&self) -> &'static [&'static str] {
        &["channel", "chat_id"]
    }

    fn check(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let content = arguments.get("content").and_then(Value::as_str).unwrap_or_default();
        if content.trim().is_empty() {
            return Err("content is empty".to_owned());
        }
        if content.chars().count() > MAX_CHARS {
            return Err(format!("content is longer than {MAX_CHARS} characters; send it in parts"));
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        match serde_json::from_value(arguments) {
            Ok(args) => addressed(args, context).unwrap_or_else(|error| ToolResult::failed(error).into()),
            Err(error) => ToolResult::failed(error.to_string()).into(),
        }
    }
}

fn addressed(args: Args, context: &ToolContext) -> Result<ToolOutcome, String> {
    let named = |word: Option<String>| word.map(|word| word.trim().to_owned()).filter(|word| !word.is_empty());
    let channel = named(args.channel).unwrap_or_else(|| context.channel.clone());
    let chat_id = match named(args.chat_id) {
        Some(chat_id) => chat_id,
        None if channel == context.channel => context.chat_id.clone(),
        None => return Err(format!("a message to channel {channel:?} needs a chat_id")),
    };
    let own = channel == context.channel && chat_id == context.chat_id;
    if !own && context.trust == Trust::Untrusted {
        return Err("this conversation may only send to its own chat".to_owned());
    }
    let told = format!("The message goes to {channel}, chat {chat_id}.");
    Ok(ToolOutcome {
        result: ToolResult::ok(told),
        effects: vec![Effect::Message { channel, chat_id, content: args.content }],
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::context;
    use super::*;

    #[test]
    fn strangers_write_to_their_own_chat_only() {
        for (trust, channel, chat_id, expected) in [
            (Trust::Known, None, None, Ok(("cli", "direct"))),
            (Trust::Untrusted, None, None, Ok(("cli", "direct"))),
            (Trust::Untrusted, Some("cli"), Some("direct"), Ok(("cli", "direct"))),
            (Trust::Untrusted, None, Some("other"), Err("own chat")),
            (Trust::Untrusted, Some("email"), Some("direct"), Err("own chat")),
            (Trust::Known, Some("email"), Some("a@b"), Ok(("email", "a@b"))),
            (Trust::Owner, Some("email"), None, Err("needs a chat_id")),
            (Trust::Owner, Some(" "), Some(""), Ok(("cli", "direct"))),
        ] {
            let args = Args {
                content: "hi".to_owned(),
                channel: channel.map(str::to_owned),
                chat_id: chat_id.map(str::to_owned),
            };
            let mut context = context();
            context.trust = trust;
            let got = addressed(args, &context).map(|outcome| outcome.effects);
            match expected {
                Ok((channel, chat_id)) => {
                    let message = Effect::Message {
                        channel: channel.to_owned(),
                        chat_id: chat_id.to_owned(),
                        content: "hi".to_owned(),
                    };
                    assert_eq!(got, Ok(vec![message]));
                }
                Err(words) => assert!(got.unwrap_err().contains(words)),
            }
        }
    }
}
