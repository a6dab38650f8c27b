//! A page as Markdown.

use super::style::{has_no_size, is_hidden, is_tracker};
use super::table;
use super::tree::{Node, Tree, is_block};
use super::writer::{LINK, Writer};
use crate::email::parse::clean::{clean_line, clean_text, mark};

/// Quotations and lists deeper than this stand no further to the right.
const MAX_INDENT: usize = 12;
/// A longer address of a link is left out.
const MAX_LINK: usize = 1_500;

/// The text of a page as Markdown, at most about `max` bytes of it, and whether that is all. Scripts, styles, what is hidden
/// and what is only there to be fetched is gone; quotations and signatures that programs name so stand between marks.
pub fn markdown(html: &str, max: usize) -> (String, bool) {
    let tree = Tree::parse(html);
    let mut page = Page { tree: &tree, out: Writer::new(max), is_quote: false, has_size: true };
    page.children(0);
    let is_whole = !page.out.is_full() && !tree.is_cut;
    (page.out.finish(), is_whole)
}

/// What is being written, and where.
pub struct Page<'a> {
    pub tree: &'a Tree,
    pub out: Writer,
    /// Inside of a quotation that has its mark.
    is_quote: bool,
    /// Text here is to be seen.
    has_size: bool,
}

impl<'a> Page<'a> {
    /// Writes a part of the same page on its own: a cell of a table.
    pub fn apart(tree: &'a Tree, node: usize, max: usize) -> String {
        let mut page = Page { tree, out: Writer::new(max), is_quote: true, has_size: true };
        page.children(node);
        page.out.finish()
    }

    fn children(&mut self, node: usize) {
        let tree = self.tree;
        for (child, node) in tree.children(node) {
            if self.out.is_full() {
                return;
            }
            if node.name.is_empty() {
                if self.has_size {
                    self.out.text(&clean_text(&node.text));
                }
            } else if !is_hidden(node) {
                let before = self.has_size;
                self.has_size = has_no_size(node).map_or(before, |none| !none);
                self.element(child, node);
                self.has_size = before;
            }
        }
    }

    fn element(&mut self, number: usize, node: &Node) {
        match Role::of(node) {
            Role::Quote if !self.is_quote => {
                self.is_quote = true;
                self.between(number, node, mark::QUOTE, mark::QUOTE_END);
                self.is_quote = false;
            }
            Role::Signature if !self.is_quote => {
                self.between(number, node, mark::SIGNATURE, mark::SIGNATURE_END);
            }
            Role::History if !self.is_quote => {
                self.out.raw_line(&mark::HISTORY.to_string());
                self.plain(number, node);
            }
            _ => self.plain(number, node),
        }
    }

    fn between(&mut self, number: usize, node: &Node, begin: char, end: char) {
        self.out.raw_line(&begin.to_string());
        self.plain(number, node);
        self.out.raw_line(&end.to_string());
    }

    fn plain(&mut self, number: usize, node: &Node) {
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
            "table" => table::write(self, number),
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

    /// What stands on lines of its own.
    pub fn block(&mut self, number: usize, breaks: usize) {
        self.out.line(breaks);
        self.children(number);
        self.out.line(breaks);
    }

    fn emphasis(&mut self, number: usize, sign: &'static str) {
        let is_new = self.out.open(sign);
        self.children(number);
        if is_new {
            self.out.close();
        }
    }

    /// A power is written so that it is not read as a digit of the number before it; `1st` and footnotes stay.
    fn superscript(&mut self, number: usize) {
        let text = clean_line(&self.raw_text(number));
        let is_power = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '−'))
            || text.chars().count() == 1 && text.starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_power {
            return self.children(number);
        }
        let is_one = text.chars().all(|c| c.is_ascii_alphanumeric());
        self.out.text(&if is_one { format!("^{text}") } else { format!("^({text})") });
    }

    fn heading(&mut self, number: usize, node: &Node) {
        let level = node.name.bytes().last().map_or(1, |digit| usize::from(digit.saturating_sub(b'0')));
        let text = Self::apart(self.tree, number, 1_000).replace('*', "");
        let text = clean_line(&text);
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

    fn list(&mut self, number: usize, node: &Node) {
        let tree = self.tree;
        let breaks = if self.out.depth() == 0 { 2 } else { 1 };
        let mut count: u32 = node.attribute("start").trim().parse().unwrap_or(1);
        self.out.line(breaks);
        for (child, item) in tree.children(number).filter(|(_, item)| !is_hidden(item)) {
            match (item.name.as_str(), node.name.as_str()) {
                ("li", "ol") => {
                    let first = format!("{count}. ");
                    let rest = " ".repeat(first.len());
                    self.indented(child, Some(first), &rest);
                    count = count.saturating_add(1);
                }
                ("", _) => self.out.text(&clean_text(&item.text)),
                _ => self.element(child, item),
            }
        }
        self.out.line(breaks);
    }

    /// What a program is: on one line as it is.
    fn code(&mut self, number: usize) {
        let text = clean_line(&self.raw_text(number));
        if !text.is_empty() {
            let sign = if text.contains('`') { "``" } else { "`" };
            self.out.word(&format!("{sign}{text}{sign}"));
        }
    }

    fn preformatted(&mut self, number: usize) {
        let text = clean_text(&self.raw_text(number));
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

    /// All text below a node, its white space kept. Without recursion of its own beyond the tree's bounded depth.
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

    fn link(&mut self, number: usize, node: &Node) {
        let is_new = self.out.open(LINK);
        self.children(number);
        if is_new {
            self.out.close_link(address(node.attribute("href")).as_deref());
        }
    }

    /// Nothing is fetched, so what is left of an image is what it says.
    fn image(&mut self, node: &Node) {
        if is_tracker(node) {
            return;
        }
        let alt = clean_line(node.attribute("alt"));
        let alt = &alt[..alt.floor_char_boundary(300)];
        self.out.word(&if alt.is_empty() { "[image]".to_owned() } else { format!("[image: {alt}]") });
    }
}

/// What programs that write mails name a part of theirs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    None,
    Quote,
    /// Begins the history, which goes on behind it.
    History,
    Signature,
}

impl Role {
    fn of(node: &Node) -> Self {
        const QUOTES: &[&str] = &[
            "gmail_quote",
            "gmail_quote_container",
            "yahoo_quoted",
            "protonmail_quote",
            "qmbox",
            "ntes-mailmaster-quote",
            "tutanota_quote",
        ];
        const SIGNATURES: &[&str] = &[
            "gmail_signature",
            "moz-signature",
            "protonmail_signature_block",
            "apple-mail-signature",
            "xm_compose_sign",
            "xmail_signature",
            "foxmail_signature",
            "ntes-mailmaster-signature",
        ];
        let (id, class) = (node.attribute("id"), node.attribute("class"));
        let has_class = |names: &[&str]| class.split_whitespace().any(|name| names.contains(&name));
        // Outlook puts `x_` before the names of what it quotes.
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

/// A link's address, if it leads anywhere and runs nothing.
fn address(href: &str) -> Option<String> {
    let href: String = href.trim().chars().filter(|c| !c.is_control()).collect();
    let (scheme, _) = href.split_once(':')?;
    let is_known = ["http", "https", "mailto", "tel", "ftp"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let mut out = String::with_capacity(href.len());
    for c in href.chars() {
        match c {
            ' ' => out.push_str("%20"),
            '(' => out.push_str("%28"),
            ')' => out.push_str("%29"),
            '<' => out.push_str("%3C"),
            '>' => out.push_str("%3E"),
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    (is_known && out.len() <= MAX_LINK).then_some(out)
}
