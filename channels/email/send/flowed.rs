//! Lines of text/plain with `format=flowed; delsp=yes` (RFC 3676): a line that ends in a space goes on in the next, and
//! that space is not part of the text. So Chinese can be broken, which has no spaces, and a narrow window can flow.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// How wide lines become, in columns. RFC 3676, section 4.2, wants no more than 78 characters; with this and its mark a
/// line still needs no encoding.
const WIDTH: usize = 72;
/// What must not begin a line, and what must not end one, in Chinese and Japanese.
const NEVER_FIRST: &str = "，。、；：？！）】》」』”’…—·,.;:?!)]}";
const NEVER_LAST: &str = "（【《「『“‘([{";

/// Lines on their way into a text.
#[derive(Default)]
pub struct Flowed {
    text: String,
}

impl Flowed {
    pub fn into_text(self) -> String {
        self.text
    }

    /// Puts `line` down, under `depth` marks of quotation, broken where it is too long; a reader that knows the format
    /// joins it again.
    pub fn flow(&mut self, line: &str, depth: usize) {
        let width = WIDTH.saturating_sub(depth + 2).max(20);
        let line = line.trim_end();
        let mut rest = line;
        while let Some(at) = break_at(rest, width) {
            let (head, tail) = rest.split_at(at);
            self.put(head, depth);
            self.text.push_str(" \r\n");
            rest = tail;
        }
        self.put(rest, depth);
        self.text.push_str("\r\n");
    }

    /// Puts `line` down as it is.
    pub fn fix(&mut self, line: &str, depth: usize) {
        // A space at its end would join it with the next one.
        self.put(line.trim_end(), depth);
        self.text.push_str("\r\n");
    }

    fn put(&mut self, line: &str, depth: usize) {
        self.text.extend(std::iter::repeat_n('>', depth));
        let is_stuffed = depth > 0 && !line.is_empty() || line.starts_with([' ', '>']) || line.starts_with("From ");
        if is_stuffed {
            self.text.push(' ');
        }
        self.text.push_str(line);
    }
}

/// Where to break a line that is wider than `width`: behind a space, or beside a wide character.
fn break_at(line: &str, width: usize) -> Option<usize> {
    if line.len() <= width || line.width() <= width {
        return None;
    }
    let mut columns = 0;
    let mut best = None;
    let mut before = "";
    for (at, grapheme) in line.grapheme_indices(true) {
        if at > 0 && may_break(before, grapheme) {
            // The first that is too far is better than none: a long word stays whole.
            if columns > width && best.is_some() {
                return best;
            }
            best = Some(at);
            if columns > width {
                return best;
            }
        }
        // A space at the end of a line takes no room.
        columns += grapheme.width();
        before = grapheme;
    }
    best.filter(|_| columns > width)
}

fn may_break(before: &str, after: &str) -> bool {
    if before == " " {
        return after != " ";
    }
    let wide = |grapheme: &str| grapheme.width() > 1;
    (wide(before) || wide(after)) && after != " " && !NEVER_FIRST.contains(after) && !NEVER_LAST.contains(before)
}

/// What a reader that knows the format makes of it.
#[cfg(test)]
pub fn unflow(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.split("\r\n") {
        let depth = line.bytes().take_while(|b| *b == b'>').count();
        let (marks, content) = line.split_at(depth);
        let content = content.strip_prefix(' ').unwrap_or(content);
        let soft = content.strip_suffix(' ');
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(soft.unwrap_or(content)),
            None => lines.push(format!("{marks}{}{}", if depth > 0 { " " } else { "" }, soft.unwrap_or(content))),
        }
        goes_on = soft.is_some();
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_and_joined_again() {
        let english = "The quick brown fox jumps over the lazy dog ".repeat(5);
        let chinese = "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。".repeat(8);
        let mixed = "在 example.org 上运行 `cargo build`（需要两分钟）。".repeat(4);
        let address = format!("see <https://example.org/{}> for more", "x".repeat(100));
        for (line, depth) in [(&english, 0), (&chinese, 0), (&mixed, 1), (&address, 0), (&english, 3)] {
            let mut flowed = Flowed::default();
            flowed.flow(line, depth);
            let text = flowed.into_text();
            let marks = if depth > 0 { ">".repeat(depth) + " " } else { String::new() };
            assert_eq!(unflow(&text).trim_end(), format!("{marks}{}", line.trim_end()));
            assert!(text.lines().all(|l| l.width() <= 76 || l.contains("https")), "{text}");
            assert!(text.lines().all(|l| !l.trim_start_matches(['>', ' ']).starts_with(['，', '。'])), "{text}");
        }
    }

    #[test]
    fn what_could_be_taken_for_a_mark_is_stuffed() {
        for (line, depth, expected) in [
            ("> not a quotation", 0, " > not a quotation\r\n"),
            ("From here on", 0, " From here on\r\n"),
            ("  indented", 0, "   indented\r\n"),
            ("quoted", 2, ">> quoted\r\n"),
            ("", 1, ">\r\n"),
            ("ends in space ", 0, "ends in space\r\n"),
        ] {
            let mut flowed = Flowed::default();
            flowed.fix(line, depth);
            assert_eq!(flowed.into_text(), expected);
        }
    }
}
