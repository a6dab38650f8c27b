//! Finds what of a mail's parts is its text, and hands the files on.

use super::clean::{clean_text, cut_to};
use super::enclosures::Enclosures;
use super::fields::unstructured;
use super::limits::ReadLimits;
use super::mime::{Part, Tree};
use super::quote::{Cut, cut, is_forwarding_subject};
use super::sealed::{ENCRYPTED, Seal, seal, without_armour};
use super::{calendar, charset, flowed, html};

/// Reports of mail servers are read as far as this.
const MAX_REPORT: usize = 5_000;

const LONG: &str = "The text of this mail is very long; only its beginning was read.";

/// A piece of text.
enum Block {
    Plain(String),
    Html(String),
    /// Stands by itself behind the text: an invitation, a mail in the mail.
    Apart(String),
}

/// Reads the parts of a mail, and of those in it.
pub struct Reader<'l> {
    limits: &'l ReadLimits,
    pub enclosures: Enclosures<'l>,
    /// Bytes of text that may still be read, in all parts together.
    text_room: usize,
    /// Parts that may still be looked at.
    parts_room: usize,
    /// How many mails, and parts without a boundary, are open around what is read: each holds a copy.
    level: usize,
    has_mail: bool,
}

const SAID: &str = "Parts of this mail could not be told from each other and were left out.";

impl<'l> Reader<'l> {
    pub fn new(limits: &'l ReadLimits) -> Self {
        let enclosures = Enclosures::new(limits);
        Self { limits, enclosures, text_room: limits.text_parts, parts_room: limits.parts, level: 0, has_mail: false }
    }

    /// Takes a mail apart, with the parts that are left to look at.
    pub fn tree<'a>(&mut self, raw: &'a [u8]) -> Tree<'a> {
        let tree = Tree::parse(raw, self.parts_room, self.limits);
        self.parts_room = self.parts_room.saturating_sub(tree.parts.len());
        if tree.is_cut {
            self.enclosures.remark(format!(
                "This mail has more than {} parts; the last of them were left out.",
                self.limits.parts
            ));
        }
        if tree.is_deep {
            self.enclosures.remark("Parts of this mail stand too deep in each other and were left out.");
        }
        tree
    }

    /// The text of a mail.
    pub fn text(&mut self, tree: &Tree<'_>, subject: &str, answers: bool) -> Cut {
        if tree.parts.is_empty() {
            return Cut::default();
        }
        let blocks = self.part(tree, 0, false);
        let max = self.limits.text * 2;
        let mut text = String::new();
        let mut apart = String::new();
        for block in blocks {
            if text.len().max(apart.len()) > max {
                break;
            }
            match block {
                Block::Plain(plain) => append(&mut text, &plain),
                Block::Html(page) => append(&mut text, &self.markdown(&page)),
                // The same invitation often comes as a text and as a file.
                Block::Apart(piece) if !apart.contains(&piece) => append(&mut apart, &piece),
                Block::Apart(_) => {}
            }
        }
        if cut_to(&mut text, max) {
            self.enclosures.remark(LONG);
        }
        let mut found = cut(&text, is_forwarding_subject(subject), answers);
        append(&mut found.text, &apart);
        found.is_forward |= self.has_mail;
        found
    }

    fn part(&mut self, tree: &Tree<'_>, number: usize, is_related: bool) -> Vec<Block> {
        let part = &tree.parts[number];
        match seal(part) {
            Some(Seal::Unreadable(why)) => {
                self.enclosures.remark(why);
                return Vec::new();
            }
            Some(Seal::Signature) => return Vec::new(),
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

    /// A part without parts; `is_whole` if it is the mail itself.
    fn leaf(&mut self, part: &Part<'_>, is_related: bool, is_whole: bool) -> Vec<Block> {
        let is_attached = part.disposition.is("attachment");
        let is_named = part.file_name().is_some();
        match part.content.value.as_str() {
            "message/rfc822" | "message/global" if self.level < self.limits.mails => {
                vec![Block::Apart(self.mail(part))]
            }
            "text/calendar" | "application/ics" => {
                let text = self.decoded(part);
                match calendar::describe(&text) {
                    Some(said) if is_attached || is_named => {
                        self.enclosures.file(part, is_related);
                        vec![Block::Apart(said)]
                    }
                    Some(said) => vec![Block::Apart(said)],
                    None => {
                        self.enclosures.file(part, is_related);
                        Vec::new()
                    }
                }
            }
            "message/delivery-status" | "message/disposition-notification" | "text/rfc822-headers" => {
                let mut text = self.decoded(part);
                cut_to(&mut text, MAX_REPORT);
                vec![Block::Apart(clean_text(&text))]
            }
            "text/html" if is_whole || !(is_attached || is_named) => vec![Block::Html(self.decoded(part))],
            "text/plain" if is_whole || !(is_attached || is_named) => self.plain(part),
            // Without a boundary that comes (RFC 2046, section 5.1), or too deep.
            kind if kind.starts_with("multipart/") && self.level < self.limits.mails => {
                self.level += 1;
                let blocks = self.unbound(part, is_related);
                self.level -= 1;
                blocks
            }
            kind if kind.starts_with("multipart/") => {
                self.enclosures.remark(SAID);
                Vec::new()
            }
            _ => {
                self.enclosures.file(part, is_related);
                Vec::new()
            }
        }
    }

    /// Parts whose boundary the header does not tell: it is the first line that begins like one. Without it what looks like parts is
    /// no text.
    fn unbound(&mut self, part: &Part<'_>, is_related: bool) -> Vec<Block> {
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
        match found {
            None => self.plain(part),
            Some(Some(boundary)) if self.parts_room > 0 && !boundary.contains(&b'"') => {
                let head = [b"Content-Type: multipart/mixed; boundary=\"", boundary, b"\"\r\n\r\n"].concat();
                let raw = [&head, part.body].concat();
                let tree = self.tree(&raw);
                match tree.parts.first() {
                    Some(first) if !first.children.is_empty() => self.part(&tree, 0, is_related),
                    _ => {
                        self.enclosures.remark(SAID);
                        Vec::new()
                    }
                }
            }
            Some(_) => {
                self.enclosures.remark(SAID);
                Vec::new()
            }
        }
    }

    fn plain(&mut self, part: &Part<'_>) -> Vec<Block> {
        let (text, is_encrypted) = without_armour(&self.decoded(part));
        if is_encrypted {
            self.enclosures.remark(ENCRYPTED);
        }
        let start = text.trim_start().as_bytes();
        let begins = |tag: &[u8]| start.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
        if begins(b"<html") || begins(b"<!doctype html") {
            return vec![Block::Html(text)];
        }
        let yes =
            |name: &str, word: &str| part.content.param(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
        let text = clean_text(&text);
        vec![Block::Plain(if yes("format", "flowed") { flowed::rejoin(&text, yes("delsp", "yes")) } else { text })]
    }

    /// One text in several forms (RFC 2046, section 5.1.4): the plain one, unless it only says that there is another.
    fn alternative(&mut self, tree: &Tree<'_>, part: &Part<'_>, is_related: bool) -> Vec<Block> {
        let mut forms: Vec<Vec<Block>> =
            part.children.iter().map(|child| self.part(tree, *child, is_related)).collect();
        let has = |form: &[Block], is_plain: bool| {
            form.iter().any(|block| match block {
                Block::Plain(text) => is_plain && !text.trim().is_empty(),
                Block::Html(text) => !is_plain && !text.trim().is_empty(),
                Block::Apart(_) => false,
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
        blocks.extend(forms.into_iter().flatten().filter(|block| matches!(block, Block::Apart(_))));
        blocks
    }

    /// A mail in the mail: somebody hands it on.
    fn mail(&mut self, part: &Part<'_>) -> String {
        let transfer = part.transfer();
        let decoded;
        let raw = if transfer == super::transfer::Transfer::Identity {
            part.body
        } else {
            decoded = transfer.decode(part.body, self.limits.file_size);
            &decoded
        };
        let tree = self.tree(raw);
        let Some(first) = tree.parts.first() else { return String::new() };
        let mut said = String::from("---------- Forwarded message ----------\n");
        for (name, shown) in [("from", "From"), ("date", "Date"), ("subject", "Subject"), ("to", "To")] {
            if let Some(value) = first.fields.first(name) {
                let mut value = unstructured(value);
                cut_to(&mut value, 1_000);
                said.push_str(&format!("{shown}: {value}\n"));
            }
        }
        let subject = first.fields.first("subject").map(unstructured).unwrap_or_default();
        self.level += 1;
        let found = self.text(&tree, &subject, true);
        self.level -= 1;
        self.has_mail = true;
        for text in [&found.text, &found.cut].into_iter().filter(|text| !text.is_empty()) {
            said.push('\n');
            said.push_str(text);
            said.push('\n');
        }
        said.trim_end().to_owned()
    }

    /// A text part's text, as far as there is room.
    fn decoded(&mut self, part: &Part<'_>) -> String {
        let bytes = part.transfer().decode(part.body, self.text_room);
        if !bytes.is_empty() && bytes.len() >= self.text_room {
            self.enclosures.remark(LONG);
        }
        self.text_room -= bytes.len();
        let label = part.content.param("charset").map(str::to_owned);
        let label = label.or_else(|| part.content.is("text/html").then(|| meta_charset(&bytes)).flatten());
        charset::decode(&bytes, label.as_deref())
    }

    fn markdown(&mut self, page: &str) -> String {
        let (text, is_whole) = html::markdown(page, self.limits.text * 2);
        if !is_whole {
            self.enclosures.remark(LONG);
        }
        text
    }
}

/// Adds a piece behind an empty line.
fn append(whole: &mut String, piece: &str) {
    if !piece.trim().is_empty() {
        if !whole.is_empty() {
            whole.push_str("\n\n");
        }
        whole.push_str(piece);
    }
}

/// Whether a plain text only says that the text is elsewhere, or is much less of it.
fn is_stub(plain: &[Block], page: &[Block]) -> bool {
    const MAX_STUB: usize = 600;
    const STUBS: &[&str] = &[
        "support html",
        "html-enabled",
        "html enabled",
        "view this email",
        "view this message",
        "view in browser",
        "view it in your browser",
        "in your browser",
        "html version",
        "html format",
        "html email",
        "不支持html",
        "不支持 html",
        "无法显示",
        "无法查看",
        "在浏览器中",
        "html格式",
        "html 格式",
    ];
    let plain: String = plain
        .iter()
        .filter_map(|block| if let Block::Plain(text) = block { Some(text.trim()) } else { None })
        .collect();
    let length = plain.chars().count();
    if length > MAX_STUB {
        return false;
    }
    let page: usize = page
        .iter()
        .map(|block| if let Block::Html(page) = block { html::markdown(page, 20_000).0.chars().count() } else { 0 })
        .sum();
    let lower = plain.to_lowercase();
    let says_so = STUBS.iter().any(|stub| lower.contains(stub)) && page > length;
    says_so || page > 300 + length * 6
}

/// The charset that a page names of itself.
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
