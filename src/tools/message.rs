//! The tool `message`, which sends a message to this chat before the turn's answer, or to another chat.

use async_trait::async_trait;
use daoyou_channels::outgoing::OutgoingFiles;
use daoyou_channels::{Attachment, Trust, email};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::arguments::with_arguments;
use super::files::WorkspaceJail;
use super::tool::{ReplayPolicy, Tool, ToolContext, ToolDefinition, ToolEffect, ToolOutcome};
use super::tool_result::ToolResult;
use crate::bus::DeliveryChannels;
use crate::guard::Jail;
use crate::text::one_line;

/// The tool's name.
const NAME: &str = "message";
/// The maximum size of an attachment, in bytes. Most mail servers accept about 25 MB, encoded.
pub(super) const ATTACHMENT_BYTES: u64 = 18_000_000;
/// The longest message, in characters.
const MAX_CHARS: usize = 100_000;
/// The maximum number of attachments of one message. Their total size must not exceed the limit of one attachment.
const MAX_ATTACHMENTS: usize = 10;
/// The longest subject, in characters.
const MAX_SUBJECT: usize = 200;

#[derive(Deserialize, JsonSchema)]
struct MessageArgs {
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

/// The chat that receives a message.
#[derive(Debug, PartialEq, Eq)]
struct ChatAddress {
    channel: String,
    chat_id: String,
}

/// The tool `message`. It sends through the outbox, so a message is committed together with the call's result.
pub struct MessageTool {
    definition: ToolDefinition,
    /// The jail of the attachments, which must lie in the workspace whatever else tools may read.
    files: WorkspaceJail,
    outgoing: OutgoingFiles,
    /// `None` if the channels are not known.
    channels: Option<DeliveryChannels>,
}

impl MessageTool {
    /// Creates the tool. `files` reads attachments, `outgoing` stores copies of them. If the `channels` are known, a message that
    /// nobody would read is refused.
    pub fn new(files: WorkspaceJail, outgoing: OutgoingFiles, channels: Option<DeliveryChannels>) -> Self {
        let description =
            "Send a message now, to this chat or another. Not for the final answer: that is sent by itself.";
        let definition = ToolDefinition {
            // Text from a file or page must not choose the recipient or the attachments.
            literal_arguments: &["channel", "chat_id", "attachments"],
            ..ToolDefinition::changing::<MessageArgs>(NAME, description, ReplayPolicy::Atomic)
        };
        Self { definition, files, outgoing, channels }
    }

    async fn send(&self, args: MessageArgs, context: &ToolContext) -> Result<ToolOutcome, String> {
        let address = ChatAddress::of(args.channel.as_deref(), args.chat_id.as_deref(), context)?;
        let ChatAddress { channel, chat_id } = address;
        let paths = args.attachments.unwrap_or_default();
        let attachments = if paths.is_empty() { Vec::new() } else { self.attach(paths, context).await? };
        let mut report = format!("The message goes to {channel}, chat {chat_id}");
        for (at, Attachment { name, size, .. }) in attachments.iter().enumerate() {
            report.push_str(&format!("{}{name} ({size} bytes)", if at == 0 { ", with " } else { ", " }));
        }
        report.push('.');
        let subject = args
            .subject
            .map(|subject| one_line(&subject).chars().take(MAX_SUBJECT).collect::<String>())
            .filter(|subject| !subject.is_empty());
        let content = args.content;
        Ok(ToolOutcome {
            result: ToolResult::ok(report),
            effects: vec![ToolEffect::Message { channel, chat_id, content, attachments, subject }],
        })
    }

    /// Refuses a channel on which nobody would read the message. The turn's own channel may be one that only answers a program, which
    /// gets the message with the answer. The call of an untrusted sender is refused or waits for the owner whatever other channel it
    /// names.
    fn check_channel(&self, chat: &ChatAddress, context: &ToolContext) -> Result<(), String> {
        let Some(channels) = &self.channels else { return Ok(()) };
        let channel = chat.channel.as_str();
        if channel == context.channel && !channels.0.contains_key(channel) {
            return Ok(());
        }
        let (is_own, is_untrusted) = (chat.is_own(context), context.trust == Trust::Untrusted);
        if is_untrusted && !is_own && !context.is_approved {
            return Ok(());
        }
        channels.check(channel, context.trust).map_err(|error| match is_own {
            true if is_untrusted => format!("{error}; say it in your answer"),
            true => format!("{error}; or say it in your answer"),
            false => error,
        })
    }

    async fn attach(&self, paths: Vec<String>, context: &ToolContext) -> Result<Vec<Attachment>, String> {
        let (workspace, outgoing) = (self.files.for_turn(context), self.outgoing.clone());
        let enclosed = tokio::task::spawn_blocking(move || read_attachments(&workspace, &outgoing, &paths)).await;
        enclosed.unwrap_or_else(|error| {
            tracing::error!(%error, "copying attachments panicked");
            Err("The tool failed inside daoyou; the fault is in its log".to_owned())
        })
    }
}

#[async_trait]
impl Tool for MessageTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Returns true for a message without attachments to the same chat. Nothing else is allowed for an untrusted sender.
    fn allows_untrusted(&self, arguments: &Value, context: &ToolContext) -> bool {
        let sends_files = match arguments.get("attachments") {
            None | Some(Value::Null) => false,
            Some(Value::Array(files)) => !files.is_empty(),
            Some(_) => true,
        };
        ChatAddress::of_call(arguments, context).is_ok_and(|chat| chat.is_own(context)) && !sends_files
    }

    /// Returns false for a message to the chat that started the turn: it is an answer.
    fn is_restricted(&self, arguments: &Value, context: &ToolContext) -> bool {
        ChatAddress::of_call(arguments, context).is_ok_and(|chat| !chat.is_own(context))
    }

    fn validate(&self, arguments: &Value, context: &ToolContext) -> Result<(), String> {
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
        let chat = ChatAddress::of_call(arguments, context)?;
        self.check_channel(&chat, context)?;
        match email::check_chat(&chat.chat_id) {
            Err(fault) if chat.channel == email::NAME && !chat.is_own(context) => Err(format!("chat_id: {fault}")),
            _ => Ok(()),
        }
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        with_arguments(arguments, |args| self.send(args, context)).await
    }
}

impl ChatAddress {
    /// Returns the address. Without names, it is the chat of the message that the turn answers.
    fn of(channel: Option<&str>, chat_id: Option<&str>, context: &ToolContext) -> Result<Self, String> {
        let is_named = |word: &&str| !word.is_empty();
        let channel = channel.map(str::trim).filter(is_named).unwrap_or(&context.channel);
        let chat_id = match chat_id.map(str::trim).filter(is_named) {
            Some(chat_id) => chat_id,
            None if channel == context.channel => &context.chat_id,
            None => return Err(format!("a message to channel {channel:?} needs a chat_id")),
        };
        Ok(Self { channel: channel.to_owned(), chat_id: chat_id.to_owned() })
    }

    /// Returns the chat that receives the message of a call.
    fn of_call(arguments: &Value, context: &ToolContext) -> Result<Self, String> {
        Self::of(arguments["channel"].as_str(), arguments["chat_id"].as_str(), context)
    }

    /// Returns true for the chat that started the turn.
    fn is_own(&self, context: &ToolContext) -> bool {
        self.channel == context.channel && self.chat_id == context.chat_id
    }
}

/// Reads each file once and stores a copy of its content, which is sent even if the file changes in the meantime.
fn read_attachments(workspace: &Jail, outgoing: &OutgoingFiles, paths: &[String]) -> Result<Vec<Attachment>, String> {
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

/// Returns the media type of a file by its extension.
fn media_type_of(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    match ending.as_str() {
        "txt" | "log" | "toml" | "ini" => "text/plain",
        "md" | "markdown" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "ics" => "text/calendar",
        "vcf" => "text/vcard",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "tar" => "application/x-tar",
        "doc" => "application/msword",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xls" => "application/vnd.ms-excel",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "ppt" => "application/vnd.ms-powerpoint",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "odt" => "application/vnd.oasis.opendocument.text",
        "ods" => "application/vnd.oasis.opendocument.spreadsheet",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{ToolFixture, context};
    use super::*;
    use crate::tools::{ToolDeps, ToolsConfig};

    async fn call(fixture: &ToolFixture, arguments: &Value) -> ToolOutcome {
        fixture.run(NAME, arguments, &context()).await
    }

    #[tokio::test]
    async fn a_message_goes_to_the_named_chat_or_the_current_one() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        for (arguments, expected) in [
            (json!({}), Ok(("cli", "direct", None))),
            (json!({"channel": " ", "chat_id": ""}), Ok(("cli", "direct", None))),
            (json!({"chat_id": "other"}), Ok(("cli", "other", None))),
            (json!({"channel": "email"}), Err("needs a chat_id")),
            (
                json!({"channel": "email", "chat_id": "a@b.test", "subject": " New\r\nBcc: x "}),
                Ok(("email", "a@b.test", Some("New Bcc: x"))),
            ),
            (json!({"channel": "email", "chat_id": "foo bar"}), Err("chat_id: \"foo bar\" is not an e-mail address")),
        ] {
            let mut arguments = arguments;
            arguments["content"] = json!("hi");
            let outcome = call(&fixture, &arguments).await;
            match expected {
                Ok((channel, chat_id, subject)) => {
                    let own = str::to_owned;
                    let (channel, chat_id, content) = (own(channel), own(chat_id), own("hi"));
                    let subject = subject.map(own);
                    let message = ToolEffect::Message { channel, chat_id, content, attachments: Vec::new(), subject };
                    assert_eq!(outcome.effects, [message], "{arguments}");
                }
                Err(expected_text) => assert!(outcome.result.render().contains(expected_text), "{arguments}"),
            }
        }
    }

    #[tokio::test]
    async fn a_message_that_nobody_would_read_is_refused() {
        let channels = [("email", true), ("webhook:in", true), ("webhook:deaf", false)];
        let channels = Some(DeliveryChannels(channels.map(|(name, is_read)| (name.to_owned(), is_read)).into()));
        let deps = ToolDeps { channels, ..ToolDeps::default() };
        let fixture = ToolFixture::with_deps(&ToolsConfig::default(), deps);
        for (channel, expected) in [
            (
                "telegram",
                Some(
                    "channel: there is no channel \"telegram\" that is switched on; name another channel and chat: there are \
                     email, webhook:in",
                ),
            ),
            (
                "webhook:deaf",
                Some(
                    "webhook:deaf has no callback_url, so nobody reads there what was not asked for; set channels.webhook",
                ),
            ),
            ("email", None),
            // The terminal of this turn, whatever the list says.
            ("cli", None),
        ] {
            let outcome = call(&fixture, &json!({"content": "hi", "channel": channel, "chat_id": "x@y.test"})).await;
            assert_eq!(outcome.effects.is_empty(), expected.is_some(), "{channel}");
            assert!(outcome.result.render().contains(expected.unwrap_or_default()), "{}", outcome.result.render());
        }
        // The answer reaches only the own chat, and only a trusted turn learns the other channels.
        for (trust, chat_id, is_answer, is_list) in [
            (Trust::Owner, "c", true, true),
            (Trust::Owner, "other", false, true),
            (Trust::Untrusted, "c", true, false),
        ] {
            let context =
                ToolContext { channel: "webhook:deaf".to_owned(), chat_id: "c".to_owned(), trust, ..context() };
            let error =
                fixture.run(NAME, &json!({"content": "hi", "chat_id": chat_id}), &context).await.result.render();
            let found = ["no callback_url", "in your answer", "email", "set channels"].map(|part| error.contains(part));
            assert_eq!(found, [true, is_answer, is_list, is_list], "{error}");
        }
    }

    #[tokio::test]
    async fn only_files_of_the_workspace_are_attached() {
        let fixture = ToolFixture::new(&ToolsConfig { restrict_to_workspace: false, ..ToolsConfig::default() });
        std::fs::create_dir(fixture.path("out")).unwrap();
        std::fs::write(fixture.path("out/报告.pdf"), "%PDF").unwrap();
        std::fs::write(fixture.home.path().join("secret.txt"), "no").unwrap();
        std::os::unix::fs::symlink(fixture.home.path().join("secret.txt"), fixture.path("link.txt")).unwrap();
        std::os::unix::fs::symlink("out/报告.pdf", fixture.path("near.txt")).unwrap();
        std::fs::File::create(fixture.path("large.bin")).unwrap().set_len(ATTACHMENT_BYTES + 1).unwrap();
        std::fs::File::create(fixture.path("half.bin")).unwrap().set_len(ATTACHMENT_BYTES / 2 + 1).unwrap();
        let send = async |paths: &[&str]| call(&fixture, &json!({"content": "here", "attachments": paths})).await;
        let outcome = send(&["./out/报告.pdf"]).await;
        let own = str::to_owned;
        let file = Attachment {
            name: own("报告.pdf"),
            path: own("out/报告.pdf"),
            media_type: own("application/pdf"),
            size: 4,
            // Computed by sha256sum.
            digest: own("315d429b7714cedb6ad04ac31240145257692630457f3c88253c5beceac76027"),
        };
        assert!(
            matches!(&outcome.effects[..], [ToolEffect::Message { attachments, .. }] if *attachments == [file.clone()])
        );
        std::fs::write(fixture.path("out/报告.pdf"), "another").unwrap();
        let copies = OutgoingFiles::of_home(fixture.home.path());
        assert_eq!(copies.load(&file, 4).unwrap(), b"%PDF", "what was read is what is sent");
        assert!(outcome.result.render().ends_with("with 报告.pdf (4 bytes)."), "{}", outcome.result.render());
        let secret = fixture.home.path().join("secret.txt").display().to_string();
        for (paths, expected_text) in [
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
            let report = outcome.result.render();
            assert!(report.contains(expected_text) && outcome.effects.is_empty(), "{paths:?}: {report}");
        }
    }
}
