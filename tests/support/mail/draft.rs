//! Mails that people send to a gateway.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{ASSISTANT, Mail};
use crate::support::signing::base64;

/// The authserv-id of the receiving server.
pub const AUTHSERV: &str = "mx.example.test";

/// A mail as its sender writes it and the receiving server stores it.
#[derive(Clone, Debug)]
pub struct Draft {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    is_proven: bool,
    received_at: Option<SystemTime>,
}

impl Draft {
    /// Creates a plain mail to the assistant with a new Message-ID, which the receiving server authenticates.
    pub fn new(from: &str, subject: &str, text: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let date = jiff::fmt::rfc2822::to_string(&jiff::Zoned::now()).expect("a date of this century");
        let headers = [
            ("From", from.to_owned()),
            ("To", ASSISTANT.to_owned()),
            ("Subject", subject.to_owned()),
            ("Date", date),
            ("Message-ID", format!("<{number}.{}@people.test>", std::process::id())),
            ("MIME-Version", "1.0".to_owned()),
            ("Content-Type", "text/plain; charset=utf-8".to_owned()),
            ("Content-Transfer-Encoding", "8bit".to_owned()),
        ];
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { headers, body: text.replace('\n', "\r\n").into_bytes(), is_proven: true, received_at: None }
    }

    /// Creates an answer to `mail`, as mail programs write it.
    pub fn reply(from: &str, mail: &Mail, text: &str) -> Self {
        let (id, subject) = (mail.header("message-id"), mail.subject());
        let subject = if subject.starts_with("Re:") { subject } else { format!("Re: {subject}") };
        let references = format!("{} {id}", mail.header("references"));
        Self::new(from, &subject, text).header("In-Reply-To", &id).header("References", references.trim())
    }

    /// Sets a header field, replacing one of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.and_header(name, value)
    }

    /// Adds a header field to those of the same name.
    pub fn and_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Makes the receiving server report no authentication of the author.
    pub fn without_authentication(mut self) -> Self {
        self.is_proven = false;
        self
    }

    /// Sets the time of arrival at the receiving server; the default is now.
    pub fn received(mut self, at: SystemTime) -> Self {
        self.received_at = Some(at);
        self
    }

    /// Sets a body of another content type.
    pub fn body(self, content_type: &str, encoding: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut draft = self.header("Content-Type", content_type).header("Content-Transfer-Encoding", encoding);
        draft.body = body.into();
        draft
    }

    /// Sets the HTML as the only body.
    pub fn html(self, html: &str) -> Self {
        self.body("text/html; charset=utf-8", "8bit", html)
    }

    /// Attaches a file.
    pub fn attach(self, name: &str, media_type: &str, bytes: &[u8]) -> Self {
        let encoded = base64(bytes);
        let lines = encoded.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).expect("base64 is ASCII"));
        let lines: Vec<_> = lines.collect();
        self.enclose(name, media_type, &lines.join("\r\n"))
    }

    /// Attaches a file of about `size` equal bytes.
    pub fn attach_large(self, name: &str, size: usize) -> Self {
        // The letter x three times, in base64.
        let line = "eHh4".repeat(19) + "\r\n";
        self.enclose(name, "application/octet-stream", &line.repeat(size / 57))
    }

    fn enclose(self, name: &str, media_type: &str, encoded: &str) -> Self {
        const BOUNDARY: &str = "=_a-boundary-of-a-story";
        let text = String::from_utf8_lossy(&self.body).into_owned();
        let body = format!(
            "--{BOUNDARY}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{text}\r\n\
             --{BOUNDARY}\r\nContent-Type: {media_type}; name=\"{name}\"\r\n\
             Content-Disposition: attachment; filename=\"{name}\"\r\n\
             Content-Transfer-Encoding: base64\r\n\r\n{encoded}\r\n--{BOUNDARY}--\r\n"
        );
        self.body(&format!("multipart/mixed; boundary=\"{BOUNDARY}\""), "7bit", body)
    }

    pub(super) fn received_at(&self) -> Option<SystemTime> {
        self.received_at
    }

    /// Returns the value of a header field; empty if it is missing.
    pub fn get(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    pub fn message_id(&self) -> &str {
        self.get("message-id")
    }

    /// Returns the address in From.
    pub fn address(&self) -> String {
        self.get("from").rsplit('<').next().unwrap_or_default().trim_end_matches('>').to_owned()
    }

    /// Returns the mail as its sender submits it.
    pub fn written(&self) -> Vec<u8> {
        let mut raw = String::new();
        for (name, value) in &self.headers {
            write!(raw, "{name}: {value}\r\n").expect("a string grows");
        }
        raw.push_str("\r\n");
        [raw.as_bytes(), &self.body, b"\r\n"].concat()
    }

    /// Returns the mail as stored in the mailbox, with the headers of the receiving server on top.
    pub fn raw(&self) -> Vec<u8> {
        let address = self.address();
        let domain = address.rsplit('@').next().unwrap_or_default();
        let verdict = if self.is_proven { format!("dmarc=pass header.from={domain}") } else { "none".to_owned() };
        let mut raw = String::new();
        if self.get("return-path").is_empty() {
            write!(raw, "Return-Path: <{address}>\r\n").expect("a string grows");
        }
        write!(raw, "Authentication-Results: {AUTHSERV};\r\n {verdict}\r\n").expect("a string grows");
        write!(raw, "Received: from people.test (people.test [192.0.2.1]) by {AUTHSERV} with ESMTPS id 1;\r\n")
            .expect("a string grows");
        write!(raw, "\t{}\r\n", self.get("date")).expect("a string grows");
        [raw.as_bytes(), &self.written()].concat()
    }
}
