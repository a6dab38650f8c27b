//! MEMORY.md as text: where its bullets stand, and the same text with some of them fewer or more. All else stays byte for byte.

use std::ops::Range;

use crate::memory::wording::one_line;

/// A bullet, with the lines that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bullet {
    /// Its lines whole, in bytes of the text.
    pub range: Range<usize>,
    /// Below the heading of what is private.
    pub is_private: bool,
    /// On one line, without its mark.
    pub text: String,
}

/// The headings below which bullets are the owner's own.
const PRIVATE: [&str; 2] = ["Private", "私人"];

/// The bullets of a text, in order. Those in code and in comments are none.
pub fn bullets(text: &str) -> Vec<Bullet> {
    read(text).0
}

/// `text` without the lines of some bullets.
pub fn without(text: &str, ranges: &[Range<usize>]) -> String {
    let mut left = String::with_capacity(text.len());
    let mut at = 0;
    let mut ranges = ranges.to_vec();
    ranges.sort_by_key(|range| range.start);
    for range in ranges {
        left.push_str(&text[at..range.start.max(at)]);
        at = range.end.max(at);
    }
    left.push_str(&text[at..]);
    left
}

/// `text` with bullets more, behind those that are of the same kind. `heading` is what stands above what is private where
/// there is no such heading yet.
pub fn with(text: &str, is_private: bool, more: &[String], heading: &str) -> String {
    if more.is_empty() {
        return text.to_owned();
    }
    let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let (bullets, private) = read(text);
    let last = bullets.iter().rfind(|bullet| bullet.is_private == is_private).map(|bullet| bullet.range.end);
    let lines: String = more.iter().map(|line| format!("- {line}{eol}")).collect();
    let (at, lines) = match (last, is_private, private) {
        (Some(at), _, _) => (at, lines),
        (None, true, Some(private)) => (private.end, format!("{eol}{lines}")),
        (None, true, None) => (text.len(), format!("{eol}## {heading}{eol}{eol}{lines}")),
        (None, false, Some(private)) => (private.start, format!("{lines}{eol}")),
        (None, false, None) => (text.len(), format!("{eol}{lines}")),
    };
    let (before, after) = text.split_at(at);
    let break_before = if before.is_empty() || before.ends_with('\n') { "" } else { eol };
    format!("{before}{break_before}{lines}{after}")
}

/// The bullets, and the heading of what is private.
fn read(text: &str) -> (Vec<Bullet>, Option<Range<usize>>) {
    let mut bullets: Vec<Bullet> = Vec::new();
    let mut private = None;
    let (mut fence, mut is_comment, mut is_open) = (None::<&str>, false, false);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let range = at..at + line.len();
        at = range.end;
        let words = line.trim();
        let was_open = std::mem::replace(&mut is_open, false);
        if is_comment {
            is_comment = !words.contains("-->");
        } else if let Some(mark) = fence {
            if words.starts_with(mark) {
                fence = None;
            }
        } else if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| words.starts_with(mark)) {
            fence = Some(mark);
        } else if words.starts_with("<!--") {
            is_comment = !words.contains("-->");
        } else if words.starts_with('#') {
            let title = words.trim_matches(['#', ' ']);
            if private.is_none() && PRIVATE.iter().any(|one| title.eq_ignore_ascii_case(one)) {
                private = Some(range);
            }
        } else if let Some(said) = marked(words) {
            bullets.push(Bullet { range, is_private: private.is_some(), text: one_line(said) });
            is_open = true;
        } else if let Some(last) = bullets.last_mut().filter(|_| was_open && is_indented(line)) {
            last.range.end = range.end;
            last.text = one_line(&format!("{} {words}", last.text));
            is_open = true;
        }
    }
    (bullets, private)
}

fn marked(words: &str) -> Option<&str> {
    ["- ", "* ", "+ "].iter().find_map(|mark| words.strip_prefix(mark)).filter(|said| !said.trim().is_empty())
}

fn is_indented(line: &str) -> bool {
    (line.starts_with("  ") || line.starts_with('\t')) && !line.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Memory\r\n\r\nHello\r\n- one\r\n  goes on\r\n* two\r\n<!-- - none\r\n- none -->\r\n```\r\n- none\r\n```\r\n\
                        ## private\r\n\r\n- three\r\n\r\nafter";

    #[test]
    fn bullets_are_found_and_nothing_else() {
        let found: Vec<_> = bullets(PAGE).into_iter().map(|bullet| (bullet.text, bullet.is_private)).collect();
        let expected = [("one goes on", false), ("two", false), ("three", true)];
        assert_eq!(found, expected.map(|(text, is_private)| (text.to_owned(), is_private)));
        for nothing in ["", "-", "- ", "---", "-x", "# - x", "text\n  more"] {
            assert_eq!(bullets(nothing), [], "{nothing:?}");
        }
    }

    #[test]
    fn all_else_stays_byte_for_byte() {
        let all = bullets(PAGE);
        assert_eq!(
            without(PAGE, &[all[0].range.clone(), all[2].range.clone()]),
            PAGE.replace("- one\r\n  goes on\r\n", "").replace("- three\r\n", "")
        );
        let more = with(&with(PAGE, false, &["four".to_owned()], "Private"), true, &["five".to_owned()], "Private");
        assert_eq!(
            more,
            PAGE.replace("* two\r\n", "* two\r\n- four\r\n").replace("- three\r\n", "- three\r\n- five\r\n")
        );
        for (text, is_private, expected) in [
            ("", false, "\n- x\n"),
            ("# M\n", false, "# M\n\n- x\n"),
            ("# M", true, "# M\n\n## 私人\n\n- x\n"),
            ("a\n## 私人\nb", false, "a\n- x\n\n## 私人\nb"),
            ("a\n## 私人", true, "a\n## 私人\n\n- x\n"),
            ("- a", false, "- a\n- x\n"),
        ] {
            assert_eq!(with(text, is_private, &["x".to_owned()], "私人"), expected, "{text:?}");
        }
    }
}
