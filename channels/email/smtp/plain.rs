//! Renders the plain form of a text: Markdown as a person would type it. Own code because html2text and similar crates
//! write neither `format=flowed` nor this form.

use pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};
use unicode_width::UnicodeWidthStr;

use super::flowed::FlowedText;
use super::markdown::is_link;

/// The greatest displayed indentation of lists and quotations.
const MAX_DEPTH: usize = 8;
/// The widest table that is padded. The lines of a wider table would be wrapped anyway.
const MAX_TABLE: usize = 100;
const RULE: &str = "----------------------------------------";

/// Renders the events as plain text in `format=flowed` lines.
pub fn render<'a>(events: impl Iterator<Item = Event<'a>>) -> FlowedText {
    let mut plain = PlainRenderer::default();
    for event in events {
        plain.take(event);
    }
    plain.end_line();
    plain.lines
}

/// Appends a quotation of plain text, below the line that names its author.
pub fn quote(lines: &mut FlowedText, head: &str, text: &str) {
    lines.push_unwrapped("", 0);
    lines.push_wrapped(head, 0);
    for line in text.lines() {
        lines.push_wrapped(line, 1);
    }
}

#[derive(Default)]
struct PlainRenderer {
    lines: FlowedText,
    /// The text of the open block.
    inline: String,
    /// True after the end of a block: an empty line precedes the next block.
    needs_gap: bool,
    quotes: usize,
    lists: Vec<OpenList>,
    /// The mark before the next line of the innermost item.
    marker: Option<String>,
    heading: Option<HeadingLevel>,
    links: Vec<(String, usize)>,
    table: Vec<Vec<String>>,
}

struct OpenList {
    /// The next number; `None` for bullets.
    number: Option<u64>,
    /// The indentation of the list marks.
    outer: usize,
    /// The indentation of the text after the last mark.
    inner: usize,
}

impl PlainRenderer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.inline.push_str(&text),
            Event::Code(code) => self.inline.push_str(&format!("`{code}`")),
            Event::HardBreak | Event::SoftBreak => self.inline.push('\n'),
            Event::Rule => self.block(&[RULE.to_owned()]),
            // All other events come from extensions that are off.
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.end_line();
                self.heading = Some(level);
            }
            Tag::BlockQuote(_) => {
                self.end_line();
                self.begin_block();
                self.quotes += 1;
            }
            Tag::List(number) => {
                self.end_line();
                let outer = self.lists.last().map_or(0, |list| list.inner).min(4 * MAX_DEPTH);
                self.lists.push(OpenList { number, outer, inner: outer });
            }
            Tag::Item => self.begin_item(),
            Tag::Paragraph | Tag::CodeBlock(_) | Tag::Table(_) => self.end_line(),
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::Strikethrough => self.inline.push_str("~~"),
            Tag::Link { dest_url, .. } => self.links.push((dest_url.into_string(), self.inline.len())),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => {
                self.end_line();
                self.needs_gap = true;
            }
            TagEnd::Heading(_) => self.end_heading(),
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.quotes = self.quotes.saturating_sub(1);
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => {
                let code = std::mem::take(&mut self.inline);
                let lines = code.trim_end_matches('\n').split('\n').map(|line| format!("    {line}"));
                self.block(&lines.collect::<Vec<_>>());
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
                self.needs_gap |= self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_line();
                self.marker = None;
            }
            TagEnd::Table => {
                let rows = std::mem::take(&mut self.table);
                self.block(&table(&rows));
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline).replace('\n', " ");
                if let Some(row) = self.table.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Strikethrough => self.inline.push_str("~~"),
            TagEnd::Link => self.end_link(),
            _ => {}
        }
    }

    fn begin_item(&mut self) {
        self.end_line();
        let Some(list) = self.lists.last_mut() else { return };
        let mark = match &mut list.number {
            Some(number) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            None => "- ".to_owned(),
        };
        list.inner = list.outer + mark.len();
        self.marker = Some(" ".repeat(list.outer) + &mark);
    }

    fn end_heading(&mut self) {
        let width = self.inline.lines().map(UnicodeWidthStr::width).max().unwrap_or(0).clamp(4, 72);
        let mark = match self.heading.take() {
            Some(HeadingLevel::H1) => Some("="),
            Some(HeadingLevel::H2) => Some("-"),
            _ => None,
        };
        self.end_line();
        if let Some(mark) = mark {
            self.lines.push_unwrapped(&mark.repeat(width), self.quotes.min(MAX_DEPTH));
        }
        self.needs_gap = true;
    }

    fn end_link(&mut self) {
        let Some((url, start)) = self.links.pop() else { return };
        let text = self.inline.get(start..).unwrap_or_default();
        let is_shown = text == url || url.strip_prefix("mailto:").is_some_and(|address| address == text);
        if !is_shown && is_link(&url) {
            self.inline.push_str(&format!(" <{url}>"));
        }
    }

    /// Appends the text of the open block, if any.
    fn end_line(&mut self) {
        let text = std::mem::take(&mut self.inline);
        if text.trim().is_empty() {
            return;
        }
        self.begin_block();
        let depth = self.quotes.min(MAX_DEPTH);
        for line in text.trim_end_matches('\n').split('\n') {
            let before = self.before_line();
            self.lines.push_wrapped(&(before + line.trim()), depth);
        }
    }

    /// Appends lines without wrapping.
    fn block(&mut self, lines: &[String]) {
        self.end_line();
        self.begin_block();
        let depth = self.quotes.min(MAX_DEPTH);
        for line in lines {
            let before = self.before_line();
            self.lines.push_unwrapped(&(before + line), depth);
        }
        self.needs_gap = true;
    }

    fn begin_block(&mut self) {
        if std::mem::take(&mut self.needs_gap) {
            self.lines.push_unwrapped("", self.quotes.min(MAX_DEPTH));
        }
    }

    fn before_line(&mut self) -> String {
        match self.marker.take() {
            Some(marker) => marker,
            None => " ".repeat(self.lists.last().map_or(0, |list| list.inner)),
        }
    }
}

/// Returns the lines of a table with aligned columns.
fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width_of =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns).map(width_of).collect();
    let is_wide = widths.iter().sum::<usize>() + 3 * columns > MAX_TABLE;
    if is_wide {
        widths.fill(0);
    }
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| cell.to_owned() + &" ".repeat(width.saturating_sub(cell.width())));
        cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    if lines.len() > 1 {
        let rule = widths.iter().map(|width| "-".repeat((*width).max(3))).collect::<Vec<_>>().join("-+-");
        lines.insert(1, rule);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::flowed::unflow;
    use super::super::markdown;
    use super::*;

    fn plain(markdown: &str) -> String {
        unflow(&render(markdown::events(markdown, "image").into_iter()).into_text()).trim_end().to_owned()
    }

    #[test]
    fn markdown_becomes_plain_text() {
        for (markdown, expected) in [
            ("# Title\n\ntext **bold** *it* ~~no~~ `code`", "Title\n=====\n\ntext bold it ~~no~~ `code`"),
            ("one\ntwo  \nthree\n\nfour", "one\ntwo\nthree\n\nfour"),
            ("- a\n- b\n  - c\n    d\n- e\n\nend", "- a\n- b\n  - c\n    d\n- e\n\nend"),
            ("9. a\n10. b\n\n    more", "9. a\n\n10. b\n\n    more"),
            ("- [ ] buy\n- [x] sold", "- ☐ buy\n- ☑ sold"),
            (
                "[x](https://example.org) <https://example.org> <a@example.org>",
                "x <https://example.org> https://example.org a@example.org",
            ),
            ("![cat](https://example.org/c.png) [y](javascript:x)", "cat <https://example.org/c.png> y"),
            ("> said\n> so\n>\n> > deep\n\nme", "> said\n> so\n>\n>> deep\n\nme"),
            ("```sh\nls  -l\n\n  cd\n```\nafter", "    ls  -l\n\n      cd\n\nafter"),
            ("| a | 名 |\n|---|--:|\n| long | 1 |\n| 中 | `2` |", "a    | 名\n-----+----\nlong | 1\n中   | `2`"),
            ("a\n\n***\n\nb", "a\n\n----------------------------------------\n\nb"),
            ("Dear <name>,\n<div>x</div>", "Dear <name>,\n\n<div>x</div>"),
            ("a<br/>b &amp; c \\* d", "a\nb & c * d"),
        ] {
            assert_eq!(plain(markdown), expected, "{markdown}");
        }
    }
}
