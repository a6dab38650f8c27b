//! Finds the text among the parts of a mail and collects the attachments.

use super::attachments::AttachmentCollector;
use super::header_fields::decode_unstructured;
use super::limits::ParseLimits;
use super::mime::{MimePart, MimeTree};
use super::plain_text::{strip_pgp_armor, unflow};
use super::quote::{StrippedText, strip_quotes};
use super::transfer_encoding::TransferEncoding;
use super::{calendar, charset, html};
use crate::email::subject::is_forward_subject;
use crate::sanitize::{sanitize_text, truncate};

/// Longest report of a mail server in bytes; the rest is cut.
const MAX_REPORT: usize = 5_000;

/// Remark about content that only the recipient's key can decrypt.
const ENCRYPTED: &str = "A part of this mail is encrypted, unreadable.";
const OPAQUE: &str = "A part of this mail is signed in a way that wraps its text (S/MIME), unreadable.";
const TNEF: &str =
    "winmail.dat is in Outlook's own format (TNEF), unreadable; its sender can send HTML or plain text instead.";
const UNSEPARABLE: &str = "Parts of this mail could not be separated and were left out.";
const LONG: &str = "The text of this mail is very long; only its beginning was read.";

/// A piece of the mail's text.
enum TextBlock {
    Plain(String),
    Html(String),
    /// A separate text after the body: an invitation, or a mail inside the mail.
    Separate(String),
}

/// Reads the parts of a mail and of the mails inside it.
pub struct BodyReader<'l> {
    limits: &'l ParseLimits,
    pub attachments: AttachmentCollector<'l>,
    /// The remaining bytes of text, for all parts together.
    text_room: usize,
    /// The remaining number of parts.
    parts_room: usize,
    /// The nesting depth of mails and of multiparts without a boundary. Each level holds a copy.
    level: usize,
    /// True if another mail, a report about one, or an invitation was read. Its text is not the sender's.
    has_foreign_text: bool,
}

impl<'l> BodyReader<'l> {
    pub fn new(limits: &'l ParseLimits) -> Self {
        let attachments = AttachmentCollector::new(limits);
        let (text_room, parts_room) = (limits.text_parts, limits.parts);
        Self { limits, attachments, text_room, parts_room, level: 0, has_foreign_text: false }
    }

    /// Parses a mail with at most the remaining number of parts.
    pub fn tree<'a>(&mut self, raw: &'a [u8]) -> MimeTree<'a> {
        let tree = MimeTree::parse(raw, self.parts_room, self.limits);
        self.parts_room = self.parts_room.saturating_sub(tree.parts.len());
        if tree.has_too_many_parts {
            self.attachments.remark(format!(
                "This mail has more than {} parts; the last of them were left out.",
                self.limits.parts
            ));
        }
        if tree.is_too_deep {
            self.attachments.remark("Parts of this mail are nested too deeply and were left out.");
        }
        tree
    }

    /// Extracts the text of a mail.
    pub fn text(&mut self, tree: &MimeTree<'_>, subject: &str, is_reply: bool) -> StrippedText {
        if tree.parts.is_empty() {
            return StrippedText::default();
        }
        let blocks = self.part(tree, 0, false);
        let max = self.limits.text * 2;
        let mut text = String::new();
        let mut separate = String::new();
        for block in blocks {
            if text.len().max(separate.len()) > max {
                break;
            }
            match block {
                TextBlock::Plain(plain) => append(&mut text, &plain),
                TextBlock::Html(page) => append(&mut text, &self.markdown(&page)),
                // The same invitation often occurs both as text and as an attachment.
                TextBlock::Separate(piece) if !separate.contains(&piece) => append(&mut separate, &piece),
                TextBlock::Separate(_) => {}
            }
        }
        if truncate(&mut text, max) {
            self.attachments.remark(LONG);
        }
        let mut found = strip_quotes(&text, is_forward_subject(subject), is_reply);
        append(&mut found.text, &separate);
        found.is_forward |= self.has_foreign_text || is_forward_subject(subject);
        found
    }

    fn part(&mut self, tree: &MimeTree<'_>, number: usize, is_related: bool) -> Vec<TextBlock> {
        let part = &tree.parts[number];
        match protection(part) {
            Some(PartProtection::Unreadable(why)) => {
                self.attachments.remark(why);
                return Vec::new();
            }
            Some(PartProtection::Signature) => return Vec::new(),
            None => {}
        }
        if part.content.is("multipart/") && !part.children.is_empty() {
            if part.content.is("multipart/alternative") {
                return self.alternative(tree, part, is_related);
            }
            let is_related = is_related || part.content.is("multipart/related");
            return part.children.iter().flat_map(|child| self.part(tree, *child, is_related)).collect();
        }
        self.leaf(part, is_related, number == 0)
    }

    /// Reads a part without children. `is_whole` is true if the part is the mail itself.
    fn leaf(&mut self, part: &MimePart<'_>, is_related: bool, is_whole: bool) -> Vec<TextBlock> {
        let is_attached = part.disposition.is("attachment");
        let is_named = part.file_name().is_some();
        match part.content.value.as_str() {
            "message/rfc822" | "message/global" if self.level < self.limits.mails => {
                vec![TextBlock::Separate(self.mail(part))]
            }
            "text/calendar" | "application/ics" => {
                let description = calendar::describe(&self.decode_text(part));
                // An invitation may be another person's, and may name anybody as its organizer.
                self.has_foreign_text |= description.is_some();
                if description.is_none() || is_attached || is_named {
                    self.attachments.add(part, is_related);
                }
                description.map(TextBlock::Separate).into_iter().collect()
            }
            "message/delivery-status" | "message/disposition-notification" | "text/rfc822-headers" => {
                let mut text = self.decode_text(part);
                truncate(&mut text, MAX_REPORT);
                self.has_foreign_text = true;
                vec![TextBlock::Separate(sanitize_text(&text))]
            }
            "text/html" if is_whole || !(is_attached || is_named) => vec![TextBlock::Html(self.decode_text(part))],
            "text/plain" if is_whole || !(is_attached || is_named) => self.plain(part),
            // A multipart whose boundary never occurs (RFC 2046, section 5.1) or that is nested too deeply.
            kind if kind.starts_with("multipart/") && self.level < self.limits.mails => {
                self.level += 1;
                let blocks = self.multipart_without_boundary(part, is_related);
                self.level -= 1;
                blocks
            }
            kind if kind.starts_with("multipart/") => {
                self.attachments.remark(UNSEPARABLE);
                Vec::new()
            }
            _ => {
                self.attachments.add(part, is_related);
                Vec::new()
            }
        }
    }

    /// Reads a multipart whose header names no usable boundary: the first line that looks like a boundary is used. Without
    /// such a line, content that looks like parts does not count as text.
    fn multipart_without_boundary(&mut self, part: &MimePart<'_>, is_related: bool) -> Vec<TextBlock> {
        let is_field = |line: &[u8]| line.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
        let mut lines = part.body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).peekable();
        let mut found = lines.peek().is_some_and(|first| is_field(first)).then_some(None);
        while found.is_none()
            && let Some(line) = lines.next()
        {
            if lines.peek().is_some_and(|next| is_field(next)) {
                found = Some(line.strip_prefix(b"--").filter(|boundary| (1..=200).contains(&boundary.len())));
            }
        }
        let Some(boundary) = found else { return self.plain(part) };
        if let Some(boundary) = boundary.filter(|boundary| self.parts_room > 0 && !boundary.contains(&b'"')) {
            let head: [&[u8]; 3] = [b"Content-Type: multipart/mixed; boundary=\"", boundary, b"\"\r\n\r\n"];
            let raw = [&head.concat(), part.body].concat();
            let tree = self.tree(&raw);
            if tree.parts.first().is_some_and(|first| !first.children.is_empty()) {
                return self.part(&tree, 0, is_related);
            }
        }
        self.attachments.remark(UNSEPARABLE);
        Vec::new()
    }

    fn plain(&mut self, part: &MimePart<'_>) -> Vec<TextBlock> {
        let (text, is_encrypted) = strip_pgp_armor(&self.decode_text(part));
        if is_encrypted {
            self.attachments.remark(ENCRYPTED);
        }
        let start = text.trim_start().as_bytes();
        let begins = |tag: &[u8]| start.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
        if begins(b"<html") || begins(b"<!doctype html") {
            return vec![TextBlock::Html(text)];
        }
        let has_param =
            |name: &str, word: &str| part.content.param(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
        let text = sanitize_text(&text);
        vec![TextBlock::Plain(if has_param("format", "flowed") {
            unflow(&text, has_param("delsp", "yes"))
        } else {
            text
        })]
    }

    /// Chooses among alternative forms of one text (RFC 2046, section 5.1.4). The plain form wins, unless it only refers to another form.
    fn alternative(&mut self, tree: &MimeTree<'_>, part: &MimePart<'_>, is_related: bool) -> Vec<TextBlock> {
        let mut forms: Vec<Vec<TextBlock>> =
            part.children.iter().map(|child| self.part(tree, *child, is_related)).collect();
        let has = |form: &[TextBlock], is_plain: bool| {
            form.iter().any(|block| match block {
                TextBlock::Plain(text) => is_plain && !text.trim().is_empty(),
                TextBlock::Html(text) => !is_plain && !text.trim().is_empty(),
                TextBlock::Separate(_) => false,
            })
        };
        let plain = forms.iter().position(|form| has(form, true) && !has(form, false));
        let page = forms.iter().rposition(|form| has(form, false));
        let chosen = match (plain, page) {
            (Some(plain), Some(page)) if is_stub(&forms[plain], &forms[page]) => page,
            (Some(plain), _) => plain,
            (None, Some(page)) => page,
            (None, None) => return forms.into_iter().flatten().collect(),
        };
        let mut blocks = std::mem::take(&mut forms[chosen]);
        blocks.extend(forms.into_iter().flatten().filter(|block| matches!(block, TextBlock::Separate(_))));
        blocks
    }

    /// Reads a mail inside the mail, which is forwarded.
    fn mail(&mut self, part: &MimePart<'_>) -> String {
        let transfer_encoding = part.transfer_encoding();
        let decoded;
        let raw = if transfer_encoding == TransferEncoding::Identity {
            part.body
        } else {
            decoded = transfer_encoding.decode(part.body, self.limits.file_size);
            &decoded
        };
        let tree = self.tree(raw);
        let Some(first) = tree.parts.first() else { return String::new() };
        let mut out = String::from("---------- Forwarded message ----------\n");
        for (name, shown) in [("from", "From"), ("date", "Date"), ("subject", "Subject"), ("to", "To")] {
            if let Some(value) = first.fields.first(name) {
                let mut value = decode_unstructured(value);
                truncate(&mut value, 1_000);
                out.push_str(&format!("{shown}: {value}\n"));
            }
        }
        let subject = first.fields.first("subject").map(decode_unstructured).unwrap_or_default();
        self.level += 1;
        let found = self.text(&tree, &subject, true);
        self.level -= 1;
        self.has_foreign_text = true;
        for text in [&found.text, &found.removed].into_iter().filter(|text| !text.is_empty()) {
            out.push('\n');
            out.push_str(text);
            out.push('\n');
        }
        out.trim_end().to_owned()
    }

    /// Decodes a text part within the remaining size limit.
    fn decode_text(&mut self, part: &MimePart<'_>) -> String {
        let bytes = part.transfer_encoding().decode(part.body, self.text_room);
        if !bytes.is_empty() && bytes.len() >= self.text_room {
            self.attachments.remark(LONG);
        }
        self.text_room -= bytes.len();
        let label = part.content.param("charset").map(str::to_owned);
        let label = label.or_else(|| part.content.is("text/html").then(|| meta_charset(&bytes)).flatten());
        charset::decode(&bytes, label.as_deref())
    }

    fn markdown(&mut self, page: &str) -> String {
        let (text, is_whole) = html::markdown(page, self.limits.text * 2);
        if !is_whole {
            self.attachments.remark(LONG);
        }
        text
    }
}

/// The role of an encrypted or signed part (RFC 1847, 8551, 3156).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartProtection {
    /// The part cannot be read; the remark gives the reason.
    Unreadable(&'static str),
    /// The part is a signature of other parts.
    Signature,
}

/// Returns the role of an encrypted or signed part; `None` for other parts.
fn protection(part: &MimePart<'_>) -> Option<PartProtection> {
    let name = part.file_name().unwrap_or_default().to_ascii_lowercase();
    match part.content.value.as_str() {
        "multipart/encrypted" | "application/pgp-encrypted" => Some(PartProtection::Unreadable(ENCRYPTED)),
        "application/pkcs7-mime" | "application/x-pkcs7-mime" => match part.content.param("smime-type") {
            Some(kind) if kind.eq_ignore_ascii_case("signed-data") => Some(PartProtection::Unreadable(OPAQUE)),
            Some(kind) if kind.eq_ignore_ascii_case("certs-only") => Some(PartProtection::Signature),
            _ => Some(PartProtection::Unreadable(ENCRYPTED)),
        },
        "application/pkcs7-signature" | "application/x-pkcs7-signature" | "application/pgp-signature" => {
            Some(PartProtection::Signature)
        }
        "application/ms-tnef" | "application/vnd.ms-tnef" => Some(PartProtection::Unreadable(TNEF)),
        "application/octet-stream" if name == "winmail.dat" => Some(PartProtection::Unreadable(TNEF)),
        "application/octet-stream" if name == "smime.p7m" => Some(PartProtection::Unreadable(ENCRYPTED)),
        "application/octet-stream" if name == "smime.p7s" || name == "signature.asc" => Some(PartProtection::Signature),
        _ => None,
    }
}

/// Appends a piece after an empty line.
fn append(whole: &mut String, piece: &str) {
    if !piece.trim().is_empty() {
        if !whole.is_empty() {
            whole.push_str("\n\n");
        }
        whole.push_str(piece);
    }
}

/// Returns true if a plain text only refers to the HTML form, or contains much less of the text.
fn is_stub(plain: &[TextBlock], page: &[TextBlock]) -> bool {
    const MAX_STUB: usize = 600;
    const STUBS: &[&str] = &[
        "support html", "html-enabled", "html enabled", "view this email", "view this message", "view in browser",
        "in your browser", "html version", "html format", "html email", "不支持html", "不支持 html", "无法显示",
        "无法查看", "在浏览器中", "html格式", "html 格式",
    ];
    let plain: String = plain
        .iter()
        .filter_map(|block| if let TextBlock::Plain(text) = block { Some(text.trim()) } else { None })
        .collect();
    let length = plain.chars().count();
    if length > MAX_STUB {
        return false;
    }
    let page: usize = page
        .iter()
        .map(|block| if let TextBlock::Html(page) = block { html::markdown(page, 20_000).0.chars().count() } else { 0 })
        .sum();
    let lower = plain.to_lowercase();
    let refers_to_page = STUBS.iter().any(|stub| lower.contains(stub)) && page > length;
    refers_to_page || page > 300 + length * 6
}

/// Returns the charset that an HTML page declares.
fn meta_charset(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(2_000)]).to_ascii_lowercase();
    let after = &head[head.find("charset=")? + "charset=".len()..];
    let name: String = after
        .trim_start_matches(['"', '\'', ' '])
        .chars()
        .take(40)
        .take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
        .collect();
    (!name.is_empty()).then_some(name)
}
