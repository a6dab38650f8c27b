//! Styled text in rows that fit a screen: styles, widths, wrapping.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Characters that must not start a row, because they belong to the character before them.
const CLOSING: &str = "，。！？、；：）》」』”’】〉…,.!?;:)]}%";

/// A colour of the terminal's own palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnsiColour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

/// The appearance of text where colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextStyle {
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underline: bool,
    pub strike: bool,
    pub colour: Option<AnsiColour>,
}

impl TextStyle {
    pub(super) const PLAIN: Self =
        Self { bold: false, dim: false, italic: false, underline: false, strike: false, colour: None };
    pub(super) const DIM: Self = Self { dim: true, ..Self::PLAIN };
    pub(super) const BOT: Self = Self { bold: true, ..Self::coloured(AnsiColour::Green) };

    pub(super) const fn coloured(colour: AnsiColour) -> Self {
        Self { colour: Some(colour), ..Self::PLAIN }
    }

    /// Returns `text` with the escape sequences of this style around it (ECMA-48, SGR).
    pub(super) fn paint(self, text: &str) -> String {
        let flags = [(self.bold, 1), (self.dim, 2), (self.italic, 3), (self.underline, 4), (self.strike, 9)];
        let codes = flags.into_iter().filter_map(|(is_set, code)| is_set.then_some(code));
        let codes: Vec<_> = codes.chain(self.colour.map(|colour| colour as i32)).map(|code| code.to_string()).collect();
        if codes.is_empty() || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", codes.join(";"))
    }
}

/// Text of one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextSpan {
    pub text_style: TextStyle,
    pub text: String,
}

/// One row of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScreenRow(Vec<TextSpan>);

impl ScreenRow {
    pub(super) fn of(text_style: TextStyle, text: &str) -> Self {
        let mut row = Self::default();
        row.push(text_style, text);
        row
    }

    pub(super) fn push(&mut self, text_style: TextStyle, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.text_style == text_style => last.text.push_str(text),
            _ => self.0.push(TextSpan { text_style, text: text.to_owned() }),
        }
    }

    pub(super) fn extend(&mut self, other: &Self) {
        for span in &other.0 {
            self.push(span.text_style, &span.text);
        }
    }

    pub(super) fn spans(&self) -> &[TextSpan] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn width(&self) -> usize {
        self.0.iter().map(|span| span.text.width()).sum()
    }

    /// Returns the text without styles.
    pub(super) fn plain(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }

    pub(super) fn paint(&self, in_colour: bool) -> String {
        if !in_colour {
            return self.plain();
        }
        self.0.iter().map(|span| span.text_style.paint(&span.text)).collect()
    }

    /// Returns the row without its first `count` letters and the space after them.
    fn without(&self, mut count: usize) -> Self {
        let mut rest = Self::default();
        for span in &self.0 {
            let kept: String = span
                .text
                .chars()
                .skip_while(|c| {
                    let is_skipped = count > 0 || c.is_whitespace() && rest.is_empty();
                    count = count.saturating_sub(usize::from(is_letter(*c)));
                    is_skipped
                })
                .collect();
            rest.push(span.text_style, &kept);
        }
        rest
    }

    /// Returns the row cut to `columns`; an ellipsis marks the cut.
    pub(super) fn cut(&self, columns: usize) -> Self {
        if self.width() <= columns {
            return self.clone();
        }
        let mut kept = Self::default();
        let mut left = columns.saturating_sub(1);
        for span in &self.0 {
            for piece in span.text.graphemes(true) {
                let Some(rest) = left.checked_sub(piece.width()) else {
                    kept.push(span.text_style, "…");
                    return kept;
                };
                left = rest;
                kept.push(span.text_style, piece);
            }
        }
        kept
    }
}

/// The position in a text up to which rows have been shown, measured independently of the screen's width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextPosition {
    /// The number of characters without spaces and quote bars, both of which depend on where rows begin.
    letters: usize,
    /// The number of blank rows after these characters.
    blanks: usize,
}

impl TextPosition {
    /// Returns the position at the end of `rows`, which begin at this position.
    pub(super) fn and(self, rows: &[ScreenRow]) -> Self {
        if rows.is_empty() {
            return self;
        }
        let letters = self.letters + rows.iter().map(letters_of).sum::<usize>();
        let blanks = rows.iter().rev().take_while(|row| letters_of(row) == 0).count();
        Self { letters, blanks }
    }

    /// Returns the part of `rows` after this position. `rows` hold the same text, wrapped at any width.
    pub(super) fn rest_of(self, rows: Vec<ScreenRow>) -> Vec<ScreenRow> {
        let Self { letters: mut left, mut blanks } = self;
        let mut rest = Vec::new();
        for row in rows {
            let here = letters_of(&row);
            if left >= here && left > 0 {
                left -= here;
            } else if left > 0 {
                rest.push(row.without(left));
                (left, blanks) = (0, 0);
            } else if here == 0 && blanks > 0 {
                blanks -= 1;
            } else {
                blanks = 0;
                rest.push(row);
            }
        }
        rest
    }
}

fn is_letter(c: char) -> bool {
    !c.is_whitespace() && c != '│'
}

fn letters_of(row: &ScreenRow) -> usize {
    row.0.iter().map(|span| span.text.chars().filter(|c| is_letter(*c)).count()).sum()
}

/// Returns `text` on one line, cut to `columns`.
pub(super) fn cut(text: &str, columns: usize) -> String {
    ScreenRow::of(TextStyle::PLAIN, &text.replace(['\n', '\t'], " ")).cut(columns).plain()
}

/// Breaks `text` into rows of at most `width` columns, at spaces and between wide characters. `first` is the prefix of the
/// first row and `rest` that of the others; a line feed starts a new row. Rows before the last do not change when text is
/// added. Own code because `textwrap` drops styles, breaks before closing CJK punctuation and may move earlier breaks.
pub(super) fn wrap(text: &ScreenRow, first: &ScreenRow, rest: &ScreenRow, width: usize) -> Vec<ScreenRow> {
    let mut wrapping = LineWrapper {
        rows: Vec::new(),
        row: first.clone(),
        used: first.width(),
        is_fresh: true,
        rest,
        width: width.max(rest.width() + 2).max(first.width() + 2),
        space: ScreenRow::default(),
        word: Vec::new(),
    };
    for span in text.spans() {
        for piece in span.text.graphemes(true) {
            wrapping.take(span.text_style, piece);
        }
    }
    wrapping.end_word();
    wrapping.rows.push(wrapping.row);
    wrapping.rows
}

struct LineWrapper<'a> {
    rows: Vec<ScreenRow>,
    row: ScreenRow,
    used: usize,
    /// The row contains only its prefix.
    is_fresh: bool,
    rest: &'a ScreenRow,
    width: usize,
    /// The spaces before the word, printed if the word stays on this row.
    space: ScreenRow,
    word: Vec<(TextStyle, String, usize)>,
}

impl LineWrapper<'_> {
    fn take(&mut self, text_style: TextStyle, piece: &str) {
        if piece == "\n" || piece == "\r\n" {
            self.end_word();
            self.next_row();
            return;
        }
        if piece.chars().all(char::is_whitespace) {
            self.end_word();
            self.space.push(text_style, " ");
            return;
        }
        let width = piece.width();
        let clings = CLOSING.contains(piece);
        let after_wide = self.word.last().is_some_and(|(_, _, width)| *width > 1);
        if !clings && (width > 1 || after_wide) {
            self.end_word();
        }
        self.word.push((text_style, piece.to_owned(), width));
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        let space = std::mem::take(&mut self.space);
        let width: usize = word.iter().map(|(_, _, width)| width).sum();
        if !self.is_fresh && self.used + space.width() + width > self.width {
            self.next_row();
        } else if !self.is_fresh {
            self.used += space.width();
            self.row.extend(&space);
        }
        for (text_style, piece, width) in word {
            if !self.is_fresh && self.used + width > self.width {
                self.next_row();
            }
            self.is_fresh = false;
            self.used += width;
            self.row.push(text_style, &piece);
        }
    }

    fn next_row(&mut self) {
        self.rows.push(std::mem::replace(&mut self.row, self.rest.clone()));
        self.used = self.rest.width();
        self.is_fresh = true;
        self.space = ScreenRow::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(text: &str, width: usize) -> Vec<String> {
        let (first, rest) = (ScreenRow::of(TextStyle::PLAIN, "- "), ScreenRow::of(TextStyle::PLAIN, "  "));
        wrap(&ScreenRow::of(TextStyle::PLAIN, text), &first, &rest, width).iter().map(ScreenRow::plain).collect()
    }

    #[test]
    fn text_is_broken_where_it_may_be() {
        let table: &[(&str, usize, &[&str])] = &[
            ("one two three", 10, &["- one two", "  three"]),
            ("one\ntwo", 20, &["- one", "  two"]),
            ("你好世界，再见", 10, &["- 你好世", "  界，再见"]),
            ("abc你好", 7, &["- abc你", "  好"]),
            ("abcdefghijkl", 6, &["- abcd", "  efgh", "  ijkl"]),
            ("👩‍🚀👩‍🚀👩‍🚀", 6, &["- 👩‍🚀👩‍🚀", "  👩‍🚀"]),
            ("", 10, &["- "]),
        ];
        for (text, width, expected) in table {
            assert_eq!(rows(text, *width), *expected, "{text:?}");
        }
    }

    #[test]
    fn rows_are_cut_and_grown_by_their_width() {
        assert_eq!(cut("你好世界", 5), "你好…");
        assert_eq!(cut("a\nb", 5), "a b");
    }

    #[test]
    fn rows_continue_after_those_shown_at_another_width() {
        let text = ScreenRow::of(TextStyle::PLAIN, "one two three four five six");
        let (none, bar) = (ScreenRow::default(), ScreenRow::of(TextStyle::DIM, "│ "));
        let shown = wrap(&text, &bar, &bar, 10);
        let place = TextPosition::default().and(&shown[..2]);
        let rest: Vec<_> = place.rest_of(wrap(&text, &bar, &bar, 22)).iter().map(ScreenRow::plain).collect();
        assert_eq!((shown[1].plain().as_str(), rest), ("│ three", vec!["four".to_owned(), "│ five six".to_owned()]));
        assert_eq!(TextPosition::default().and(&shown).rest_of(wrap(&text, &none, &none, 80)), []);
        let blank =
            [ScreenRow::of(TextStyle::PLAIN, "a"), none.clone(), none.clone(), ScreenRow::of(TextStyle::PLAIN, "b")];
        assert_eq!(TextPosition::default().and(&blank[..2]).rest_of(blank.to_vec()), blank[2..]);
        assert_eq!(TextPosition::default().rest_of(blank.to_vec()), blank);
    }

    proptest! {
        #[test]
        fn rows_before_the_last_stay(text in "[a-d ，,你好👍\n]{0,60}", at in 0usize..60, width in 4usize..20) {
            let chars: Vec<char> = text.chars().collect();
            let part: String = chars[..at.min(chars.len())].iter().collect();
            let (part, whole) = (rows(&part, width), rows(&text, width));
            let stable = &part[..part.len() - 1];
            prop_assert_eq!(stable, &whole[..stable.len().min(whole.len())]);
            prop_assert!(whole.iter().all(|row| row.width() <= width.max(4)));
        }
    }
}
