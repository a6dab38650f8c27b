//! `message`: says something in a chat before the turn's answer, or in another chat.

use async_trait::async_trait;
use daoyou_channels::Attachment;
use daoyou_channels::outgoing::OutgoingFiles;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::files::Doors;
use super::media::media_type_of;
use super::{Effect, Replay, Tool, ToolContext, ToolOutcome, ToolResult, tool_spec};
use crate::chat::ToolSpec;
use crate::guard::Jail;
use crate::text::one_line;

/// The tool's name.
pub(super) const NAME: &str = "message";
/// The largest file that is sent along, in bytes: most mail servers take about 25 MB, encoded.
pub(super) const ATTACHMENT_BYTES: u64 = 18_000_000;
/// The longest message, in characters.
const MAX_CHARS: usize = 100_000;
/// Files of one message; together they are no larger than one may be.
const MAX_ATTACHMENTS: usize = 10;
/// The longest subject, in characters.
const MAX_SUBJECT: usize = 200;

#[derive(Deserialize, JsonSchema)]
struct Args {
    content: String,
    /// Default: this chat's.
    channel: Option<String>,
    /// Default: this chat. For email an address: that begins a new mail.
    chat_id: Option<String>,
    /// Paths of files in the workspace.
    attachments: Option<Vec<String>>,
    /// Of a new mail.
    subject: Option<String>,
}

/// Where a message goes.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    channel: String,
    chat_id: String,
}

/// Sends through the outbox: the message is committed together with this call's result.
pub struct MessageTool {
    spec: ToolSpec,
    /// Whatever else tools may reach: what is sent along lies in the workspace.
    doors: Doors,
    outgoing: OutgoingFiles,
}

impl MessageTool {
    /// `doors` serve the files that are sent along, `outgoing` keeps what is sent of them.
    pub fn new(doors: Doors, outgoing: OutgoingFiles) -> Self {
        let description =
            "Send a message now, to this chat or another. Not for the final answer: that is sent by itself.";
        Self { spec: tool_spec::<Args>(NAME, description), doors, outgoing }
    }

    async fn send(&self, args: Args, context: &ToolContext) -> Result<ToolOutcome, String> {
        let Address { channel, chat_id } = Address::of(args.channel, args.chat_id, context)?;
        let paths = args.attachments.unwrap_or_default();
        let attachments = if paths.is_empty() { Vec::new() } else { self.enclose(paths, context).await? };
        let mut told = format!("The message goes to {channel}, chat {chat_id}");
        for (at, Attachment { name, size, .. }) in attachments.iter().enumerate() {
            told.push_str(&format!("{}{name} ({size} bytes)", if at == 0 { ", with " } else { ", " }));
        }
        told.push('.');
        let subject = args
            .subject
            .map(|subject| one_line(&subject).chars().take(MAX_SUBJECT).collect::<String>())
            .filter(|subject| !subject.is_empty());
        let content = args.content;
        Ok(ToolOutcome {
            result: ToolResult::ok(told),
            effects: vec![Effect::Message { channel, chat_id, content, attachments, subject }],
        })
    }

    async fn enclose(&self, paths: Vec<String>, context: &ToolContext) -> Result<Vec<Attachment>, String> {
        let (workspace, outgoing) = (self.doors.of(context), self.outgoing.clone());
        let enclosed = tokio::task::spawn_blocking(move || enclosed(&workspace, &outgoing, &paths)).await;
        enclosed.unwrap_or_else(|error| {
            tracing::error!(%error, "copying attachments broke off");
            Err("The tool failed inside daoyou; the fault is in its log".to_owned())
        })
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

    /// What a file or a page says must not choose who is written to, nor what is sent along.
    fn sealed_arguments(&self) -> &'static [&'static str] {
        &["channel", "chat_id", "attachments"]
    }

    /// Who gives no orders is written to alone, and is sent no files.
    fn serves_strangers(&self, arguments: &Value, context: &ToolContext) -> bool {
        let text = |key: &str| arguments.get(key).and_then(Value::as_str).map(str::to_owned);
        let own = Address { channel: context.channel.clone(), chat_id: context.chat_id.clone() };
        let sends_files = match arguments.get("attachments") {
            None | Some(Value::Null) => false,
            Some(Value::Array(files)) => !files.is_empty(),
            Some(_) => true,
        };
        Address::of(text("channel"), text("chat_id"), context).is_ok_and(|address| address == own) && !sends_files
    }

    fn check(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let content = arguments.get("content").and_then(Value::as_str).unwrap_or_default();
        if content.trim().is_empty() {
            return Err("content is empty".to_owned());
        }
        if content.chars().count() > MAX_CHARS {
            return Err(format!("content is longer than {MAX_CHARS} characters; send it in parts"));
        }
        let attachments = arguments.get("attachments").and_then(Value::as_array).map_or(0, Vec::len);
        if attachments > MAX_ATTACHMENTS {
            return Err(format!("{attachments} attachments, at most {MAX_ATTACHMENTS} go with one message"));
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        match serde_json::from_value(arguments) {
            Ok(args) => self.send(args, context).await.unwrap_or_else(|error| ToolResult::failed(error).into()),
            Err(error) => ToolResult::failed(error.to_string()).into(),
        }
    }
}

impl Address {
    /// The chat that is meant; without names that of the turn's message.
    fn of(channel: Option<String>, chat_id: Option<String>, context: &ToolContext) -> Result<Self, String> {
        let named = |word: Option<String>| word.map(|word| word.trim().to_owned()).filter(|word| !word.is_empty());
        let channel = named(channel).unwrap_or_else(|| context.channel.clone());
        let chat_id = match named(chat_id) {
            Some(chat_id) => chat_id,
            None if channel == context.channel => context.chat_id.clone(),
            None => return Err(format!("a message to channel {channel:?} needs a chat_id")),
        };
        Ok(Self { channel, chat_id })
    }
}

/// Opens each file once and keeps a copy of what it read there: whatever stands by that name when the message is sent, this is
/// what goes.
fn enclosed(workspace: &Jail, outgoing: &OutgoingFiles, paths: &[String]) -> Result<Vec<Attachment>, String> {
    let mut attachments = Vec::with_capacity(paths.len());
    let mut together = 0;
    for path in paths {
        if path.chars().any(char::is_control) {
            return Err(format!("attachments: {path:?}: its name holds control characters"));
        }
        let opened = workspace.read(path).map_err(|error| format!("attachments: {error}"))?;
        let size = opened.bytes.len() as u64;
        together += size;
        if together > ATTACHMENT_BYTES {
            return Err(format!("attachments: together they have more than {ATTACHMENT_BYTES} bytes; send fewer"));
        }
        let digest = outgoing.keep(&opened.bytes).map_err(|error| {
            tracing::error!(%error, "the copy of an attachment cannot be kept");
            format!("attachments: {path}: it cannot be copied to be sent: {error}")
        })?;
        let name = opened.shown.rsplit('/').next().unwrap_or_default().to_owned();
        let media_type = media_type_of(&name).to_owned();
        attachments.push(Attachment { name, media_type, path: opened.shown, size, digest });
    }
    Ok(attachments)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{World, context};
    use super::*;
    use crate::chat::ToolCall;
    use crate::tools::ToolsConfig;

    async fn call(world: &World, arguments: &Value) -> ToolOutcome {
        let call = ToolCall { id: "1".to_owned(), name: NAME.to_owned(), arguments: arguments.to_string() };
        world.executor.run(&call, &context()).await
    }

    #[tokio::test]
    async fn a_message_goes_where_it_is_told_to() {
        let world = World::new(&ToolsConfig::default());
        for (arguments, expected) in [
            (json!({}), Ok(("cli", "direct", None))),
            (json!({"channel": " ", "chat_id": ""}), Ok(("cli", "direct", None))),
            (json!({"chat_id": "other"}), Ok(("cli", "other", None))),
            (json!({"channel": "email"}), Err("needs a chat_id")),
            (
                json!({"channel": "email", "chat_id": "a@b", "subject": " New\r\nBcc: x "}),
                Ok(("email", "a@b", Some("New Bcc: x"))),
            ),
        ] {
            let mut arguments = arguments;
            arguments["content"] = json!("hi");
            let outcome = call(&world, &arguments).await;
            match expected {
                Ok((channel, chat_id, subject)) => {
                    let own = str::to_owned;
                    let (channel, chat_id, content) = (own(channel), own(chat_id), own("hi"));
                    let subject = subject.map(own);
                    let message = Effect::Message { channel, chat_id, content, attachments: Vec::new(), subject };
                    assert_eq!(outcome.effects, [message], "{arguments}");
                }
                Err(words) => assert!(outcome.result.render().contains(words), "{arguments}"),
            }
        }
    }

    #[tokio::test]
    async fn files_of_the_workspace_go_along_and_no_others() {
        let world = World::new(&ToolsConfig { restrict_to_workspace: false, ..ToolsConfig::default() });
        std::fs::create_dir(world.path("out")).unwrap();
        std::fs::write(world.path("out/报告.pdf"), "%PDF").unwrap();
        std::fs::write(world.home.path().join("secret.txt"), "no").unwrap();
        std::os::unix::fs::symlink(world.home.path().join("secret.txt"), world.path("link.txt")).unwrap();
        std::os::unix::fs::symlink("out/报告.pdf", world.path("near.txt")).unwrap();
        std::fs::File::create(world.path("large.bin")).unwrap().set_len(ATTACHMENT_BYTES + 1).unwrap();
        std::fs::File::create(world.path("half.bin")).unwrap().set_len(ATTACHMENT_BYTES / 2 + 1).unwrap();
        let send = async |paths: &[&str]| call(&world, &json!({"content": "here", "attachments": paths})).await;
        let outcome = send(&["./out/报告.pdf"]).await;
        let own = str::to_owned;
        let file = Attachment {
            name: own("报告.pdf"),
            path: own("out/报告.pdf"),
            media_type: own("application/pdf"),
            size: 4,
            // Of the bytes, by sha256sum.
            digest: own("315d429b7714cedb6ad04ac31240145257692630457f3c88253c5beceac76027"),
        };
        assert!(
            matches!(&outcome.effects[..], [Effect::Message { attachments, .. }] if *attachments == [file.clone()])
        );
        std::fs::write(world.path("out/报告.pdf"), "another").unwrap();
        let copies = OutgoingFiles::of_home(world.home.path());
        assert_eq!(copies.load(&file, 4).unwrap(), b"%PDF", "what was read is what is sent");
        assert!(outcome.result.render().ends_with("with 报告.pdf (4 bytes)."), "{}", outcome.result.render());
        let secret = world.home.path().join("secret.txt").display().to_string();
        for (paths, words) in [
            (&["gone.pdf"][..], "no such file"),
            (&["out"], "is a folder"),
            (&["../secret.txt"], "outside the workspace"),
            (&[secret.as_str()], "outside the workspace"),
            (&["link.txt"], "is a link"),
            (&["near.txt"], "is a link"),
            (&["large.bin"], "more than the limit"),
            (&["half.bin", "half.bin"], "together they have more"),
            (&["out/报告.pdf"; 11], "at most 10"),
        ] {
            let outcome = send(paths).await;
            let told = outcome.result.render();
            assert!(told.contains(words) && outcome.effects.is_empty(), "{paths:?}: {told}");
        }
    }
}
