//! Renders Markdown that arrives in pieces. Each row is emitted once, as soon as later text cannot change it. The live row
//! after the final rows shows its current state.
//!
//! A block (a paragraph, a list item, a code block) ends at a blank line or where the next block begins. In an open block,
//! the rows before the last one are final if no mark such as `**` is open in them.

use super::layout::{ScreenRow, TextPosition, TextStyle, wrap};
use super::markdown::{MarkdownStyle, render};
use super::markdown_scan::{block_end, final_end};

/// The size in bytes from which a block is rendered in pieces, because each delta renders the whole open block.
const MAX_BLOCK: usize = 16 << 10;

/// The rows that a piece of text adds to the screen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StreamUpdate {
    /// The final rows.
    pub rows: Vec<ScreenRow>,
    /// The live row, whose text may still change.
    pub live: Option<ScreenRow>,
}

/// The renderer of one answer.
#[derive(Default)]
pub(super) struct MarkdownStream {
    style: MarkdownStyle,
    lead: ScreenRow,
    /// The open block.
    block: String,
    /// The block's rows that were emitted at the current width.
    shown: Vec<ScreenRow>,
    /// The end of the rows that were emitted at another width.
    before: TextPosition,
    /// An empty row separates the next block from the rows before it.
    is_gap_due: bool,
}

impl MarkdownStream {
    pub(super) fn new(style: MarkdownStyle, lead: ScreenRow) -> Self {
        Self { style, lead, ..Self::default() }
    }

    /// Changes the width for later rows; emitted rows stay.
    pub(super) fn resize(&mut self, width: usize) {
        if width == self.style.width {
            return;
        }
        self.before = self.before.and(&std::mem::take(&mut self.shown));
        self.style.width = width;
    }

    /// Returns the rows of `text` at the current width, without those that were emitted at another width.
    fn rows(&self, text: &str) -> Vec<ScreenRow> {
        self.before.rest_of(render(text, self.style, &self.lead))
    }

    /// Adds a piece of text.
    pub(super) fn push(&mut self, text: &str) -> StreamUpdate {
        self.block.push_str(text);
        let mut rows = Vec::new();
        while let Some(end) = block_end(&self.block) {
            let rest = self.block.split_off(end);
            self.end_block(&mut rows);
            self.block = rest;
        }
        if self.block.len() > MAX_BLOCK {
            self.break_block(&mut rows);
        }
        if self.block.trim().is_empty() {
            return StreamUpdate { rows, live: None };
        }
        self.gap(&mut rows);
        let fixed = &self.block[..final_end(&self.block)];
        let is_whole_line = fixed.ends_with('\n');
        let mut fixed = self.rows(fixed);
        if !is_whole_line {
            fixed.pop();
        }
        if fixed.len() > self.shown.len() && fixed.starts_with(&self.shown) {
            rows.extend_from_slice(&fixed[self.shown.len()..]);
            self.shown = fixed;
        }
        let all = self.rows(&self.block);
        let hidden = all.len().saturating_sub(self.shown.len() + 1);
        let live = all.last().filter(|_| all.len() > self.shown.len()).map(|last| {
            let mut row = ScreenRow::of(TextStyle::DIM, if hidden > 0 { "… " } else { "" });
            row.extend(last);
            row.cut(self.style.width)
        });
        StreamUpdate { rows, live }
    }

    /// Ends the answer; returns its remaining rows.
    pub(super) fn finish(&mut self) -> Vec<ScreenRow> {
        let mut rows = Vec::new();
        if self.block.trim().is_empty() {
            self.block.clear();
            return rows;
        }
        self.end_block(&mut rows);
        rows
    }

    fn end_block(&mut self, rows: &mut Vec<ScreenRow>) {
        let block = std::mem::take(&mut self.block);
        let shown = std::mem::take(&mut self.shown);
        if block.trim().is_empty() {
            return;
        }
        self.gap(rows);
        let mut all = self.rows(&block);
        if all.is_empty() && self.before == TextPosition::default() {
            all = wrap(
                &ScreenRow::of(TextStyle::PLAIN, block.trim()),
                &self.lead,
                &ScreenRow::default(),
                self.style.width,
            );
        }
        let is_as_shown = all.len() >= shown.len() && all.iter().zip(&shown).all(|(a, b)| a.plain() == b.plain());
        // If an emitted row has changed after all, repeating rows is better than losing some.
        rows.extend_from_slice(if is_as_shown { &all[shown.len()..] } else { &all });
        self.before = TextPosition::default();
        self.lead = ScreenRow::default();
        self.is_gap_due = true;
    }

    fn gap(&mut self, rows: &mut Vec<ScreenRow>) {
        if std::mem::take(&mut self.is_gap_due) {
            rows.push(ScreenRow::default());
        }
    }

    /// Ends a block that is too long at its last line. A code block continues as code.
    fn break_block(&mut self, rows: &mut Vec<ScreenRow>) {
        let at = self.block.rfind('\n').map_or(self.block.len(), |at| at + 1);
        let mut rest = self.block.split_off(at);
        let opening = self.block.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
        let is_code = opening.starts_with("```") || opening.starts_with("~~~");
        self.end_block(rows);
        self.is_gap_due = false;
        if is_code {
            let fence: String = opening.chars().take_while(|c| *c == '`' || *c == '~').collect();
            rest.insert_str(0, &format!("{fence}\n"));
        }
        self.block = rest;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STYLE: MarkdownStyle = MarkdownStyle { width: 24, in_colour: true };

    fn stream(pieces: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut flow = MarkdownStream::new(STYLE, ScreenRow::of(TextStyle::PLAIN, "Bot> "));
        let (mut rows, mut live) = (Vec::new(), Vec::new());
        for piece in pieces {
            let step = flow.push(piece);
            rows.extend(step.rows.iter().map(ScreenRow::plain));
            live.push(step.live.map(|row| row.plain()).unwrap_or_default());
        }
        rows.extend(flow.finish().iter().map(ScreenRow::plain));
        (rows, live)
    }

    #[test]
    fn text_is_shown_as_it_comes_and_each_row_once() {
        let (rows, live) = stream(&["Hello", " wor", "ld and **bo", "ld** text", " that goes on.\n\n- it", "em\n"]);
        assert_eq!(rows, ["Bot> Hello world and", "bold text that goes on.", "", "• item"]);
        assert_eq!(
            live,
            ["Bot> Hello", "Bot> Hello wor", "… **bo", "bold text", "• it", ""],
            "an open mark holds its row back, and shows as it stands"
        );
    }

    #[test]
    fn text_continues_after_itself_when_the_screen_is_resized() {
        let text = "Bot says **some** words, and then 一些中文文字，and more.\n\n> quoted words that are long enough\n\n\
                    ```\nlet a_line = of(code);\n\n\nlet b = 1;\n```\n- an item with some words\n- and another one\n";
        let chars: Vec<char> = text.chars().collect();
        for (step, widths) in [(1, [40, 12, 25]), (3, [24, 23, 24]), (7, [12, 60, 12]), (11, [30, 11, 90])] {
            let mut flow = MarkdownStream::new(STYLE, ScreenRow::default());
            let mut rows = Vec::new();
            for (number, piece) in chars.chunks(step).enumerate() {
                flow.resize(widths[number / 5 % widths.len()]);
                rows.extend(flow.push(&piece.iter().collect::<String>()).rows);
            }
            rows.extend(flow.finish());
            let flat = |rows: &[ScreenRow]| -> String {
                let text: String = rows.iter().map(ScreenRow::plain).collect();
                text.replace([' ', '│'], "")
            };
            let whole = render(text, MarkdownStyle { width: 200, ..STYLE }, &ScreenRow::default());
            assert_eq!(flat(&rows), flat(&whole), "{widths:?}");
        }
    }

    #[test]
    fn code_is_emitted_line_by_line_and_a_table_at_its_end() {
        let mut flow = MarkdownStream::new(STYLE, ScreenRow::default());
        assert_eq!(flow.push("```rust\nlet a = 1;\nlet b").rows.len(), 2);
        assert_eq!(flow.push(" = 2;\n```\n").rows.iter().map(ScreenRow::plain).collect::<Vec<_>>(), ["  let b = 2;"]);
        let step = flow.push("| a | b |\n|---|---|\n| 1 | 2 |\n");
        assert_eq!((step.rows.len(), step.live.is_some()), (1, true), "the gap alone");
        let rows: Vec<_> = flow.push("\ntext").rows.iter().map(ScreenRow::plain).collect();
        assert_eq!(rows, ["a │ b", "──┼──", "1 │ 2", ""]);
    }

    #[test]
    fn an_endless_block_is_emitted_in_pieces() {
        let mut flow = MarkdownStream::new(STYLE, ScreenRow::default());
        let code: String = (0..4_000).map(|line| format!("line {line}\n")).collect();
        let mut rows = flow.push("```\n").rows;
        for piece in code.as_bytes().chunks(1_000) {
            rows.extend(flow.push(std::str::from_utf8(piece).unwrap()).rows);
        }
        rows.extend(flow.finish());
        let lines: Vec<_> = rows.iter().map(ScreenRow::plain).filter(|row| !row.is_empty()).collect();
        assert_eq!(lines, (0..4_000).map(|line| format!("  line {line}")).collect::<Vec<_>>());
    }

    const PARTS: [&str; 24] = [
        "word ", "你好，", "**", "*", "`", "_", "a_b ", "\n", "\n\n", "- ", "1. ", "# ", "> ", "```\n", "| a | b |\n",
        "|-|-|\n", "[x](", ")", "~~", "<", "&lt;", "---\n", "  ", "end. ",
    ];
    const WHOLE: [&str; 18] = [
        "word ",
        "some more words, ",
        "你好，世界。",
        "**bold words** ",
        "*slanted* ",
        "`code` ",
        "[name](http://x.y/z) ",
        "a_b ",
        "\n",
        "\n\n",
        "\n- item ",
        "\n  - deep ",
        "\n1. one ",
        "\n\n## Head ",
        "\n> quote ",
        "\n\n```sh\nls -l\n\nend\n```\n",
        "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n",
        "\n\n---\n\n",
    ];

    fn letters(rows: &[String]) -> Vec<char> {
        rows.concat().chars().filter(|c| c.is_alphanumeric()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        /// Well-formed text gives the same rows however it is cut.
        #[test]
        fn pieces_make_the_same_as_the_whole(
            parts in proptest::collection::vec(proptest::sample::select(&WHOLE[..]), 0..40),
            size in 1usize..9,
        ) {
            let whole = parts.concat();
            let chars: Vec<char> = whole.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(stream(&pieces).0, stream(&[&whole]).0, "{:?}", whole);
        }

        /// Text with arbitrarily placed marks loses nothing.
        #[test]
        fn no_letter_is_lost(parts in proptest::collection::vec(proptest::sample::select(&PARTS[..]), 0..60)) {
            let whole = parts.concat();
            let (streamed, at_once) = (letters(&stream(&parts).0), letters(&stream(&[&whole]).0));
            let mut left = streamed.iter();
            prop_assert!(at_once.iter().all(|letter| left.any(|c| c == letter)), "{:?} of {:?}", streamed, whole);
        }
    }
}
