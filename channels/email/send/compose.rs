//! A whole mail from a message. The same message makes the same bytes, however often it is sent.

use std::io;
use std::time::SystemTime;

use jiff::Timestamp;
use lettre::Message;
use lettre::address::Address;
use lettre::message::header::{ContentDisposition, ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, MultiPart, SinglePart};

use super::address::{self, mailbox, one_line};
use super::words::{MailWords, fill};
use super::{html, markdown, plain, references, subject};
use crate::email::answering::{Answering, Quote};
use crate::email::ids;
use crate::message::{Attachment, OutboundMessage};

/// The largest mail that is made, encoded, in bytes; the large providers take no more.
pub const MAX_MAIL: u64 = 25_000_000;
/// The longest text of a mail, in bytes.
const MAX_TEXT: usize = 1 << 20;
const MAX_FILES: usize = 50;
const MAX_QUOTE: usize = 4_000;
/// Who a mail goes to, at most, in each of To and Cc.
const MAX_RECIPIENTS: usize = 50;

/// Reads a file that goes along, up to a number of bytes.
pub type Load<'a> = &'a dyn Fn(&Attachment, u64) -> io::Result<Vec<u8>>;

/// A mail, ready to be handed over.
#[derive(Clone, Debug)]
pub struct Mail {
    /// Its Message-ID, with its angle brackets.
    pub id: String,
    pub from: Address,
    pub to: Vec<Address>,
    pub cc: Vec<Address>,
    pub bytes: Vec<u8>,
    /// Files go along.
    pub has_files: bool,
}

/// What all mails of an account have in common.
#[derive(Clone, Debug)]
pub struct Composer {
    from: Mailbox,
    reply_all: bool,
    words: MailWords,
}

/// What a mail is: an answer within a thread, or the beginning of one.
enum Place<'a> {
    Thread { root: &'a str, answering: &'a Answering },
    New { to: &'a str },
}

struct Text {
    plain: String,
    html: String,
    first_line: String,
}

impl Composer {
    /// # Errors
    ///
    /// `address` is none; one line.
    pub fn new(address: &str, name: &str, reply_all: bool) -> Result<Self, String> {
        let name = one_line(name);
        let from = Mailbox::new((!name.is_empty()).then_some(name), mailbox(address)?.email);
        Ok(Self { from, reply_all, words: MailWords::ENGLISH })
    }

    /// What is said beside the message's own text, in other words.
    pub fn speak(&mut self, words: MailWords) {
        self.words = words;
    }

    /// Makes the mail, of at most `room` bytes as far as that depends on what goes along.
    ///
    /// # Errors
    ///
    /// Nobody is there to send it to; one line.
    pub fn compose(
        &self,
        message: &OutboundMessage,
        answering: Option<&Answering>,
        load: Load<'_>,
        room: u64,
    ) -> Result<Mail, String> {
        let place = Place::of(message, answering)?;
        let (to, cc) = self.recipients(&place)?;
        let content = clean(&message.content);
        let (content, is_cut) = cut(&content, MAX_TEXT);
        let text_room = u64::try_from(content.len()).unwrap_or(u64::MAX).saturating_mul(6).saturating_add(20_000);
        // Base64 makes four of three, and breaks lines.
        let (files, mut remarks) = self.files(&message.attachments, load, room.saturating_sub(text_room) / 7 * 5);
        if is_cut {
            remarks.insert(0, self.words.cut.to_owned());
        }
        let text = self.text(content, &remarks, place.quote());
        let root = match &place {
            Place::Thread { root, .. } => Some(*root),
            Place::New { .. } => None,
        };
        let id = ids::message_id(message.id, root, self.from.email.domain());
        let has_files = !files.is_empty();
        // The mail builder panics for a date before 1970, which a wrong clock gives.
        let date = SystemTime::from(message.created_at.max(Timestamp::UNIX_EPOCH));
        let mut builder = Message::builder().date(date).from(self.from.clone());
        for recipient in &to {
            builder = builder.to(recipient.clone());
        }
        for recipient in &cc {
            builder = builder.cc(recipient.clone());
        }
        builder = builder.subject(self.subject(&place, message, &text.first_line)).message_id(Some(id.clone()));
        for (name, value) in self.fields(&place) {
            builder = builder.raw_header(HeaderValue::new(HeaderName::new_from_ascii_str(name), value));
        }
        let made = builder
            .multipart(parts(text, files, message))
            .map_err(|error| format!("no mail can be made of it: {error}"))?;
        let addresses = |mailboxes: Vec<Mailbox>| mailboxes.into_iter().map(|mailbox| mailbox.email).collect();
        Ok(Mail {
            id,
            from: self.from.email.clone(),
            to: addresses(to),
            cc: addresses(cc),
            bytes: made.formatted(),
            has_files,
        })
    }

    fn recipients(&self, place: &Place<'_>) -> Result<(Vec<Mailbox>, Vec<Mailbox>), String> {
        let answering = match place {
            Place::New { to } => return Ok((vec![mailbox(to)?], Vec::new())),
            Place::Thread { answering, .. } => answering,
        };
        let mut to = Vec::new();
        let mut wrong = "the mail that it answers names nobody to answer to".to_owned();
        for text in answering.to.iter().take(MAX_RECIPIENTS) {
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
            let others = answering.cc.iter().take(MAX_RECIPIENTS).filter_map(|text| mailbox(text).ok());
            let is_new =
                |one: &Mailbox| !to.iter().chain([&self.from]).any(|known| address::same(&known.email, &one.email));
            others.filter(is_new).for_each(|mailbox| add(&mut cc, mailbox));
        }
        Ok((to, cc))
    }

    fn subject(&self, place: &Place<'_>, message: &OutboundMessage, first_line: &str) -> String {
        match place {
            Place::Thread { answering, .. } => subject::of_reply(&answering.subject, self.words.no_subject),
            Place::New { .. } => subject::of_new(message.context.subject.as_deref(), first_line, self.words.message),
        }
    }

    /// The fields of the header that tell where it belongs, and that no person wrote it (RFC 3834, section 5).
    fn fields(&self, place: &Place<'_>) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        match place {
            Place::Thread { answering, .. } => {
                if let Some(id) = references::in_reply_to(answering) {
                    fields.push(("In-Reply-To", id));
                }
                if let Some(chain) = references::chain(answering) {
                    fields.push(("References", chain));
                }
                fields.push(("Auto-Submitted", "auto-replied".to_owned()));
            }
            Place::New { .. } => fields.push(("Auto-Submitted", "auto-generated".to_owned())),
        }
        // What Exchange listens to in place of the former: no receipts, no notes of absence.
        fields.push(("X-Auto-Response-Suppress", "All".to_owned()));
        if let Some(uri) = self.unsubscribe() {
            fields.push(("List-Unsubscribe", uri));
        }
        fields
    }

    /// RFC 2369, section 3.2.
    fn unsubscribe(&self) -> Option<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
        let local = self.from.email.user();
        local.chars().all(plain).then(|| format!("<mailto:{}?subject=unsubscribe>", self.from.email))
    }

    fn text(&self, content: &str, remarks: &[String], quote: Option<&Quote>) -> Text {
        let events = markdown::events(content, self.words.image);
        let first_line = markdown::first_line(&events);
        let mut html = html::body(events.iter().cloned());
        let mut lines = plain::body(events.into_iter());
        for remark in remarks {
            lines.fix("", 0);
            lines.flow(remark, 0);
            html.push_str(&html::paragraph(remark));
        }
        if let Some(quote) = quote {
            let head = fill(self.words.wrote, &[&shown_date(&quote.date), &one_line(&quote.from)]);
            let text: String = clean(&quote.text).chars().take(MAX_QUOTE).collect();
            plain::quote(&mut lines, &head, &text);
            html.push_str(&html::quotation(&head, &text));
        }
        Text { plain: lines.into_text(), html: html::document(&html), first_line }
    }

    /// The files that go along, as far as there is room, and what is to be said about the others.
    fn files(&self, attachments: &[Attachment], load: Load<'_>, room: u64) -> (Vec<SinglePart>, Vec<String>) {
        let mut parts = Vec::new();
        let mut remarks = Vec::new();
        let mut room = room;
        for attachment in attachments.iter().take(MAX_FILES) {
            let name = file_name(&attachment.name);
            if attachment.size > room {
                remarks.push(fill(self.words.too_large, &[&name, &shown_size(attachment.size)]));
                continue;
            }
            match load(attachment, room) {
                Ok(bytes) => {
                    room = room.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                    parts.push(enclosed(&name, &attachment.media_type, bytes));
                }
                Err(error) => {
                    tracing::warn!(path = attachment.path, %error, "a file does not go along with its mail");
                    let is_gone = error.kind() == io::ErrorKind::NotFound;
                    remarks.push(fill(if is_gone { self.words.gone } else { self.words.unreadable }, &[&name]));
                }
            }
        }
        let left_out = attachments.len().saturating_sub(MAX_FILES);
        if left_out > 0 {
            remarks.push(fill(self.words.too_many, &[&left_out.to_string()]));
        }
        (parts, remarks)
    }
}

impl<'a> Place<'a> {
    fn of(message: &'a OutboundMessage, answering: Option<&'a Answering>) -> Result<Self, String> {
        let chat = message.chat_id.as_str();
        if !(chat.starts_with('<') && chat.ends_with('>')) {
            return Ok(Self::New { to: chat });
        }
        match answering {
            Some(answering) => Ok(Self::Thread { root: chat, answering }),
            None => Err(format!("nothing is known of the thread {}, so there is nobody to write to", one_line(chat))),
        }
    }

    fn quote(&self) -> Option<&'a Quote> {
        match self {
            Self::Thread { answering, .. } => answering.quote.as_ref(),
            Self::New { .. } => None,
        }
    }
}

fn add(mailboxes: &mut Vec<Mailbox>, one: Mailbox) {
    if !mailboxes.iter().any(|known| address::same(&known.email, &one.email)) {
        mailboxes.push(one);
    }
}

fn parts(text: Text, files: Vec<SinglePart>, message: &OutboundMessage) -> MultiPart {
    // `=_` stands in no encoded text (RFC 2045, section 6.7), and the id in nobody else's.
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

fn enclosed(name: &str, media_type: &str, bytes: Vec<u8>) -> SinglePart {
    // Base64, whatever is in it: bytes are to arrive as they are, line ends too.
    let body = Body::new_with_encoding(bytes, ContentTransferEncoding::Base64)
        .unwrap_or_else(|bytes| Body::dangerous_pre_encoded(bytes, ContentTransferEncoding::Binary));
    SinglePart::builder().header(file_type(media_type)).header(ContentDisposition::attachment(name)).body(body)
}

/// A media type that may be encoded: `multipart` and `message` may not (RFC 2045, section 6.4).
fn file_type(media_type: &str) -> ContentType {
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
    // The end says what it is.
    let name: String = name.chars().skip(length.saturating_sub(MAX)).collect();
    if name.trim_matches(['.', ' ']).is_empty() { "file".to_owned() } else { name }
}

/// Text with `\n` between its lines, without other controls, not too long.
fn clean(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

fn cut(text: &str, max: usize) -> (&str, bool) {
    (&text[..text.floor_char_boundary(max)], text.len() > max)
}

fn shown_date(date: &str) -> String {
    match date.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => one_line(date),
    }
}

fn shown_size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} KB", bytes.div_ceil(1_000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}
