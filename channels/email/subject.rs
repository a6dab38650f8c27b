//! Compares subjects without the prefixes of replies and forwards, and makes the subjects of sent mails.

use unicode_segmentation::UnicodeSegmentation;

use crate::text::one_line;

/// The characters that begin a counter or a remark after a prefix.
const COUNTER_START: [char; 4] = ['[', '(', '（', '^'];

/// Prefixes of replies, in lower case.
const REPLY: &[&str] = &[
    "re", "r", "aw", "antw", "antwort", "sv", "vs", "odp", "ynt", "res", "rif", "回复", "回覆", "回復", "答复", "答覆",
    "返信", "답장", "回信",
];
/// Prefixes of forwarded mails, in lower case.
const FORWARD: &[&str] = &[
    "fw", "fwd", "wg", "tr", "rv", "i", "enc", "vb", "vl", "pd", "doorst", "пересл", "转发", "轉發", "转寄", "轉寄",
    "転送", "전달",
];
/// The maximum number of prefixes of one subject.
const MAX_PREFIXES: usize = 20;
/// The longest subject, in bytes. Even an unbroken subject of this length fits into a line (998 octets, RFC 5322, section 2.1.1).
const MAX_BYTES: usize = 900;
/// The longest subject taken from the first line of a text, in characters.
const MAX_LINE: usize = 78;

/// A subject without the prefixes of replies and forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseSubject {
    /// The subject in lower case with single spaces, for comparison.
    pub core: String,
    pub is_reply: bool,
}

impl BaseSubject {
    pub fn of(written: &str) -> Self {
        let mut rest = written.trim();
        let mut is_reply = false;
        for _ in 0..MAX_PREFIXES {
            let Some((word, behind)) = split_prefix(rest) else { break };
            is_reply |= REPLY.contains(&word.as_str());
            rest = behind;
        }
        let core = rest.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        Self { core, is_reply }
    }
}

/// Returns the subject of a reply with exactly one `Re: `. `nameless` replaces an empty subject.
pub fn reply_subject(subject: &str, nameless: &str) -> String {
    let subject = one_line(subject);
    let mut rest = subject.as_str();
    while let Some((_, shorter)) = split_prefix(rest).filter(|(word, _)| REPLY.contains(&word.as_str())) {
        rest = shorter;
    }
    let rest = if rest.is_empty() { nameless } else { rest };
    cut_bytes(&format!("Re: {rest}"))
}

/// Returns the subject of a mail that begins a thread: the requested one, or else the first line of its text.
pub fn new_subject(requested: Option<&str>, first_line: &str, nameless: &str) -> String {
    let requested = one_line(requested.unwrap_or_default());
    if !requested.is_empty() {
        return cut_bytes(&requested);
    }
    let line = one_line(first_line);
    if line.is_empty() { nameless.to_owned() } else { cut_bytes(&cut_chars(&line)) }
}

/// Returns true if the first prefix of a subject marks a reply; a remark in brackets may follow it, as in `Re [EXT]: …`.
pub fn is_reply_subject(subject: &str) -> bool {
    let Some((before, _)) = subject.split_once([':', '：']) else { return false };
    let word = before.split(COUNTER_START).next().unwrap_or_default().trim().to_lowercase();
    REPLY.contains(&word.as_str())
}

/// Returns true if the first prefix of a subject marks a forwarded mail. Some programs write `[Fwd: …]`.
pub fn is_forward_subject(subject: &str) -> bool {
    split_prefix(subject.trim_start().trim_start_matches('[')).is_some_and(|(word, _)| FORWARD.contains(&word.as_str()))
}

/// Splits off the first prefix and returns it in lower case: `Re:`, `RE :`, `Re[2]:`, `AW :`, `回复（2）：`.
fn split_prefix(subject: &str) -> Option<(String, &str)> {
    let (before, behind) = subject.split_once([':', '：'])?;
    let word = before.split(COUNTER_START).next().unwrap_or_default().trim().to_lowercase();
    let counter = before.trim_end().trim_start_matches(|c| !COUNTER_START.contains(&c));
    let is_counter = counter.chars().all(|c| c.is_ascii_digit() || COUNTER_START.contains(&c) || "])）".contains(c));
    let is_known = REPLY.contains(&word.as_str()) || FORWARD.contains(&word.as_str());
    (is_known && is_counter).then(|| (word, behind.trim_start()))
}

fn cut_chars(text: &str) -> String {
    if text.graphemes(true).count() <= MAX_LINE {
        return text.to_owned();
    }
    let mut short: String = text.graphemes(true).take(MAX_LINE - 1).collect();
    short.truncate(short.trim_end().len());
    short + "…"
}

fn cut_bytes(text: &str) -> String {
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    let end = text.grapheme_indices(true).map(|(at, _)| at).take_while(|at| at + '…'.len_utf8() <= MAX_BYTES).last();
    format!("{}…", text[..end.unwrap_or(0)].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_one_prefix() {
        for (subject, expected) in [
            ("Lunch", "Re: Lunch"),
            ("Re: Lunch", "Re: Lunch"),
            ("RE: re : AW: Antw: SV: Lunch", "Re: Lunch"),
            ("Re[2]: Re(3): Lunch", "Re: Lunch"),
            ("回复：答复: 午饭", "Re: 午饭"),
            ("回复（2）：午饭", "Re: 午饭"),
            ("Fwd: Lunch", "Re: Fwd: Lunch"),
            ("Report: Re: Lunch", "Re: Report: Re: Lunch"),
            ("Re:", "Re: (none)"),
            ("", "Re: (none)"),
            ("Lunch\r\nBcc: eve@example.org", "Re: Lunch Bcc: eve@example.org"),
            ("tab\there\u{0} \u{202E}x", "Re: tab here x"),
        ] {
            assert_eq!(reply_subject(subject, "(none)"), expected);
        }
    }

    #[test]
    fn subjects_are_never_empty_and_are_bounded() {
        for (asked, first_line, expected) in [
            (Some("Weekly"), "text", "Weekly".to_owned()),
            (Some("  "), "the text's line", "the text's line".to_owned()),
            (None, "", "(none)".to_owned()),
            (None, &"长".repeat(100), "长".repeat(77) + "…"),
        ] {
            assert_eq!(new_subject(asked, first_line, "(none)"), expected);
        }
        let endless = reply_subject(&"x".repeat(5_000), "");
        assert!(endless.len() <= MAX_BYTES && endless.ends_with('…'));
        assert!(reply_subject(&"长".repeat(2_000), "").len() <= MAX_BYTES);
    }

    #[test]
    fn the_first_prefix_marks_a_reply_or_a_forwarded_mail() {
        for (subject, is_reply, is_forward) in [
            ("Re: x", true, false),
            ("Re [EXT]: x", true, false),
            ("RE[2]: x", true, false),
            ("回复：x", true, false),
            ("AW: x", true, false),
            ("Antwort: x", true, false),
            ("Report: x", false, false),
            ("x", false, false),
            ("Fwd: x", false, true),
            ("FW: Re: x", false, true),
            ("转发：会议", false, true),
            ("VB: x", false, true),
            ("RV: x", false, true),
            ("I: x", false, true),
            ("R: x", true, false),
            ("転送: x", false, true),
            ("[Fwd: x]", false, true),
            ("Re: Fwd: x", true, false),
        ] {
            assert_eq!((is_reply_subject(subject), is_forward_subject(subject)), (is_reply, is_forward), "{subject}");
        }
    }

    #[test]
    fn prefixes_are_removed_to_compare() {
        for (written, core, is_reply) in [
            ("Lunch", "lunch", false),
            ("Re: Lunch", "lunch", true),
            ("RE: re : AW: Lunch  today", "lunch today", true),
            ("Re[2]: Lunch", "lunch", true),
            ("回复：午饭", "午饭", true),
            ("答复: 转发: 午饭", "午饭", true),
            ("Fwd: Lunch", "lunch", false),
            ("WG: Lunch", "lunch", false),
            ("SV: Lunch", "lunch", true),
            ("Regarding: Lunch", "regarding: lunch", false),
            ("Re: 12:30", "12:30", true),
            ("Re:", "", true),
            ("", "", false),
        ] {
            assert_eq!(BaseSubject::of(written), BaseSubject { core: core.to_owned(), is_reply }, "{written}");
        }
    }
}
