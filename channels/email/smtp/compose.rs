//! Composes a whole mail from a message. The same message always gives the same bytes.

use std::io;
use std::time::SystemTime;

use jiff::Timestamp;
use lettre::Message;
use lettre::address::Address;
use lettre::message::header::{ContentDisposition, ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, MessageBuilder, MultiPart, SinglePart};

use super::address::{self, mailbox};
use super::{html, markdown, plain, references};
use crate::email::mail::{ReplyContext, ReplyQuote};
use crate::email::message_id;
use crate::email::subject::{new_subject, reply_subject};
use crate::email::texts::MailTexts;
use crate::message::{Attachment, OutboundMessage};
use crate::text::{beginning, fill, format_size, one_line};

/// The largest mail after encoding, in bytes. The large providers accept no more.
pub const MAX_MAIL: u64 = 25_000_000;
/// The longest text of a mail, in bytes.
const MAX_TEXT: usize = 1 << 20;
const MAX_FILES: usize = 50;
const MAX_QUOTE: usize = 4_000;
/// The maximum number of recipients in each of To and Cc.
const MAX_RECIPIENTS: usize = 50;

/// Reads an attachment, up to a number of bytes; blocks.
pub type AttachmentLoader = dyn Fn(&Attachment, u64) -> io::Result<Vec<u8>> + Send + Sync;

/// A mail, ready to be sent.
#[derive(Clone, Debug)]
pub struct ComposedMail {
    /// The Message-ID, with angle brackets.
    pub id: String,
    pub from: Address,
    pub to: Vec<Address>,
    pub cc: Vec<Address>,
    pub bytes: Vec<u8>,
    /// Whether the mail has attachments.
    pub has_files: bool,
}

/// Composes the mails of one account.
#[derive(Clone, Debug)]
pub struct MailComposer {
    from: Mailbox,
    reply_all: bool,
    texts: &'static MailTexts,
}

struct MailBody {
    plain: String,
    html: String,
    first_line: String,
}

impl MailComposer {
    /// Creates the composer of the account `address`.
    ///
    /// # Errors
    ///
    /// One line: `address` is not an address.
    pub fn new(address: &str, name: &str, reply_all: bool, texts: &'static MailTexts) -> Result<Self, String> {
        let name = one_line(name);
        let from = Mailbox::new((!name.is_empty()).then_some(name), mailbox(address)?.email);
        Ok(Self { from, reply_all, texts })
    }

    /// Composes the mail; adds attachments up to a total of `room` bytes.
    ///
    /// # Errors
    ///
    /// One line: the mail has no recipient.
    pub fn compose(
        &self,
        message: &OutboundMessage,
        context: Option<&ReplyContext>,
        load: &AttachmentLoader,
        room: u64,
    ) -> Result<ComposedMail, String> {
        let thread = answered_thread(message, context)?;
        let (to, cc) = self.recipients(message, thread)?;
        let content = normalize_text(&message.content);
        let (content, is_cut) = (beginning(&content, MAX_TEXT), content.len() > MAX_TEXT);
        let text_room = u64::try_from(content.len()).unwrap_or(u64::MAX).saturating_mul(6).saturating_add(20_000);
        // Base64 turns three bytes into four and adds line breaks.
        let (files, mut remarks) = self.files(&message.attachments, load, room.saturating_sub(text_room) / 7 * 5);
        if is_cut {
            remarks.insert(0, self.texts.cut_text.to_owned());
        }
        let text = self.text(content, &remarks, thread.and_then(|context| context.quote.as_ref()));
        let root = thread.map(|_| message.chat_id.as_str());
        let id = message_id::message_id(message.id, root, self.from.email.domain());
        let has_files = !files.is_empty();
        // The mail builder panics for a date before 1970, which a wrong clock may give.
        let date = SystemTime::from(message.created_at.max(Timestamp::UNIX_EPOCH));
        let builder = Message::builder().date(date).from(self.from.clone());
        let builder = to.iter().cloned().fold(builder, MessageBuilder::to);
        let mut builder = cc.iter().cloned().fold(builder, MessageBuilder::cc);
        builder = builder.subject(self.subject(message, thread, &text.first_line)).message_id(Some(id.clone()));
        for (name, value) in self.fields(thread) {
            builder = builder.raw_header(HeaderValue::new(HeaderName::new_from_ascii_str(name), value));
        }
        let made = builder
            .multipart(body_parts(text, files, message))
            .map_err(|error| format!("no mail can be made of it: {error}"))?;
        let addresses = |mailboxes: Vec<Mailbox>| mailboxes.into_iter().map(|mailbox| mailbox.email).collect();
        Ok(ComposedMail {
            id,
            from: self.from.email.clone(),
            to: addresses(to),
            cc: addresses(cc),
            bytes: made.formatted(),
            has_files,
        })
    }

    fn recipients(
        &self,
        message: &OutboundMessage,
        thread: Option<&ReplyContext>,
    ) -> Result<(Vec<Mailbox>, Vec<Mailbox>), String> {
        let Some(context) = thread else { return Ok((vec![mailbox(&message.chat_id)?], Vec::new())) };
        let mut to = Vec::new();
        let mut wrong = "the mail that it answers names nobody to answer to".to_owned();
        for text in context.to.iter().take(MAX_RECIPIENTS) {
            match mailbox(text) {
                Ok(mailbox) => add(&mut to, mailbox),
                Err(reason) => wrong = reason,
            }
        }
        if to.is_empty() {
            return Err(wrong);
        }
        let mut cc = Vec::new();
        if self.reply_all {
            let others = context.cc.iter().take(MAX_RECIPIENTS).filter_map(|text| mailbox(text).ok());
            let is_new = |one: &Mailbox| {
                !to.iter().chain([&self.from]).any(|known| address::is_same_address(&known.email, &one.email))
            };
            others.filter(is_new).for_each(|mailbox| add(&mut cc, mailbox));
        }
        Ok((to, cc))
    }

    fn subject(&self, message: &OutboundMessage, thread: Option<&ReplyContext>, first_line: &str) -> String {
        match thread {
            Some(context) => reply_subject(&context.subject, self.texts.no_subject),
            None => new_subject(message.context.subject.as_deref(), first_line, self.texts.default_subject),
        }
    }

    /// Returns the header fields that name the thread and mark the mail as automatic (RFC 3834, section 5).
    fn fields(&self, thread: Option<&ReplyContext>) -> impl Iterator<Item = (&'static str, String)> {
        let kind = if thread.is_some() { "auto-replied" } else { "auto-generated" };
        let fields = [
            ("In-Reply-To", thread.and_then(references::in_reply_to)),
            ("References", thread.and_then(references::chain)),
            ("Auto-Submitted", Some(kind.to_owned())),
            // Exchange reads this field instead: no receipts, no out-of-office replies.
            ("X-Auto-Response-Suppress", Some("All".to_owned())),
            ("List-Unsubscribe", self.unsubscribe()),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Returns the value of List-Unsubscribe (RFC 2369, section 3.2).
    fn unsubscribe(&self) -> Option<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
        let local = self.from.email.user();
        local.chars().all(plain).then(|| format!("<mailto:{}?subject=unsubscribe>", self.from.email))
    }

    fn text(&self, content: &str, remarks: &[String], quote: Option<&ReplyQuote>) -> MailBody {
        let events = markdown::events(content, self.texts.image);
        let first_line = markdown::first_line(&events);
        let mut html = html::render(events.iter().cloned());
        let mut lines = plain::render(events.into_iter());
        for remark in remarks {
            lines.push_unwrapped("", 0);
            lines.push_wrapped(remark, 0);
            html.push_str(&html::paragraph(remark));
        }
        if let Some(quote) = quote {
            let head = fill(self.texts.quotation, &[&format_date(&quote.date), &one_line(&quote.from)]);
            let text: String = normalize_text(&quote.text).chars().take(MAX_QUOTE).collect();
            plain::quote(&mut lines, &head, &text);
            html.push_str(&html::quotation(&head, &text));
        }
        MailBody { plain: lines.into_text(), html: html::document(&html), first_line }
    }

    /// Loads the attachments that fit, and returns a remark for each of the others.
    fn files(&self, attachments: &[Attachment], load: &AttachmentLoader, room: u64) -> (Vec<SinglePart>, Vec<String>) {
        let mut parts = Vec::new();
        let mut remarks = Vec::new();
        let mut room = room;
        for attachment in attachments.iter().take(MAX_FILES) {
            let name = file_name(&attachment.name);
            if attachment.size > room {
                remarks.push(fill(self.texts.large_file, &[&name, &format_size(attachment.size)]));
                continue;
            }
            match load(attachment, room) {
                Ok(bytes) => {
                    room = room.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                    parts.push(attachment_part(&name, &attachment.media_type, bytes));
                }
                Err(error) => {
                    tracing::warn!(path = attachment.path, %error, "an attachment is missing in a mail");
                    let is_missing = error.kind() == io::ErrorKind::NotFound;
                    let text = if is_missing { self.texts.missing_file } else { self.texts.unreadable_file };
                    remarks.push(fill(text, &[&name]));
                }
            }
        }
        let left_out = attachments.len().saturating_sub(MAX_FILES);
        if left_out > 0 {
            remarks.push(fill(self.texts.more_files, &[&left_out.to_string()]));
        }
        (parts, remarks)
    }
}

/// Returns the context of the thread that a mail belongs to; `None` for a mail that begins one.
fn answered_thread<'a>(
    message: &OutboundMessage,
    context: Option<&'a ReplyContext>,
) -> Result<Option<&'a ReplyContext>, String> {
    let chat = &message.chat_id;
    if !message_id::is_thread(chat) {
        return Ok(None);
    }
    match context {
        Some(context) => Ok(Some(context)),
        None => Err(format!("nothing is known of the thread {}, so there is nobody to write to", one_line(chat))),
    }
}

fn add(mailboxes: &mut Vec<Mailbox>, one: Mailbox) {
    if !mailboxes.iter().any(|known| address::is_same_address(&known.email, &one.email)) {
        mailboxes.push(one);
    }
}

fn body_parts(text: MailBody, files: Vec<SinglePart>, message: &OutboundMessage) -> MultiPart {
    // `=_` occurs in no encoded text (RFC 2045, section 6.7), and the id occurs in no other mail.
    let boundary = |level: &str| format!("=_daoyou.{}.{level}", message.id.simple());
    let part = |media_type: &str, text: String| {
        let media_type = ContentType::parse(media_type).unwrap_or(ContentType::TEXT_PLAIN);
        SinglePart::builder().header(media_type).body(text)
    };
    let alternative = MultiPart::alternative()
        .boundary(boundary("text"))
        .singlepart(part("text/plain; charset=utf-8; format=flowed; delsp=yes", text.plain))
        .singlepart(part("text/html; charset=utf-8", text.html));
    if files.is_empty() {
        return alternative;
    }
    let mixed = MultiPart::mixed().boundary(boundary("all")).multipart(alternative);
    files.into_iter().fold(mixed, MultiPart::singlepart)
}

fn attachment_part(name: &str, media_type: &str, bytes: Vec<u8>) -> SinglePart {
    // Always Base64: the bytes must arrive unchanged, including line ends.
    let body = Body::new_with_encoding(bytes, ContentTransferEncoding::Base64)
        .unwrap_or_else(|bytes| Body::dangerous_pre_encoded(bytes, ContentTransferEncoding::Binary));
    SinglePart::builder().header(attachment_type(media_type)).header(ContentDisposition::attachment(name)).body(body)
}

/// Returns the attachment's media type, replacing types that must not be encoded, such as `multipart` and `message` (RFC
/// 2045, section 6.4).
fn attachment_type(media_type: &str) -> ContentType {
    const MAX: usize = 120;
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_container = essence.starts_with("multipart/") || essence.starts_with("message/");
    let known = (!is_container && essence.len() <= MAX).then(|| ContentType::parse(&essence).ok()).flatten();
    known.or_else(|| ContentType::parse("application/octet-stream").ok()).unwrap_or(ContentType::TEXT_PLAIN)
}

fn file_name(name: &str) -> String {
    const MAX: usize = 150;
    let name: String = one_line(name).chars().map(|c| if matches!(c, '/' | '\\') { '_' } else { c }).collect();
    let length = name.chars().count();
    // The end of a name shows the file type, so the beginning is cut.
    let name: String = name.chars().skip(length.saturating_sub(MAX)).collect();
    if name.trim_matches(['.', ' ']).is_empty() { "file".to_owned() } else { name }
}

/// Normalizes line ends to line feeds and removes other control characters.
fn normalize_text(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

fn format_date(date: &str) -> String {
    match date.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => one_line(date),
    }
}
