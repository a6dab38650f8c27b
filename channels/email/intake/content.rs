//! A mail as the text of a message.

use super::replying::line;
use crate::email::letter::Letter;

const MAX_SUBJECT: usize = 300;
const MAX_REMARKS: usize = 20;

/// What of a mail is shown besides its text.
#[derive(Clone, Debug, Default)]
pub struct Shown<'a> {
    /// The subject: at a thread's beginning, and where it changed.
    pub subject: bool,
    /// The sender: where somebody else writes than did before.
    pub sender: bool,
    /// Where what was cut off lies.
    pub cut: Option<&'a str>,
}

/// The text of the message. Of a slash command it is the line alone: nothing stands before it, and nothing comes behind that
/// its writer did not put there. A mail without text says what its subject says.
pub fn content(letter: &Letter) -> String {
    let text = letter.text.trim();
    let subject = line(letter.subject.trim(), MAX_SUBJECT);
    match command(text) {
        Some(command) => command.to_owned(),
        None if !text.is_empty() => text.to_owned(),
        None if !subject.is_empty() => subject,
        None => "(The mail has no text.)".to_owned(),
    }
}

/// What else the model is to know of the mail, one line each. Files are not among it: those of every channel are told of in
/// one place.
pub fn about(letter: &Letter, shown: &Shown<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (true, Some(from)) = (shown.sender, letter.from.first()) {
        lines.push(line(&format!("From: {} <{}>", from.name, from.address), MAX_SUBJECT));
    }
    if shown.subject && !letter.subject.trim().is_empty() {
        lines.push(subject_alone(letter));
    }
    lines.extend(letter.remarks.iter().take(MAX_REMARKS).map(|remark| format!("({})", line(remark, 300))));
    if let Some(cut) = shown.cut {
        lines.push(format!("(Earlier text that the mail quotes, and its signature, were cut off; they lie at {cut})"));
    }
    lines
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
    fn a_mail_is_its_words_and_what_stands_beside_them() {
        let all = Shown { subject: true, sender: true, cut: Some("mail/t/quoted.md") };
        let told = [
            "From: Ann <ann@a>",
            "Subject: Lunch /new",
            "(encrypted, unreadable)",
            "(Earlier text that the mail quotes, and its signature, were cut off; they lie at mail/t/quoted.md)",
        ];
        let table: &[(&str, &str, &Shown<'_>, &str, &[&str])] = &[
            ("Lunch", " Hello\nthere ", &Shown::default(), "Hello\nthere", &told[2..3]),
            ("Lunch\n/new", "Hello", &all, "Hello", &told),
            ("", "Hello", &Shown { subject: true, ..Shown::default() }, "Hello", &told[2..3]),
            ("Lunch?", "", &Shown::default(), "Lunch?", &told[2..3]),
            ("", " ", &Shown::default(), "(The mail has no text.)", &told[2..3]),
            ("Lunch", "/model gpt now\nand more", &Shown::default(), "/model gpt now", &told[2..3]),
            ("Lunch", "\n  /status  \n", &Shown::default(), "/status", &told[2..3]),
            ("Lunch", "/etc/passwd is odd\nWhy?", &Shown::default(), "/etc/passwd is odd\nWhy?", &told[2..3]),
            ("Lunch", "/ is full", &Shown::default(), "/ is full", &told[2..3]),
        ];
        for (subject, text, shown, expected, beside) in table {
            let remarks = vec!["encrypted, unreadable".to_owned()];
            let from = vec![Mailbox { name: "Ann".to_owned(), address: "ann@a".to_owned() }];
            let letter =
                Letter { subject: (*subject).into(), text: (*text).into(), from, remarks, ..Letter::default() };
            assert_eq!(
                (content(&letter).as_str(), about(&letter, shown).as_slice()),
                (*expected, to_vec(beside).as_slice())
            );
        }
    }

    fn to_vec(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }
}
