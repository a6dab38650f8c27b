//! What stands in Subject.

use unicode_segmentation::UnicodeSegmentation;

use super::address::one_line;

/// How mail programs begin the subject of a reply, in lower case.
const REPLY_MARKS: [&str; 11] = ["re", "aw", "antw", "antwort", "sv", "vs", "回复", "答复", "回覆", "答覆", "回信"];
/// The longest subject, in bytes: unbroken it still fits a line (998 octets, RFC 5322, section 2.1.1).
const MAX_BYTES: usize = 900;
/// The longest subject that is made of a text's first line, in characters.
const MAX_LINE: usize = 78;

/// The subject of a reply: one `Re: `, however many marks stood there before. `nameless` stands where nothing is left.
pub fn of_reply(subject: &str, nameless: &str) -> String {
    let subject = one_line(subject);
    let mut rest = subject.as_str();
    while let Some(shorter) = without_mark(rest) {
        rest = shorter;
    }
    let rest = if rest.is_empty() { nameless } else { rest };
    cut_bytes(&format!("Re: {rest}"), MAX_BYTES)
}

/// The subject of a mail of its own: what was asked for, else its text's first line.
pub fn of_new(asked: Option<&str>, first_line: &str, nameless: &str) -> String {
    let asked = one_line(asked.unwrap_or_default());
    if !asked.is_empty() {
        return cut_bytes(&asked, MAX_BYTES);
    }
    let line = one_line(first_line);
    if line.is_empty() { nameless.to_owned() } else { cut_bytes(&cut_chars(&line, MAX_LINE), MAX_BYTES) }
}

/// What follows a reply mark: `Re:`, `RE :`, `Re[2]:`, `回复：`.
fn without_mark(subject: &str) -> Option<&str> {
    let (mark, rest) = subject.split_once([':', '：'])?;
    let mark = mark.trim_end();
    let mark = mark
        .strip_suffix([']', ')'])
        .map_or(mark, |counted| counted.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['[', '(']));
    REPLY_MARKS.contains(&mark.to_lowercase().as_str()).then(|| rest.trim_start())
}

fn cut_chars(text: &str, max: usize) -> String {
    if text.graphemes(true).count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.graphemes(true).take(max - 1).collect();
    short.truncate(short.trim_end().len());
    short + "…"
}

fn cut_bytes(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = text.grapheme_indices(true).map(|(at, _)| at).take_while(|at| at + '…'.len_utf8() <= max).last();
    format!("{}…", text[..end.unwrap_or(0)].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_one_mark() {
        for (subject, expected) in [
            ("Lunch", "Re: Lunch"),
            ("Re: Lunch", "Re: Lunch"),
            ("RE: re : AW: Antw: SV: Lunch", "Re: Lunch"),
            ("Re[2]: Re(3): Lunch", "Re: Lunch"),
            ("回复：答复: 午饭", "Re: 午饭"),
            ("Fwd: Lunch", "Re: Fwd: Lunch"),
            ("Report: Re: Lunch", "Re: Report: Re: Lunch"),
            ("Re:", "Re: (none)"),
            ("", "Re: (none)"),
            ("Lunch\r\nBcc: eve@example.org", "Re: Lunch Bcc: eve@example.org"),
            ("tab\there\u{0} \u{202E}x", "Re: tab here x"),
        ] {
            assert_eq!(of_reply(subject, "(none)"), expected);
        }
    }

    #[test]
    fn subjects_are_never_empty_nor_without_end() {
        for (asked, first_line, expected) in [
            (Some("Weekly"), "text", "Weekly".to_owned()),
            (Some("  "), "the text's line", "the text's line".to_owned()),
            (None, "", "(none)".to_owned()),
            (None, &"长".repeat(100), "长".repeat(77) + "…"),
        ] {
            assert_eq!(of_new(asked, first_line, "(none)"), expected);
        }
        let endless = of_reply(&"x".repeat(5_000), "");
        assert!(endless.len() <= MAX_BYTES && endless.ends_with('…'));
        assert!(of_reply(&"长".repeat(2_000), "").len() <= MAX_BYTES);
    }
}
