//! Lines of text/plain with `format=flowed; delsp=yes` (RFC 3676). A line that ends in a space continues in the next line,
//! and that space is not part of the text. Therefore even Chinese text, which has no spaces, can be wrapped, and narrow
//! windows can rewrap it. Own code because textwrap would also break URLs.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The width of lines, in columns. RFC 3676, section 4.2 asks for at most 78 characters. A line of this width with its
/// quotation mark needs no encoding.
const WIDTH: usize = 72;
/// Characters that must not begin a line of Chinese or Japanese, and characters that must not end one.
const NEVER_FIRST: &str = "，。、；：？！）】》」』”’…—·,.;:?!)]}";
const NEVER_LAST: &str = "（【《「『“‘([{";

/// A text built of wrapped lines.
#[derive(Default)]
pub struct FlowedText {
    text: String,
}

impl FlowedText {
    pub fn into_text(self) -> String {
        self.text
    }

    /// Appends `line` below `depth` quotation marks. A line that is too long is wrapped; a reader that knows the format joins it again.
    pub fn push_wrapped(&mut self, line: &str, depth: usize) {
        let width = WIDTH.saturating_sub(depth + 2).max(20);
        let mut rest = line.trim_end();
        while let Some(at) = break_at(rest, width) {
            let (head, tail) = rest.split_at(at);
            self.push(head, depth);
            self.text.push_str(" \r\n");
            rest = tail;
        }
        self.push(rest, depth);
        self.text.push_str("\r\n");
    }

    /// Appends `line` without wrapping.
    pub fn push_unwrapped(&mut self, line: &str, depth: usize) {
        // A final space would join the line with the next one.
        self.push(line.trim_end(), depth);
        self.text.push_str("\r\n");
    }

    fn push(&mut self, line: &str, depth: usize) {
        self.text.extend(std::iter::repeat_n('>', depth));
        let is_stuffed = depth > 0 && !line.is_empty() || line.starts_with([' ', '>']) || line.starts_with("From ");
        if is_stuffed {
            self.text.push(' ');
        }
        self.text.push_str(line);
    }
}

/// Returns the position at which to break a line wider than `width`: after a space, or beside a wide character.
fn break_at(line: &str, width: usize) -> Option<usize> {
    // No character takes more columns than bytes.
    if line.len() <= width {
        return None;
    }
    let mut columns = 0;
    let mut best = None;
    let mut before = "";
    for (at, grapheme) in line.grapheme_indices(true) {
        if at > 0 && may_break(before, grapheme) {
            // A break beyond the width is better than none; a long word is not broken.
            if columns > width {
                return best.or(Some(at));
            }
            best = Some(at);
        }
        // A space at the end of a line takes no column.
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

/// Joins the lines as a reader that knows the format does.
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
    fn long_lines_are_wrapped_and_can_be_joined_again() {
        let english = "The quick brown fox jumps over the lazy dog ".repeat(5);
        let chinese = "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。".repeat(8);
        let mixed = "在 example.org 上运行 `cargo build`（需要两分钟）。".repeat(4);
        let address = format!("see <https://example.org/{}> for more", "x".repeat(100));
        for (line, depth) in [(&english, 0), (&chinese, 0), (&mixed, 1), (&address, 0), (&english, 3)] {
            let mut flowed = FlowedText::default();
            flowed.push_wrapped(line, depth);
            let text = flowed.into_text();
            let marks = if depth > 0 { ">".repeat(depth) + " " } else { String::new() };
            assert_eq!(unflow(&text).trim_end(), format!("{marks}{}", line.trim_end()));
            assert!(text.lines().all(|l| l.width() <= 76 || l.contains("https")), "{text}");
            assert!(text.lines().all(|l| !l.trim_start_matches(['>', ' ']).starts_with(['，', '。'])), "{text}");
        }
    }

    #[test]
    fn a_huge_line_is_wrapped_in_linear_time() {
        // The runner ends a run in quadratic time (`slow-timeout` in .config/nextest.toml).
        let mut flowed = FlowedText::default();
        flowed.push_wrapped(&"word ".repeat(200_000), 0);
        assert!(flowed.into_text().lines().all(|line| line.len() <= 76));
    }

    #[test]
    fn lines_that_look_like_marks_are_stuffed() {
        for (line, depth, expected) in [
            ("> not a quotation", 0, " > not a quotation\r\n"),
            ("From here on", 0, " From here on\r\n"),
            ("  indented", 0, "   indented\r\n"),
            ("quoted", 2, ">> quoted\r\n"),
            ("", 1, ">\r\n"),
            ("ends in space ", 0, "ends in space\r\n"),
        ] {
            let mut flowed = FlowedText::default();
            flowed.push_unwrapped(line, depth);
            assert_eq!(flowed.into_text(), expected);
        }
    }
}
