//! Converts a mail into the text of a message, and detects subscription requests.

use crate::email::mail::ParsedMail;
use crate::text::{one_line, truncate};

const MAX_SUBJECT: usize = 300;
const MAX_REMARKS: usize = 20;

/// The fields of a mail that the model sees besides the text.
#[derive(Clone, Debug, Default)]
pub struct ShownFields<'a> {
    /// Show the subject: at the beginning of a thread, and when it changed.
    pub subject: bool,
    /// Show the sender: when it differs from the previous mail's.
    pub sender: bool,
    /// The path of the removed part of the text.
    pub cut: Option<&'a str>,
}

/// Returns the text of the message. Nothing precedes the text, so that a slash command can be its first line. The subject
/// replaces a missing text.
pub fn content(mail: &ParsedMail) -> String {
    let (text, subject) = (mail.text.trim(), truncate(&one_line(mail.subject.trim()), MAX_SUBJECT));
    match (text, subject.as_str()) {
        ("", "") => "(The mail has no text.)".to_owned(),
        ("", _) => subject,
        _ => text.to_owned(),
    }
}

/// Returns the other facts about the mail for the model, one line each. Attachments are not included: they are listed in
/// one place for all channels.
pub fn about(mail: &ParsedMail, shown: &ShownFields<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (true, Some(from)) = (shown.sender, mail.from.first()) {
        lines.push(truncate(&one_line(&format!("From: {} <{}>", from.name, from.address)), MAX_SUBJECT));
    }
    if shown.subject && !mail.subject.trim().is_empty() {
        lines.push(subject_line(mail));
    }
    lines.extend(mail.remarks.iter().take(MAX_REMARKS).map(|remark| format!("({})", truncate(&one_line(remark), 300))));
    if let Some(cut) = shown.cut {
        lines.push(format!("(Earlier text that the mail quotes, and its signature, were removed; they are in {cut})"));
    }
    lines
}

/// Returns the content of a message for a mail that starts no turn: its subject.
pub fn subject_line(mail: &ParsedMail) -> String {
    format!("Subject: {}", truncate(&one_line(&mail.subject), MAX_SUBJECT))
}

/// A mail that only asks to end or resume the replies to its sender, as List-Unsubscribe offers (RFC 2369, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionRequest {
    Unsubscribe,
    Subscribe,
}

impl SubscriptionRequest {
    /// Decides by the subject. A reply with that subject, or a mail with further text, is an ordinary mail.
    pub fn of(mail: &ParsedMail) -> Option<Self> {
        let request = Self::parse(&mail.subject)?;
        let text = mail.text.trim();
        (text.is_empty() || Self::parse(text) == Some(request)).then_some(request)
    }

    fn parse(text: &str) -> Option<Self> {
        match text.trim().to_lowercase().as_str() {
            "unsubscribe" | "退订" => Some(Self::Unsubscribe),
            "subscribe" | "订阅" => Some(Self::Subscribe),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::email::mail::NamedAddress;

    #[test]
    fn a_mail_becomes_its_text_and_lines_about_it() {
        let all = ShownFields { subject: true, sender: true, cut: Some("mail/t/quoted.md") };
        let lines = [
            "From: Ann <ann@a>",
            "Subject: Lunch /new",
            "(encrypted, unreadable)",
            "(Earlier text that the mail quotes, and its signature, were removed; they are in mail/t/quoted.md)",
        ];
        let table: &[(&str, &str, &ShownFields<'_>, &str, &[&str])] = &[
            ("Lunch", " Hello\nthere ", &ShownFields::default(), "Hello\nthere", &lines[2..3]),
            ("Lunch\n/new", "Hello", &all, "Hello", &lines),
            ("", "Hello", &ShownFields { subject: true, ..ShownFields::default() }, "Hello", &lines[2..3]),
            ("Lunch?", "", &ShownFields::default(), "Lunch?", &lines[2..3]),
            ("", " ", &ShownFields::default(), "(The mail has no text.)", &lines[2..3]),
            ("Lunch", "\n  /status  \n", &ShownFields::default(), "/status", &lines[2..3]),
            ("Lunch", "/todo\n- eggs", &ShownFields::default(), "/todo\n- eggs", &lines[2..3]),
        ];
        for (subject, text, shown, expected, beside) in table {
            let remarks = vec!["encrypted, unreadable".to_owned()];
            let from = vec![NamedAddress { name: "Ann".to_owned(), address: "ann@a".to_owned() }];
            let mail =
                ParsedMail { subject: (*subject).into(), text: (*text).into(), from, remarks, ..ParsedMail::default() };
            assert_eq!(
                (content(&mail).as_str(), about(&mail, shown).as_slice()),
                (*expected, to_vec(beside).as_slice())
            );
        }
    }

    fn to_vec(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn only_a_mail_that_says_nothing_else_is_a_subscription_request() {
        for (subject, text, expected) in [
            ("unsubscribe", "", Some(SubscriptionRequest::Unsubscribe)),
            ("Unsubscribe", " unsubscribe\n", Some(SubscriptionRequest::Unsubscribe)),
            ("退订", "", Some(SubscriptionRequest::Unsubscribe)),
            ("subscribe", "", Some(SubscriptionRequest::Subscribe)),
            ("Re: unsubscribe", "", None),
            ("unsubscribe", "How do I unsubscribe from that newsletter?", None),
            ("unsubscribe me", "", None),
        ] {
            let mail = ParsedMail { subject: subject.to_owned(), text: text.to_owned(), ..ParsedMail::default() };
            assert_eq!(SubscriptionRequest::of(&mail), expected, "{subject}: {text}");
        }
    }
}
