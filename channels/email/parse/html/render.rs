//! Renders an HTML page as Markdown.

use super::table::DataTable;
use super::tree::{HtmlNode, HtmlTree, is_block};
use super::visibility::{apply_style_sheets, has_zero_size, is_hidden, is_tracker};
use super::writer::{LINK, MarkdownWriter};
use crate::sanitize::{marker, sanitize_line, sanitize_text};

/// Deepest indentation of quotations and lists.
const MAX_INDENT: usize = 12;
/// Longest URL of a link in bytes; longer ones are left out.
const MAX_LINK: usize = 1_500;

/// Converts a page to Markdown of about `max` bytes at most. The second value is true if nothing was cut. Scripts, styles,
/// hidden elements and tracking images are removed. Quotations and signatures that mail programs label are put between
/// markers.
pub fn markdown(html: &str, max: usize) -> (String, bool) {
    let mut tree = HtmlTree::parse(html);
    apply_style_sheets(&mut tree);
    let mut page = HtmlToMarkdown { tree: &tree, out: MarkdownWriter::new(max), is_quote: false, has_size: true };
    page.children(0);
    let is_whole = !page.out.is_full() && !tree.is_truncated;
    (page.out.finish(), is_whole)
}

/// The state of rendering.
struct HtmlToMarkdown<'a> {
    tree: &'a HtmlTree,
    out: MarkdownWriter,
    /// True inside a marked quotation.
    is_quote: bool,
    /// True if the current font size is not zero.
    has_size: bool,
}

impl<'a> HtmlToMarkdown<'a> {
    /// Renders a single node of the page, such as a table cell.
    fn render_node(tree: &'a HtmlTree, node: usize, max: usize) -> String {
        let mut page = HtmlToMarkdown { tree, out: MarkdownWriter::new(max), is_quote: true, has_size: true };
        page.children(node);
        page.out.finish()
    }

    fn children(&mut self, node: usize) {
        let tree = self.tree;
        for (child, node) in tree.children(node) {
            self.child(node, |page| page.element(child, node));
        }
    }

    /// Writes a text, or an element by `write`, unless it is invisible.
    fn child(&mut self, node: &HtmlNode, write: impl FnOnce(&mut Self)) {
        if self.out.is_full() {
            return;
        }
        if node.name.is_empty() {
            if self.has_size {
                self.out.text(&sanitize_text(&node.text));
            }
        } else if !is_hidden(node) {
            let before = self.has_size;
            self.has_size = has_zero_size(node).map_or(before, |is_zero| !is_zero);
            write(self);
            self.has_size = before;
        }
    }

    fn element(&mut self, number: usize, node: &HtmlNode) {
        match ElementRole::classify(node) {
            ElementRole::Quote if !self.is_quote => {
                self.is_quote = true;
                self.with_markers(number, node, marker::QUOTE, marker::QUOTE_END);
                self.is_quote = false;
            }
            ElementRole::Signature if !self.is_quote => {
                self.with_markers(number, node, marker::SIGNATURE, marker::SIGNATURE_END);
            }
            ElementRole::History if !self.is_quote => {
                self.out.raw_line(&marker::HISTORY.to_string());
                self.plain(number, node);
            }
            _ => self.plain(number, node),
        }
    }

    fn with_markers(&mut self, number: usize, node: &HtmlNode, begin: char, end: char) {
        self.out.raw_line(&begin.to_string());
        self.plain(number, node);
        self.out.raw_line(&end.to_string());
    }

    fn plain(&mut self, number: usize, node: &HtmlNode) {
        match node.name.as_str() {
            "br" => self.out.hard_line(),
            "hr" => {
                self.out.line(2);
                self.out.word("---");
                self.out.line(2);
            }
            "b" | "strong" => self.emphasis(number, "**"),
            "i" | "em" => self.emphasis(number, "*"),
            "s" | "del" | "strike" => self.emphasis(number, "~~"),
            "sup" => self.superscript(number),
            "code" | "tt" | "kbd" | "samp" => self.code(number),
            "pre" => self.preformatted(number),
            "a" => self.link(number, node),
            "img" => self.image(node),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(number, node),
            "blockquote" => self.indented(number, None, "> "),
            "ul" | "ol" | "menu" | "dir" => self.list(number, node),
            "li" => self.indented(number, Some("- ".to_owned()), "  "),
            "table" => self.table(number),
            "td" | "th" => {
                self.out.line(1);
                self.children(number);
                self.out.line(1);
            }
            "p" => self.block(number, 2),
            name if is_block(name) => self.block(number, 1),
            _ => self.children(number),
        }
    }

    fn block(&mut self, number: usize, breaks: usize) {
        self.out.line(breaks);
        self.children(number);
        self.out.line(breaks);
    }

    /// Keeps data tables as tables; turns layout tables into blocks.
    fn table(&mut self, number: usize) {
        match DataTable::parse(self.tree, number, |cell, max| Self::render_node(self.tree, cell, max)) {
            Some(table) => table.write(&mut self.out),
            None => self.block(number, 1),
        }
    }

    fn emphasis(&mut self, number: usize, sign: &'static str) {
        let is_new = self.out.open(sign);
        self.children(number);
        if is_new {
            self.out.close();
        }
    }

    /// Writes an exponent so that it does not look like a digit of its base; `1st` and footnotes stay.
    fn superscript(&mut self, number: usize) {
        let text = sanitize_line(&self.raw_text(number));
        let is_power = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '−'))
            || text.chars().count() == 1 && text.starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_power {
            return self.children(number);
        }
        let is_one = text.chars().all(|c| c.is_ascii_alphanumeric());
        self.out.text(&if is_one { format!("^{text}") } else { format!("^({text})") });
    }

    fn heading(&mut self, number: usize, node: &HtmlNode) {
        let level = node.name.bytes().last().map_or(1, |digit| usize::from(digit.saturating_sub(b'0')));
        let text = Self::render_node(self.tree, number, 1_000).replace('*', "");
        let text = sanitize_line(&text);
        if !text.is_empty() && self.has_size {
            self.out.line(2);
            self.out.word(&format!("{} {text}", "#".repeat(level)));
            self.out.line(2);
        }
    }

    fn indented(&mut self, number: usize, first: Option<String>, rest: &str) {
        let breaks = if first.is_some() { 1 } else { 2 };
        self.out.line(breaks);
        let is_deep = self.out.depth() >= MAX_INDENT;
        if !is_deep {
            self.out.indent(first, rest);
        }
        self.children(number);
        self.out.line(breaks);
        if !is_deep {
            self.out.outdent();
        }
    }

    fn list(&mut self, number: usize, node: &HtmlNode) {
        let tree = self.tree;
        let breaks = if self.out.depth() == 0 { 2 } else { 1 };
        let mut count: u32 = node.attribute("start").trim().parse().unwrap_or(1);
        self.out.line(breaks);
        for (child, item) in tree.children(number) {
            self.child(item, |page| match (item.name.as_str(), node.name.as_str()) {
                ("li", "ol") => {
                    let first = format!("{count}. ");
                    let rest = " ".repeat(first.len());
                    page.indented(child, Some(first), &rest);
                    count = count.saturating_add(1);
                }
                _ => page.element(child, item),
            });
        }
        self.out.line(breaks);
    }

    /// Writes inline code on one line.
    fn code(&mut self, number: usize) {
        let text = sanitize_line(&self.raw_text(number));
        if !text.is_empty() {
            let sign = if text.contains('`') { "``" } else { "`" };
            self.out.word(&format!("{sign}{text}{sign}"));
        }
    }

    fn preformatted(&mut self, number: usize) {
        let text = sanitize_text(&self.raw_text(number));
        let text = text.trim_matches('\n').trim_end();
        if text.is_empty() {
            return;
        }
        let fence = if text.contains("```") { "~~~~" } else { "```" };
        self.out.line(2);
        self.out.raw_line(fence);
        for line in text.lines() {
            if self.out.is_full() {
                break;
            }
            self.out.raw_line(line);
        }
        self.out.raw_line(fence);
        self.out.line(2);
    }

    /// Returns all text below a node, including its white space. The bounded depth of the tree bounds the recursion.
    fn raw_text(&self, number: usize) -> String {
        let tree = self.tree;
        let mut text = String::new();
        for (child, node) in tree.children(number) {
            match node.name.as_str() {
                "" => text.push_str(&node.text),
                "br" => text.push('\n'),
                _ if is_hidden(node) => {}
                name => {
                    if is_block(name) && !text.is_empty() && !text.ends_with('\n') {
                        text.push('\n');
                    }
                    text.push_str(&self.raw_text(child));
                }
            }
        }
        text
    }

    fn link(&mut self, number: usize, node: &HtmlNode) {
        let is_new = self.out.open(LINK);
        self.children(number);
        if is_new {
            self.out.close_link(link_url(node.attribute("href")).as_deref());
        }
    }

    /// Writes the alternative text of an image, which is never fetched.
    fn image(&mut self, node: &HtmlNode) {
        if is_tracker(node) {
            return;
        }
        let alt = sanitize_line(node.attribute("alt"));
        let alt = &alt[..alt.floor_char_boundary(300)];
        self.out.word(&if alt.is_empty() { "[image]".to_owned() } else { format!("[image: {alt}]") });
    }
}

/// The role that a mail program gives an element by its id or class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ElementRole {
    None,
    Quote,
    /// The element begins the history, which extends to the end of the page.
    History,
    Signature,
}

impl ElementRole {
    fn classify(node: &HtmlNode) -> Self {
        const QUOTES: &[&str] = &[
            "gmail_quote", "gmail_quote_container", "yahoo_quoted", "protonmail_quote", "qmbox",
            "ntes-mailmaster-quote", "tutanota_quote",
        ];
        const SIGNATURES: &[&str] = &[
            "gmail_signature", "moz-signature", "protonmail_signature_block", "apple-mail-signature",
            "xm_compose_sign", "xmail_signature", "foxmail_signature", "ntes-mailmaster-signature",
        ];
        let (id, class) = (node.attribute("id"), node.attribute("class"));
        let has_class = |names: &[&str]| class.split_whitespace().any(|name| names.contains(&name));
        // Outlook prefixes the ids of quoted elements with `x_`.
        let id = id.trim_start_matches("x_");
        match id {
            "divRplyFwdMsg" | "appendonsend" => return Self::History,
            "isReplyContent"
            | "isForwardContent"
            | "mail-editor-reference-message-container"
            | "ntes-mailmaster-quote" => {
                return Self::Quote;
            }
            "Signature"
            | "signature"
            | "ms-outlook-mobile-signature"
            | "ntes-pcmac-signature"
            | "ntes-pcmail-signature"
            | "xmailsign"
            | "foxmail-signature" => {
                return Self::Signature;
            }
            _ => {}
        }
        if has_class(QUOTES) || id.starts_with("yahoo_quoted") || node.name == "includetail" {
            Self::Quote
        } else if has_class(SIGNATURES) || matches!(node.name.as_str(), "sign" | "signature") {
            Self::Signature
        } else {
            Self::None
        }
    }
}

/// Returns the URL of a link if its scheme is harmless.
fn link_url(href: &str) -> Option<String> {
    let href: String = href.trim().chars().filter(|c| !c.is_control()).collect();
    let (scheme, _) = href.split_once(':')?;
    let is_known = ["http", "https", "mailto", "tel", "ftp"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let mut out = String::with_capacity(href.len());
    for c in href.chars() {
        match c {
            ' ' | '(' | ')' | '<' | '>' => out.push_str(&format!("%{:02X}", u32::from(c))),
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    (is_known && out.len() <= MAX_LINK).then_some(out)
}
