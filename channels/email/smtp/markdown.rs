//! Parses the Markdown of a mail, from which both forms of its text are rendered.

use std::ops::Range;

use pulldown_cmark::{CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

/// The permitted schemes of links in a mail.
pub const SCHEMES: [&str; 5] = ["http", "https", "mailto", "tel", "ftp"];

/// Parses Markdown for a mail. Line breaks are kept. HTML is shown as text, because `<name>` in a model's text is more
/// often a word than a tag. An image becomes a link, because a mail program would fetch the image and thereby send out
/// whatever its URL contains. `image` is the text of an image without a description.
pub fn events<'a>(markdown: &'a str, image: &'a str) -> Vec<Event<'a>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut rewriter = EventRewriter { image, ..EventRewriter::default() };
    for (event, range) in Parser::new_ext(markdown, options).into_offset_iter() {
        rewriter.rewrite(undo_arithmetic_emphasis(event, markdown, range));
    }
    rewriter.events
}

/// Reverts emphasis by stars between letters or digits, as in `2*3*4` and `x**2 + y**2`.
fn undo_arithmetic_emphasis<'a>(event: Event<'a>, markdown: &str, range: Range<usize>) -> Event<'a> {
    let marks = match &event {
        Event::Start(Tag::Emphasis) | Event::End(TagEnd::Emphasis) => "*",
        Event::Start(Tag::Strong) | Event::End(TagEnd::Strong) => "**",
        _ => return event,
    };
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let Some(inner) = markdown[range.clone()].strip_prefix(marks) else { return event };
    let before = markdown[..range.start].chars().next_back();
    if is_part(before) && is_part(inner.chars().next()) { Event::Text(marks.into()) } else { event }
}

/// Returns the first line of a text, without markup.
pub fn first_line(events: &[Event<'_>]) -> String {
    let mut line = String::new();
    for event in events {
        match event {
            Event::Text(text) | Event::Code(text) => line.push_str(text),
            Event::HardBreak | Event::End(_) if line.contains('\n') || !line.trim().is_empty() && ends_line(event) => {
                break;
            }
            Event::End(TagEnd::TableCell) => line.push(' '),
            _ => {}
        }
    }
    line.trim().lines().next().unwrap_or_default().to_owned()
}

/// Returns true if a mail may link to `url`. `javascript:`, `data:`, `file:` and relative links are unsafe or useless.
pub fn is_link(url: &str) -> bool {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)))
}

#[derive(Default)]
struct EventRewriter<'a> {
    events: Vec<Event<'a>>,
    /// The open images: the URL of the link that replaces each, and the position where its description begins.
    images: Vec<(Option<CowStr<'a>>, usize)>,
    /// The number of open links in the source.
    links: usize,
    image: &'a str,
}

impl<'a> EventRewriter<'a> {
    fn rewrite(&mut self, event: Event<'a>) {
        match event {
            Event::SoftBreak => self.events.push(Event::HardBreak),
            Event::InlineHtml(html) | Event::Html(html) => self.push_html_as_text(&html),
            Event::Start(Tag::HtmlBlock) => self.events.push(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) => {
                if self.events.last() == Some(&Event::HardBreak) {
                    self.events.pop();
                }
                self.events.push(Event::End(TagEnd::Paragraph));
            }
            Event::TaskListMarker(done) => self.events.push(Event::Text(if done { "☑ " } else { "☐ " }.into())),
            Event::Start(Tag::Link { dest_url, link_type, .. }) => {
                self.links += 1;
                let dest_url =
                    if link_type == LinkType::Email { format!("mailto:{dest_url}").into() } else { dest_url };
                self.events.push(Event::Start(link(dest_url)));
            }
            Event::End(TagEnd::Link) => {
                self.links = self.links.saturating_sub(1);
                self.events.push(Event::End(TagEnd::Link));
            }
            Event::Start(Tag::Image { dest_url, .. }) => self.begin_image(dest_url),
            Event::End(TagEnd::Image) => self.end_image(),
            other => self.events.push(other),
        }
    }

    fn push_html_as_text(&mut self, html: &str) {
        let is_break = |tag: &str| matches!(tag.to_ascii_lowercase().as_str(), "<br>" | "<br/>" | "<br />");
        if is_break(html.trim()) {
            self.events.push(Event::HardBreak);
            return;
        }
        for line in html.split_inclusive('\n') {
            self.events.push(Event::Text(line.trim_end_matches(['\r', '\n']).to_owned().into()));
            if line.ends_with('\n') {
                self.events.push(Event::HardBreak);
            }
        }
    }

    fn begin_image(&mut self, url: CowStr<'a>) {
        // Links cannot be nested; the outer link counts.
        let is_linked = self.links == 0 && self.images.is_empty() && is_link(&url);
        if is_linked {
            self.events.push(Event::Start(link(url.clone())));
        }
        self.images.push((is_linked.then_some(url), self.events.len()));
    }

    fn end_image(&mut self) {
        let Some((url, start)) = self.images.pop() else { return };
        if self.events.len() == start {
            self.events.push(Event::Text(self.image.into()));
        }
        if url.is_some() {
            self.events.push(Event::End(TagEnd::Link));
        }
    }
}

pub fn link(url: CowStr<'_>) -> Tag<'_> {
    Tag::Link { link_type: LinkType::Inline, dest_url: url, title: "".into(), id: "".into() }
}

fn ends_line(event: &Event<'_>) -> bool {
    use TagEnd::{BlockQuote, CodeBlock, Heading, Item, List, Paragraph, TableHead, TableRow};
    matches!(
        event,
        Event::HardBreak
            | Event::End(Paragraph | Heading(_) | Item | List(_) | BlockQuote(_) | CodeBlock | TableHead | TableRow)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_has_no_markup() {
        for (markdown, expected) in [
            ("# The **report** for `May`\n\nBody", "The report for May"),
            ("First\nsecond", "First"),
            ("\n\n- one\n- two", "one"),
            ("![](https://example.org/x.png)\n\ntext", "image"),
            ("| a | b |\n|---|---|\n| 1 | 2 |", "a b"),
            ("```\nlet x = 1;\nlet y = 2;\n```", "let x = 1;"),
            ("> 引用\n\n正文", "引用"),
            ("***", ""),
            ("", ""),
        ] {
            assert_eq!(first_line(&events(markdown, "image")), expected, "{markdown}");
        }
    }
}
