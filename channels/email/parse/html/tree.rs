//! Tags and text as a tree of bounded depth and size.

use super::lexer::{Lexer, Token};

/// Elements deeper than this belong to the deepest that is allowed.
const MAX_DEPTH: usize = 100;
/// What follows after as many nodes is left out.
const MAX_NODES: usize = 200_000;

/// Elements without content.
const VOID: &[&str] = &[
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta",
    "param", "source", "track", "wbr",
];

/// An element or a text.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Empty for a text.
    pub name: String,
    pub attributes: Vec<(&'static str, String)>,
    pub text: String,
    pub children: Vec<usize>,
}

impl Node {
    /// An attribute's value; empty where there is none.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str())
    }

    pub fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|(known, _)| *known == name)
    }
}

/// A page; the first node holds all others.
#[derive(Clone, Debug)]
pub struct Tree {
    pub nodes: Vec<Node>,
    /// Not all of it is here.
    pub is_cut: bool,
}

impl Tree {
    pub fn parse(html: &str) -> Self {
        let mut builder = Builder { nodes: vec![Node::default()], open: vec![0], beyond: 0 };
        let mut is_cut = false;
        for token in Lexer::new(html) {
            if builder.nodes.len() >= MAX_NODES {
                is_cut = true;
                break;
            }
            match token {
                Token::Text(text) => builder.add(Node { text, ..Node::default() }),
                Token::Open { name, attributes } => builder.open(name, attributes),
                Token::Close { name } => builder.close(&name),
            }
        }
        Self { nodes: builder.nodes, is_cut }
    }

    /// The children of a node.
    pub fn children(&self, node: usize) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes[node].children.iter().map(|child| (*child, &self.nodes[*child]))
    }
}

struct Builder {
    nodes: Vec<Node>,
    /// From the outermost; the first is the page itself.
    open: Vec<usize>,
    /// How many elements are open beyond the allowed depth.
    beyond: usize,
}

impl Builder {
    fn add(&mut self, node: Node) {
        let number = self.nodes.len();
        if let Some(parent) = self.open.last() {
            self.nodes[*parent].children.push(number);
        }
        self.nodes.push(node);
    }

    fn open(&mut self, name: String, attributes: Vec<(&'static str, String)>) {
        let is_void = VOID.contains(&name.as_str());
        if self.beyond == 0 {
            self.end_what_cannot_hold(&name);
        }
        if !is_void && self.open.len() >= MAX_DEPTH {
            self.beyond += 1;
            return;
        }
        let number = self.nodes.len();
        self.add(Node { name, attributes, ..Node::default() });
        if !is_void {
            self.open.push(number);
        }
    }

    /// Ends elements whose end tag may be left out (WHATWG HTML, section 13.1.2.4).
    fn end_what_cannot_hold(&mut self, name: &str) {
        let (ended, within): (&[&str], &[&str]) = match name {
            "li" => (&["li"], &["ul", "ol", "table", "blockquote"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl", "table"]),
            "option" => (&["option"], &["select"]),
            "td" | "th" => (&["td", "th"], &["table", "tr"]),
            "tr" => (&["tr"], &["table"]),
            "tbody" | "thead" | "tfoot" => (&["tbody", "thead", "tfoot"], &["table"]),
            name if is_block(name) => (&["p"], &["td", "th", "table", "li", "div", "blockquote", "button"]),
            _ => return,
        };
        let found = self.open.iter().rposition(|node| {
            let open = self.nodes[*node].name.as_str();
            ended.contains(&open) || within.contains(&open)
        });
        if let Some(at) = found.filter(|at| ended.contains(&self.nodes[self.open[*at]].name.as_str())) {
            self.open.truncate(at.max(1));
        }
    }

    fn close(&mut self, name: &str) {
        if name == "p" && self.beyond == 0 && !self.open.iter().any(|node| self.nodes[*node].name == "p") {
            return;
        }
        if self.beyond > 0 {
            self.beyond -= usize::from(!VOID.contains(&name));
            return;
        }
        // What stands in a cell does not end what is around its table.
        let is_table = matches!(name, "table" | "tbody" | "thead" | "tfoot" | "tr" | "td" | "th");
        let found = self.open.iter().rposition(|node| {
            let open = self.nodes[*node].name.as_str();
            open == name || open == "table" && is_table || matches!(open, "td" | "th") && !is_table
        });
        if let Some(at) = found.filter(|at| self.nodes[self.open[*at]].name == name) {
            self.open.truncate(at.max(1));
        }
    }
}

/// Whether an element stands on lines of its own.
pub fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "body"
            | "center"
            | "dd"
            | "details"
            | "dir"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hr"
            | "html"
            | "li"
            | "main"
            | "menu"
            | "nav"
            | "ol"
            | "p"
            | "pre"
            | "section"
            | "summary"
            | "table"
            | "tbody"
            | "td"
            | "tfoot"
            | "th"
            | "thead"
            | "tr"
            | "ul"
            | "includetail"
    )
}
