//! Renders Markdown (CommonMark with tables, strikethrough and task lists) as rows of a screen.

use pulldown_cmark::{Alignment, CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd};

use super::layout::{AnsiColour, ScreenRow, TextStyle, wrap};
use super::table;
use crate::clean::clean;

/// The minimum width of text beside bullets and quote bars. Deeper nesting is drawn without further indentation.
const MIN_TEXT: usize = 12;
const RULE: usize = 30;

/// The style of rendered Markdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MarkdownStyle {
    /// Columns.
    pub width: usize,
    /// Shows styles; if false, the Markdown marks stay.
    pub in_colour: bool,
}

/// Renders one or more whole blocks. `lead` goes before the first row, or above it if the block is not running text. Link
/// definitions produce no rows.
pub(super) fn render(text: &str, style: MarkdownStyle, lead: &ScreenRow) -> Vec<ScreenRow> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut drawing = TerminalMarkdown { style, lead: lead.clone(), is_tight: true, ..TerminalMarkdown::default() };
    for event in Parser::new_ext(text, options) {
        drawing.event(event);
    }
    drawing.end_text();
    drawing.rows
}

/// The prefixes of the rows of a list item or a quote.
struct Indent {
    /// The prefix of the first row; `None` once that row is drawn.
    first: Option<ScreenRow>,
    rest: ScreenRow,
}

#[derive(Default)]
struct TerminalMarkdown {
    style: MarkdownStyle,
    lead: ScreenRow,
    rows: Vec<ScreenRow>,
    text: ScreenRow,
    indents: Vec<Indent>,
    /// The next numbers of the open lists; `None` for a bullet list.
    lists: Vec<Option<u64>>,
    styles: Vec<TextStyle>,
    /// The open links, each as its target and its text so far.
    links: Vec<(String, String)>,
    code: Option<String>,
    table: Option<table::TableLayout>,
    /// The next block follows without a gap, as the first block of an item does.
    is_tight: bool,
}

impl TerminalMarkdown {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.push_text(&text),
            },
            Event::Html(text) | Event::InlineHtml(text) => self.push_text(&text),
            Event::Code(code) => {
                let text_style = TextStyle { colour: Some(AnsiColour::Cyan), ..self.text_style() };
                let code = if self.style.in_colour { code } else { CowStr::from(format!("`{code}`")) };
                self.write(text_style, &code);
            }
            Event::SoftBreak | Event::HardBreak => self.push_text("\n"),
            Event::Rule => {
                self.gap();
                let rule = "─".repeat(self.style.width.min(RULE));
                self.line(&ScreenRow::of(TextStyle::DIM, &rule));
            }
            Event::TaskListMarker(is_done) => self.push_text(if is_done { "☑ " } else { "☐ " }),
            // The parser options above do not enable these.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.push_text(&text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                let underline = level as usize == 1;
                self.styles.push(TextStyle {
                    bold: true,
                    underline,
                    colour: Some(AnsiColour::Cyan),
                    ..self.text_style()
                });
                if !self.style.in_colour {
                    self.push_text(&format!("{} ", "#".repeat(level as usize)));
                }
            }
            Tag::BlockQuote(_) => {
                self.gap();
                self.is_tight = true;
                self.indent(ScreenRow::of(TextStyle::DIM, "│ "), ScreenRow::of(TextStyle::DIM, "│ "));
            }
            Tag::CodeBlock(kind) => {
                self.gap();
                self.end_lead();
                if let CodeBlockKind::Fenced(language) = kind
                    && let Some(language) = language.split_whitespace().next()
                {
                    self.line(&ScreenRow::of(TextStyle::DIM, &format!("  {}", clean(language))));
                }
                self.code = Some(String::new());
            }
            Tag::List(number) => {
                if self.lists.is_empty() {
                    self.gap();
                }
                self.end_text();
                self.lists.push(number);
            }
            Tag::Item => self.start_item(),
            Tag::Table(alignments) => {
                self.gap();
                self.table =
                    Some(table::TableLayout::new(alignments.iter().map(|one| *one == Alignment::Right).collect()));
            }
            Tag::TableHead => self.styles.push(TextStyle { bold: true, ..self.text_style() }),
            Tag::Emphasis => self.mark("*", TextStyle { italic: true, ..self.text_style() }),
            Tag::Strong => self.mark("**", TextStyle { bold: true, ..self.text_style() }),
            Tag::Strikethrough => self.mark("~~", TextStyle { strike: true, ..self.text_style() }),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((clean(&dest_url), String::new()));
                self.styles.push(TextStyle { underline: true, ..self.text_style() });
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_text(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_text();
            }
            TagEnd::BlockQuote(_) => self.outdent(),
            TagEnd::Item => {
                self.end_text();
                // An item without text still shows its bullet.
                if self.indents.last().is_some_and(|indent| indent.first.is_some()) {
                    self.line(&ScreenRow::default());
                }
                self.outdent();
                self.is_tight = true;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.is_tight = !self.lists.is_empty();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::TableHead => {
                self.styles.pop();
                self.end_table_row();
            }
            TagEnd::TableRow => self.end_table_row(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                if let Some(table) = &mut self.table {
                    table.cell(cell);
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    for row in table.draw(self.room()) {
                        self.line(&row);
                    }
                }
            }
            TagEnd::Emphasis => self.unmark("*"),
            TagEnd::Strong => self.unmark("**"),
            TagEnd::Strikethrough => self.unmark("~~"),
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                if let Some((to, text)) = self.links.pop()
                    && to.strip_prefix("mailto:").unwrap_or(&to) != text
                {
                    self.write(TextStyle::DIM, &format!(" ({to})"));
                }
            }
            _ => {}
        }
    }

    fn start_item(&mut self) {
        self.end_text();
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "• ".to_owned(),
        };
        let rest = ScreenRow::of(TextStyle::PLAIN, &" ".repeat(marker.chars().count()));
        self.indent(ScreenRow::of(TextStyle::coloured(AnsiColour::Yellow), &marker), rest);
        self.is_tight = true;
    }

    fn end_code(&mut self) {
        let code = self.code.take().unwrap_or_default();
        for line in clean(&code).replace('\t', "    ").lines() {
            let mut row = self.prefix();
            row.push(TextStyle::PLAIN, "  ");
            // Long lines are not wrapped here: the terminal wraps them, and a copied line stays whole.
            row.push(TextStyle::coloured(AnsiColour::Cyan), line);
            self.rows.push(row);
        }
    }

    fn end_table_row(&mut self) {
        if let Some(table) = &mut self.table {
            table.end_row();
        }
    }

    fn mark(&mut self, mark: &str, text_style: TextStyle) {
        self.styles.push(text_style);
        if !self.style.in_colour {
            self.push_text(mark);
        }
    }

    fn unmark(&mut self, mark: &str) {
        if !self.style.in_colour {
            self.push_text(mark);
        }
        self.styles.pop();
    }

    fn push_text(&mut self, text: &str) {
        self.write(self.text_style(), text);
    }

    /// Cleans the text again, because entities such as `&#27;` are characters by now.
    fn write(&mut self, text_style: TextStyle, text: &str) {
        let text = clean(text);
        for (_, label) in &mut self.links {
            label.push_str(&text);
        }
        self.text.push(text_style, &text);
    }

    fn text_style(&self) -> TextStyle {
        self.styles.last().copied().unwrap_or_default()
    }

    fn indent(&mut self, first: ScreenRow, rest: ScreenRow) {
        let too_deep = self.room() < rest.width() + MIN_TEXT;
        let empty = ScreenRow::default();
        self.indents.push(if too_deep && !self.indents.is_empty() {
            Indent { first: Some(empty.clone()), rest: empty }
        } else {
            Indent { first: Some(first), rest }
        });
    }

    fn outdent(&mut self) {
        self.end_text();
        self.indents.pop();
    }

    fn room(&self) -> usize {
        let indent: usize = self.indents.iter().map(|indent| indent.rest.width()).sum();
        self.style.width.saturating_sub(indent)
    }

    /// Returns the prefix of the next row. Each bullet is used once.
    fn prefix(&mut self) -> ScreenRow {
        let mut prefix = ScreenRow::default();
        for indent in &mut self.indents {
            prefix.extend(&indent.first.take().unwrap_or_else(|| indent.rest.clone()));
        }
        prefix
    }

    /// Adds an empty row between two blocks.
    fn gap(&mut self) {
        self.end_text();
        if !self.is_tight && !self.rows.is_empty() {
            let prefix = self.prefix();
            self.rows.push(prefix);
        }
        self.is_tight = false;
    }

    /// Wraps the text so far into rows.
    fn end_text(&mut self) {
        if self.text.is_empty() || self.table.is_some() {
            return;
        }
        let text = std::mem::take(&mut self.text);
        let mut first = self.prefix_with_lead();
        let rest = self.prefix();
        if first.is_empty() {
            first = rest.clone();
        }
        self.rows.extend(wrap(&text, &first, &rest, self.style.width));
    }

    /// Returns the prefix of a text's first row, with the lead if it is running text.
    fn prefix_with_lead(&mut self) -> ScreenRow {
        if self.indents.is_empty() {
            return std::mem::take(&mut self.lead);
        }
        self.end_lead();
        self.prefix()
    }

    fn end_lead(&mut self) {
        let lead = std::mem::take(&mut self.lead);
        if !lead.is_empty() {
            self.rows.push(lead);
        }
    }

    /// Adds one row without wrapping.
    fn line(&mut self, row: &ScreenRow) {
        self.end_lead();
        let mut line = self.prefix();
        line.extend(row);
        self.rows.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(text: &str, width: usize, in_colour: bool) -> Vec<String> {
        let rows = render(text, MarkdownStyle { width, in_colour }, &ScreenRow::default());
        rows.iter().map(|row| row.paint(in_colour).trim_end().to_owned()).collect()
    }

    #[test]
    fn blocks_have_their_shape() {
        let table: &[(&str, &[&str])] = &[
            ("plain *text* and **more**", &["plain *text* and", "**more**"]),
            ("# Title\ntext", &["# Title", "", "text"]),
            ("- one\n- two\n  - deep\n- three", &["• one", "• two", "  • deep", "• three"]),
            ("9. nine\n10. ten is long enough", &["9. nine", "10. ten is long", "    enough"]),
            ("- a\n\n  more of a", &["• a", "", "  more of a"]),
            ("- [x] done\n- [ ] open", &["• ☑ done", "• ☐ open"]),
            ("> quoted\n> more", &["│ quoted", "│ more"]),
            ("```rust\nfn main() {\n\tx\n}\n```", &["  rust", "  fn main() {", "      x", "  }"]),
            ("```\nlet words = this_line_is_long();\n```", &["  let words = this_line_is_long();"]),
            ("`a*b*` and 2 * 3", &["`a*b*` and 2 * 3"]),
            ("[text](http://x.y)", &["text (http://x.y)"]),
            ("<http://x.y>", &["http://x.y"]),
            ("---", &["────────────────────"]),
            ("one\ntwo", &["one", "two"]),
            ("|a|b|\n|-|-:|\n|1|22|\n|你好|3|", &["a    │  b", "─────┼───", "1    │ 22", "你好 │  3"]),
            ("<b>html</b>", &["<b>html</b>"]),
            ("-", &["•"]),
            ("- - both", &["• • both"]),
        ];
        for (text, expected) in table {
            assert_eq!(draw(text, 20, false), *expected, "{text:?}");
        }
    }

    #[test]
    fn faces_replace_the_marks_in_colour() {
        let table: &[(&str, &str)] = &[
            ("**b** *i* ~~s~~ `c`", "\x1b[1mb\x1b[0m \x1b[3mi\x1b[0m \x1b[9ms\x1b[0m \x1b[36mc\x1b[0m"),
            ("## Head", "\x1b[1;36mHead\x1b[0m"),
            ("[t](u)", "\x1b[4mt\x1b[0m\x1b[2m (u)\x1b[0m"),
        ];
        for (text, expected) in table {
            assert_eq!(draw(text, 40, true), [*expected], "{text:?}");
        }
    }

    #[test]
    fn entities_and_links_cannot_control_the_terminal() {
        for text in [
            "&#27;[2Jx &#x9b;31m", "[a](http://x&#27;]0;t&#7;)", "```\n\x1b[31m\n```", "```\x1b[31m\ncode\n```",
            "|&#27;[1m|\n|-|\n|&#27;|", "<b\x1b[1m>",
        ] {
            for row in draw(text, 40, false) {
                assert!(!row.contains(char::is_control), "{text:?}: {row:?}");
            }
        }
    }

    #[test]
    fn deep_nesting_and_narrow_screens_end_well() {
        let deep = format!("{}x", "> ".repeat(200));
        let list: String = (0..100).map(|depth| format!("{}- item\n", "  ".repeat(depth))).collect();
        let table = "|a|b|c|d|e|f|g|h|\n|-|-|-|-|-|-|-|-|\n|1|2|3|4|5|6|7|a long cell of words|";
        for text in [deep.as_str(), list.as_str(), table, "一个很长的中文段落，没有空格，要在窄屏上换行。"]
        {
            for width in [1, 8, 20] {
                for row in draw(text, width, false) {
                    assert!(row.chars().count() <= width.max(MIN_TEXT + 14), "{width}: {row:?}");
                }
            }
        }
    }
}
