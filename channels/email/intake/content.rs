//! A mail as the text of a message.

use super::replying::line;
use crate::email::letter::Letter;
use crate::message::Attachment;

const MAX_SUBJECT: usize = 300;
const MAX_NAME: usize = 120;
const MAX_REMARKS: usize = 20;
/// Enclosed files that are named one by one.
const MAX_LISTED: usize = 50;

/// What of a mail is shown besides its text.
#[derive(Clone, Debug, Default)]
pub struct Shown<'a> {
    /// The subject: at a thread's beginning, and where it changed.
    pub subject: bool,
    /// The sender: where somebody else writes than did before.
    pub sender: bool,
    pub attachments: &'a [Attachment],
    /// Where what was cut off lies.
    pub cut: Option<&'a str>,
}

/// The text of the message. A slash command is all of it: nothing stands before it, and nothing that its writer did not
/// put into its line comes behind.
pub fn content(letter: &Letter, shown: &Shown<'_>) -> String {
    let text = letter.text.trim();
    if let Some(command) = command(text) {
        return command.to_owned();
    }
    let mut head = Vec::new();
    if let (true, Some(from)) = (shown.sender, letter.from.first()) {
        head.push(line(&format!("From: {} <{}>", from.name, from.address), MAX_SUBJECT));
    }
    if shown.subject && !letter.subject.trim().is_empty() {
        head.push(format!("Subject: {}", line(&letter.subject, MAX_SUBJECT)));
    }
    let mut parts = vec![head.join("\n"), text.to_owned(), below(letter, shown)];
    parts.retain(|part| !part.is_empty());
    if parts.is_empty() {
        return "(The mail has no text.)".to_owned();
    }
    parts.join("\n\n")
}

/// Bytes as people say them: `1.5 MB`.
pub fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (1_000, "kB"),
        _ => (1_000_000, "MB"),
    };
    let tenths = bytes / (unit / 10);
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        rest => format!("{}.{rest} {name}", tenths / 10),
    }
}

/// One line about a mail that starts no turn.
pub fn subject_alone(letter: &Letter) -> String {
    format!("Subject: {}", line(&letter.subject, MAX_SUBJECT))
}

/// The first line, if it is a slash command: `/name`, not a path.
fn command(text: &str) -> Option<&str> {
    let first = text.lines().next()?.trim();
    let name = first.strip_prefix('/')?.split(char::is_whitespace).next()?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '-'));
    is_name.then_some(first)
}

fn below(letter: &Letter, shown: &Shown<'_>) -> String {
    let mut lines: Vec<String> =
        letter.remarks.iter().take(MAX_REMARKS).map(|r| format!("({})", line(r, 300))).collect();
    lines.extend(shown.attachments.iter().take(MAX_LISTED).map(|file| {
        let (name, kind) = (line(&file.name, MAX_NAME), line(&file.media_type, MAX_NAME));
        format!("Attached: {name} ({kind}, {}) at {}", size(file.size), file.path)
    }));
    if let Some(more) = shown.attachments.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        lines.push(format!("Attached: {more} more files beside them"));
    }
    if let Some(cut) = shown.cut {
        lines.push(format!("(Earlier text that the mail quotes, and its signature, were cut off; they lie at {cut})"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::email::letter::Mailbox;

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 999, 1_000, 1_550, 25_000_000, 35_400_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1 kB", "1.5 kB", "25 MB", "35.4 MB"]);
    }

    #[test]
    fn a_mail_is_read_from_top_to_bottom() {
        let file = |name: &str| Attachment {
            name: name.to_owned(),
            path: "mail/t/1.png".to_owned(),
            media_type: "image/png".to_owned(),
            size: 2_000,
        };
        let files = [file("a\nb.png")];
        let all = Shown { subject: true, sender: true, attachments: &files, cut: Some("mail/t/quoted.md") };
        let none = Shown::default();
        let table: &[(&str, &str, &Shown<'_>, &str)] = &[
            ("Lunch", "Hello\nthere", &none, "Hello\nthere"),
            ("Lunch\n/new", " Hello ", &Shown { subject: true, ..none.clone() }, "Subject: Lunch /new\n\nHello"),
            ("", "Hello", &Shown { subject: true, ..none.clone() }, "Hello"),
            ("", " ", &none, "(The mail has no text.)"),
            (
                "Lunch",
                "Hello",
                &all,
                "From: Ann <ann@a>\nSubject: Lunch\n\nHello\n\n(encrypted, unreadable)\nAttached: a b.png (image/png, 2 kB) \
                 at mail/t/1.png\n(Earlier text that the mail quotes, and its signature, were cut off; they lie at \
                 mail/t/quoted.md)",
            ),
            ("Lunch", "/model gpt now\nand more", &all, "/model gpt now"),
            ("Lunch", "\n  /status  \n", &all, "/status"),
            ("Lunch", "/etc/passwd is odd\nWhy?", &none, "/etc/passwd is odd\nWhy?"),
            ("Lunch", "/ is full", &none, "/ is full"),
        ];
        for (subject, text, shown, expected) in table {
            let remarks = if shown.sender { vec!["encrypted, unreadable".to_owned()] } else { Vec::new() };
            let from = vec![Mailbox { name: "Ann".to_owned(), address: "ann@a".to_owned() }];
            let letter =
                Letter { subject: (*subject).into(), text: (*text).into(), from, remarks, ..Letter::default() };
            assert_eq!(content(&letter, shown), *expected, "{subject} {text}");
        }
        let many: Vec<_> = (0..200).map(|n| file(&n.to_string())).collect();
        let shown = content(&Letter::default(), &Shown { attachments: &many, ..none });
        assert_eq!((shown.lines().count(), shown.contains("150 more files")), (51, true));
    }
}
