//! HTML as tags and text (WHATWG HTML, section 13.2.5, as far as text needs it).

use super::entities;

/// The attributes that say something of a text; no others are kept.
const WANTED: &[&str] = &[
    "alt", "class", "colspan", "height", "hidden", "href", "id", "role", "rowspan", "src", "start", "style", "type",
    "width",
];
/// A longer value is cut.
const MAX_VALUE: usize = 2_000;
/// Longer names nobody knows.
const MAX_NAME: usize = 30;
/// What stands in these is no HTML, up to their end.
const RAW: &[&str] = &["script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes"];

/// A piece of HTML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Open { name: String, attributes: Vec<(&'static str, String)> },
    Close { name: String },
    Text(String),
}

/// Gives the pieces of a page, one after the other.
pub struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub fn new(html: &'a str) -> Self {
        Self { rest: html }
    }

    /// Passes over a comment, a doctype or a processing instruction.
    fn skip_markup(&mut self) {
        let end = match self.rest.strip_prefix("<!--") {
            // `<!-->` and `<!--->` are whole comments.
            Some(inner) if inner.starts_with('>') => Some(5),
            Some(inner) if inner.starts_with("->") => Some(6),
            Some(inner) => inner.find("-->").map(|end| end + 7),
            None => self.rest.find('>').map(|end| end + 1),
        };
        self.rest = end.map_or("", |end| &self.rest[end..]);
    }

    fn close(&mut self) -> Option<Token> {
        let name = name_at(&self.rest[2..]);
        let end = self.rest.find('>').map_or(self.rest.len(), |end| end + 1);
        self.rest = &self.rest[end..];
        (name.len() <= MAX_NAME).then_some(Token::Close { name })
    }

    fn open(&mut self) -> Option<Token> {
        let name = name_at(&self.rest[1..]);
        let mut rest = &self.rest[1 + name.len()..];
        let mut attributes: Vec<(&'static str, String)> = Vec::new();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            match rest.chars().next() {
                None => break,
                Some('>') => {
                    rest = &rest[1..];
                    break;
                }
                Some(_) => {}
            }
            let (attribute, value, after) = attribute(rest);
            rest = after;
            let wanted = WANTED.iter().find(|wanted| attribute.eq_ignore_ascii_case(wanted));
            if let Some(wanted) = wanted
                && !attributes.iter().any(|(known, _)| known == wanted)
            {
                let value = &value[..value.floor_char_boundary(MAX_VALUE)];
                attributes.push((wanted, entities::decode(value)));
            }
        }
        self.rest = rest;
        if RAW.contains(&name.as_str()) {
            self.skip_raw(&name);
        }
        (name.len() <= MAX_NAME).then_some(Token::Open { name, attributes })
    }

    /// Passes over what stands in an element that holds no HTML, up to its end tag, which stays.
    fn skip_raw(&mut self, name: &str) {
        let mut at = 0;
        while let Some(found) = self.rest[at..].find("</") {
            let start = at + found;
            let after = self.rest.as_bytes().get(start + 2..start + 2 + name.len());
            if after.is_some_and(|after| after.eq_ignore_ascii_case(name.as_bytes())) {
                self.rest = &self.rest[start..];
                return;
            }
            at = start + 2;
        }
        self.rest = "";
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        while !self.rest.is_empty() {
            let mut after = self.rest.chars().skip(1);
            let (second, third) = (after.next().unwrap_or(' '), after.next().unwrap_or(' '));
            if !self.rest.starts_with('<') {
                let end = self.rest.find('<').unwrap_or(self.rest.len());
                let (text, rest) = self.rest.split_at(end);
                self.rest = rest;
                return Some(Token::Text(entities::decode(text)));
            }
            let token = match (second, third) {
                ('!' | '?', _) => {
                    self.skip_markup();
                    None
                }
                ('/', third) if third.is_ascii_alphabetic() => self.close(),
                (second, _) if second.is_ascii_alphabetic() => self.open(),
                _ => {
                    self.rest = &self.rest[1..];
                    Some(Token::Text("<".to_owned()))
                }
            };
            if token.is_some() {
                return token;
            }
        }
        None
    }
}

/// The name at the beginning of `text`, in lower case.
fn name_at(text: &str) -> String {
    let end = text.find(|c: char| c.is_ascii_whitespace() || c == '/' || c == '>').unwrap_or(text.len());
    text[..end].to_ascii_lowercase()
}

/// The attribute at the beginning of `text`, which is not empty: its name, its value, and what follows.
fn attribute(text: &str) -> (&str, &str, &str) {
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>' | '=');
    // A `=` at the beginning belongs to the name.
    let first = text.chars().next().map_or(0, char::len_utf8);
    let end = text[first..].find(is_end).map_or(text.len(), |end| first + end);
    let (name, rest) = text.split_at(end);
    let after = rest.trim_ascii_start();
    let Some(value) = after.strip_prefix('=') else { return (name, "", rest) };
    let value = value.trim_ascii_start();
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let inner = &value[1..];
            match inner.find(quote) {
                Some(end) => (name, &inner[..end], &inner[end + 1..]),
                None => (name, "", ""),
            }
        }
        _ => {
            let end = value.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(value.len());
            (name, &value[..end], &value[end..])
        }
    }
}
