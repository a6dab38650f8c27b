//! The lines of a result, and the selection of lines that stay.

use std::ops::Range;

use crate::text::pattern;

/// The lines of a result.
pub struct TextLines<'a> {
    pub lines: Vec<&'a str>,
    /// The lines without the line numbers of `read_file`.
    pub bodies: Vec<&'a str>,
    pub is_numbered: bool,
    /// The number of characters of each line, with its line break.
    sizes: Vec<usize>,
}

impl<'a> TextLines<'a> {
    pub fn of(text: &'a str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let mut numbers = lines.iter().map(|line| Some(number_of(line)?.0));
        let first = numbers.next().flatten();
        let is_numbered = first.is_some_and(|first| numbers.next().is_none_or(|next| next == Some(first + 1)));
        let body = |line: &&'a str| match number_of(line) {
            Some((_, body)) if is_numbered => body,
            _ => *line,
        };
        let sizes = lines.iter().map(|line| line.chars().count() + 1).collect();
        Self { bodies: lines.iter().map(body).collect(), lines, is_numbered, sizes }
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the text of some lines, without their numbers.
    pub fn text(&self, range: Range<usize>) -> String {
        self.bodies[range].join("\n")
    }

    /// Returns the number of characters of some lines, with their line breaks.
    pub fn chars(&self, range: Range<usize>) -> usize {
        self.sizes[range].iter().sum()
    }
}

/// Returns the line number of a line of `read_file`, and the rest of the line.
fn number_of(line: &str) -> Option<(usize, &str)> {
    let (number, body) = line.split_once('\t')?;
    Some((number.trim_start().parse().ok()?, body))
}

/// The maximum number of omissions of a result that are repeated.
const MAX_OMISSIONS: usize = 4;

pattern!(
    /// A line of a result that says what is missing at this place, because it was cut or not read. A number of lines that no
    /// result can have is ignored.
    OMISSION,
    r"(?m)^\[\.\.\. (\d+ (?:characters|bytes), (\d{1,12}) lines (?:cut|are not searched))\b[^\n]*\]$"
);

/// A part that is missing in the text of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Omission<'a> {
    /// The missing amount, in words.
    pub text: &'a str,
    pub lines: usize,
    /// True if the text ends there.
    pub is_last: bool,
}

/// Returns the omissions that lines of a text report.
pub fn omissions<'a>(text: &'a str) -> Vec<Omission<'a>> {
    let omission = |found: regex::Captures<'a>| {
        let end = found.get(0)?.end();
        Some(Omission {
            text: found.get(1)?.as_str(),
            lines: found.get(2)?.as_str().parse().ok()?,
            is_last: text[end..].trim().is_empty(),
        })
    };
    OMISSION.captures_iter(text).take(MAX_OMISSIONS).filter_map(omission).collect()
}

/// The limit of a selection.
#[derive(Clone, Copy)]
pub struct LineBudget {
    pub chars: usize,
    pub lines: usize,
}

impl LineBudget {
    pub fn is_full(self, selection: &LineSelection<'_>) -> bool {
        selection.count() >= self.lines || selection.chars() >= self.chars
    }
}

/// A selection of the lines that stay.
pub struct LineSelection<'a> {
    /// The lines of the whole text.
    pub lines: &'a TextLines<'a>,
    kept: Vec<bool>,
    count: usize,
    chars: usize,
    /// The longest line that may be kept, in characters with its line break.
    longest: usize,
}

impl<'a> LineSelection<'a> {
    pub fn none(lines: &'a TextLines<'a>) -> Self {
        Self::of_short(lines, usize::MAX)
    }

    /// Returns an empty selection that never keeps a line with more than `longest` characters.
    pub fn of_short(lines: &'a TextLines<'a>, longest: usize) -> Self {
        Self { lines, kept: vec![false; lines.len()], count: 0, chars: 0, longest }
    }

    /// Returns true if a line is too long to be kept.
    pub fn is_too_long(&self, line: usize) -> bool {
        self.lines.sizes[line] > self.longest
    }

    /// Keeps the lines of a range, up to the end of the text.
    pub fn keep(&mut self, range: Range<usize>) {
        for line in range.start..range.end.min(self.kept.len()) {
            if !self.kept[line] && !self.is_too_long(line) {
                self.kept[line] = true;
                self.count += 1;
                self.chars += self.lines.sizes[line];
            }
        }
    }

    pub fn keep_line(&mut self, line: usize) {
        self.keep(line..line + 1);
    }

    /// Keeps lines, until the budget is used up.
    pub fn keep_within(&mut self, budget: LineBudget, lines: impl IntoIterator<Item = usize>) {
        for line in lines {
            if budget.is_full(self) {
                break;
            }
            self.keep_line(line);
        }
    }

    /// Keeps a line and the lines around it.
    pub fn keep_around(&mut self, line: usize, around: usize) {
        self.keep(line.saturating_sub(around)..line + around + 1);
    }

    pub fn keeps(&self, line: usize) -> bool {
        self.kept.get(line).copied().unwrap_or(false)
    }

    /// Returns the number of kept lines.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of characters of the kept lines.
    pub fn chars(&self) -> usize {
        self.chars
    }

    /// Returns the kept lines, with a mark at each gap. A single short line stays instead, since the mark would be longer.
    pub fn render(&self) -> String {
        let lines = self.lines;
        let mut text = String::new();
        let mut line = 0;
        while line < self.kept.len() {
            let gap = self.kept[line..].iter().take_while(|kept| !**kept).count();
            let is_short = gap == 1 && lines.lines[line].len() < 20;
            if gap > 0 && !is_short {
                // With line numbers, the mark need not say how many lines are missing.
                text.push_str(&if lines.is_numbered { "...\n".to_owned() } else { format!("[... {gap} lines]\n") });
                line += gap;
                continue;
            }
            text.push_str(lines.lines[line]);
            text.push('\n');
            line += 1;
        }
        text.pop();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_marked_and_numbers_stay_true() {
        let numbered = "1\tone is a line of text\n2\ttwo is a line of text\n3\tthree is a line of text\n4\tfour";
        for (text, kept, expected) in [
            (numbered, &[0, 3][..], "1\tone is a line of text\n...\n4\tfour"),
            (numbered, &[1], "...\n2\ttwo is a line of text\n..."),
            ("a\nb\nc", &[0, 2], "a\nb\nc"),
            ("a\nb\nc\nd", &[0], "a\n[... 3 lines]"),
        ] {
            let lines = TextLines::of(text);
            let mut selection = LineSelection::none(&lines);
            kept.iter().for_each(|line| selection.keep_line(*line));
            assert_eq!(selection.render(), expected);
        }
    }
}
