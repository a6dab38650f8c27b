//! A mail as stored in a mailbox, or as sent.

use std::path::Path;

use mail_parser::{Message, MessageParser, MimeHeaders};

#[derive(Clone, Debug)]
pub struct Mail {
    pub raw: Vec<u8>,
    /// The flags of a Maildir, e.g. `S` for \Seen.
    flags: String,
}

impl Mail {
    pub fn new(raw: Vec<u8>) -> Self {
        Self { raw, flags: String::new() }
    }

    /// Reads the mail; returns `None` if the file is gone.
    pub(super) fn open(file: &Path) -> Option<Self> {
        let name = file.file_name()?.to_string_lossy();
        let flags = name.split_once(":2,").map_or("", |(_, flags)| flags).to_owned();
        Some(Self { raw: std::fs::read(file).ok()?, flags })
    }

    pub fn is_seen(&self) -> bool {
        self.flags.contains('S')
    }

    /// Parses the mail; panics if the bytes are not a mail.
    pub fn parsed(&self) -> Message<'_> {
        MessageParser::default().parse(&self.raw).expect("a mail")
    }

    /// Returns the raw, unfolded values of a header field. `name` is in lower case.
    pub fn headers(&self, name: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.raw).replace("\r\n", "\n");
        let head = text.split("\n\n").next().unwrap_or_default();
        let unfolded = head.replace("\n ", " ").replace("\n\t", " ");
        let fields = unfolded.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).collect()
    }

    /// Returns the first value of [`Mail::headers`]; empty if there is none.
    pub fn header(&self, name: &str) -> String {
        self.headers(name).into_iter().next().unwrap_or_default()
    }

    /// Returns the decoded subject.
    pub fn subject(&self) -> String {
        self.parsed().subject().unwrap_or_default().to_owned()
    }

    /// Returns the address in From.
    pub fn from(&self) -> String {
        let parsed = self.parsed();
        parsed.from().and_then(|from| from.first()?.address()).unwrap_or_default().to_owned()
    }

    /// Returns the addresses in To.
    pub fn to(&self) -> Vec<String> {
        let parsed = self.parsed();
        let to = parsed.to().map(|to| to.iter().filter_map(|one| one.address()).map(str::to_owned).collect());
        to.unwrap_or_default()
    }

    /// Returns the plain text without line wrapping.
    pub fn text(&self) -> String {
        let parsed = self.parsed();
        parsed.body_text(0).unwrap_or_default().replace("\r\n", "\n")
    }

    pub fn html(&self) -> String {
        self.parsed().body_html(0).unwrap_or_default().into_owned()
    }

    /// Returns the content type, e.g. `multipart/alternative`.
    pub fn kind(&self) -> String {
        self.header("content-type").split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Returns the attachments: name and bytes.
    pub fn attachments(&self) -> Vec<(String, Vec<u8>)> {
        let parsed = self.parsed();
        let named = |part: &mail_parser::MessagePart<'_>| {
            (part.attachment_name().unwrap_or_default().to_owned(), part.contents().to_vec())
        };
        parsed.attachments().map(named).collect()
    }
}
