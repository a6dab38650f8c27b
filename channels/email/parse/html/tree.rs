//! A tree of bounded depth and size for an HTML page, built from the tokens of html5gum.
//!
//! Own code because the standard's tree construction, as in html5ever, lets a small page become a huge one (it repeats open
//! formatting elements in each paragraph) and searches all open elements at each tag. This tree takes linear time.

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, State, Tokenizer};

/// The attributes that affect the text; all others are dropped.
const ATTRIBUTES: &[&str] = &[
    "alt", "class", "colspan", "height", "hidden", "href", "id", "role", "rowspan", "src", "start", "style", "type",
    "width",
];
/// Longest attribute value in bytes; the rest is cut.
const MAX_VALUE: usize = 2_000;
/// Longest element name in bytes; longer ones are ignored.
const MAX_NAME: usize = 30;
/// The deepest level of elements. Deeper ones become children of the deepest permitted element.
const MAX_DEPTH: usize = 100;
/// Longest style sheets of a page in bytes; the rest is ignored.
const MAX_STYLE: usize = 200_000;
/// Number of nodes after which the rest of the page is ignored.
const MAX_NODES: usize = 200_000;

/// Elements whose content is not HTML.
const RAW_TEXT: &[&str] = &["script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes"];

/// Elements without content.
const VOID: &[&str] = &[
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta",
    "param", "source", "track", "wbr",
];

/// An element or a text.
#[derive(Clone, Debug, Default)]
pub struct HtmlNode {
    /// The element's name in lower case; empty for a text.
    pub name: String,
    attributes: Vec<(&'static str, String)>,
    pub text: String,
    /// The page's style sheets hide the element.
    pub is_hidden_by_style: bool,
    children: Vec<usize>,
}

impl HtmlNode {
    /// Returns the value of an attribute, or an empty string.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str())
    }

    pub fn has_attribute(&self, name: &str) -> bool {
        self.attributes.iter().any(|(known, _)| *known == name)
    }
}

/// A page. The first node contains all others.
#[derive(Clone, Debug)]
pub struct HtmlTree {
    pub nodes: Vec<HtmlNode>,
    /// The content of all `style` elements.
    pub style_sheets: String,
    /// The page has more than [`MAX_NODES`] nodes.
    pub is_truncated: bool,
}

impl HtmlTree {
    pub fn parse(html: &str) -> Self {
        let mut builder = HtmlTreeBuilder { nodes: vec![HtmlNode::default()], open: vec![0], ..Default::default() };
        let emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| builder.handle(&event));
        let mut tokenizer = Tokenizer::new_with_emitter(html, emitter);
        let mut is_truncated = false;
        while let Some(Ok(control)) = tokenizer.next() {
            match control {
                TokenizerControl::ReadRawText => tokenizer.set_state(State::RawText),
                TokenizerControl::Stop => {
                    is_truncated = true;
                    break;
                }
            }
        }
        drop(tokenizer);
        Self { nodes: builder.nodes, style_sheets: builder.style_sheets, is_truncated }
    }

    /// Returns the children of a node with their numbers.
    pub fn children(&self, node: usize) -> impl Iterator<Item = (usize, &HtmlNode)> {
        self.nodes[node].children.iter().map(|child| (*child, &self.nodes[*child]))
    }
}

/// The required action of the tokenizer after a token.
enum TokenizerControl {
    /// Read the content up to the end tag as raw text.
    ReadRawText,
    Stop,
}

#[derive(Default)]
struct HtmlTreeBuilder {
    nodes: Vec<HtmlNode>,
    /// The open elements from the outermost to the innermost; the first is the page itself.
    open: Vec<usize>,
    /// The number of open elements beyond the permitted depth.
    beyond: usize,
    /// The start tag that is being read.
    tag: HtmlNode,
    /// True if the last attribute of `tag` is kept, so that it takes the next value.
    takes_value: bool,
    is_raw_text: bool,
    is_style: bool,
    style_sheets: String,
}

impl HtmlTreeBuilder {
    fn handle(&mut self, event: &CallbackEvent<'_>) -> Option<TokenizerControl> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match event {
            CallbackEvent::OpenStartTag { name } => self.tag = HtmlNode { name: text(name), ..HtmlNode::default() },
            CallbackEvent::AttributeName { name } => {
                let known = ATTRIBUTES.iter().find(|known| known.as_bytes() == *name);
                let known = known.filter(|known| !self.tag.has_attribute(known));
                self.takes_value = known.is_some();
                self.tag.attributes.extend(known.map(|known| (*known, String::new())));
            }
            CallbackEvent::AttributeValue { value } if self.takes_value => {
                if let Some((_, last)) = self.tag.attributes.last_mut() {
                    *last = text(value);
                    last.truncate(last.floor_char_boundary(MAX_VALUE));
                }
            }
            CallbackEvent::CloseStartTag { .. } => {
                let tag = std::mem::take(&mut self.tag);
                self.is_raw_text = RAW_TEXT.contains(&tag.name.as_str());
                self.is_style = tag.name == "style";
                if tag.name.len() <= MAX_NAME {
                    self.open(tag);
                }
                if self.is_raw_text {
                    return Some(TokenizerControl::ReadRawText);
                }
            }
            CallbackEvent::EndTag { name } => {
                self.is_raw_text = false;
                if name.len() <= MAX_NAME {
                    self.close(&text(name));
                }
            }
            CallbackEvent::String { value } if self.is_raw_text => {
                if self.is_style && self.style_sheets.len() + value.len() <= MAX_STYLE {
                    self.style_sheets.push_str(&text(value));
                }
            }
            CallbackEvent::String { value } => {
                self.add(HtmlNode { text: text(value), ..HtmlNode::default() });
            }
            _ => return None,
        }
        (self.nodes.len() >= MAX_NODES).then_some(TokenizerControl::Stop)
    }

    fn add(&mut self, node: HtmlNode) {
        let number = self.nodes.len();
        if let Some(parent) = self.open.last() {
            self.nodes[*parent].children.push(number);
        }
        self.nodes.push(node);
    }

    fn open(&mut self, element: HtmlNode) {
        let is_void = VOID.contains(&element.name.as_str());
        if self.beyond == 0 {
            self.close_implied(&element.name);
        }
        if !is_void && self.open.len() >= MAX_DEPTH {
            self.beyond += 1;
            return;
        }
        let number = self.nodes.len();
        self.add(element);
        if !is_void {
            self.open.push(number);
        }
    }

    /// Closes the elements that `name` ends because their end tags are optional (WHATWG HTML, section 13.1.2.4).
    fn close_implied(&mut self, name: &str) {
        let (closed, within): (&[&str], &[&str]) = match name {
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
            closed.contains(&open) || within.contains(&open)
        });
        if let Some(at) = found.filter(|at| closed.contains(&self.nodes[self.open[*at]].name.as_str())) {
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
        // An end tag inside a cell does not close elements outside the cell's table.
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

/// Returns true if the element starts a new line.
pub fn is_block(name: &str) -> bool {
    const BLOCKS: &str = "address article aside blockquote body center dd details dir div dl dt fieldset figcaption figure footer \
                          form h1 h2 h3 h4 h5 h6 header hr html includetail li main menu nav ol p pre section summary table \
                          tbody td tfoot th thead tr ul";
    BLOCKS.split(' ').any(|block| block == name)
}
