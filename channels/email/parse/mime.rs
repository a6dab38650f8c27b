//! A mail as a tree of parts (RFC 2045 and 2046), in one pass over its lines and without copying any.
//!
//! mail-parser's own tree is not used: it decodes every file at once, takes `--boundary` for a delimiter also inside a line
//! and when more follows, reads on from each part whose boundary never comes, and mails inside of mails nest without a
//! bound, which ends the stack when they are dropped. A mail is whatever somebody sends.

use super::fields::Fields;
use super::limits::ReadLimits;
use super::params::Structured;
use super::transfer::Transfer;

/// RFC 2046, section 5.1.1 allows 70 characters.
const MAX_BOUNDARY: usize = 200;

/// A part of a mail, or the mail itself.
#[derive(Clone, Debug, Default)]
pub struct Part<'a> {
    pub fields: Fields,
    pub content: Structured,
    pub disposition: Structured,
    /// As it came.
    pub body: &'a [u8],
    /// Of a multipart: places in [`Tree::parts`].
    pub children: Vec<usize>,
}

impl Part<'_> {
    pub fn transfer(&self) -> Transfer {
        self.fields.first("content-transfer-encoding").map_or(Transfer::Identity, Transfer::of)
    }

    /// The name of the file that the part is.
    pub fn file_name(&self) -> Option<&str> {
        let name = self.disposition.param("filename").or_else(|| self.content.param("name"));
        name.filter(|name| !name.trim().is_empty())
    }
}

/// A mail's parts; the first is the mail itself.
#[derive(Clone, Debug, Default)]
pub struct Tree<'a> {
    pub parts: Vec<Part<'a>>,
    /// There are more parts than are allowed.
    pub is_cut: bool,
    /// Some stand deeper than is allowed.
    pub is_deep: bool,
}

impl<'a> Tree<'a> {
    /// Takes a mail apart; at most `max_parts` parts.
    pub fn parse(raw: &'a [u8], max_parts: usize, limits: &ReadLimits) -> Self {
        let mut walk = Walk { raw, limits, max_parts, tree: Self::default(), open: Vec::new(), leaf: None };
        let mut at = walk.begin(0);
        while at < raw.len() && !walk.open.is_empty() {
            let end = raw[at..].iter().position(|byte| *byte == b'\n').map_or(raw.len(), |end| at + end + 1);
            at = match walk.delimiter(&raw[at..end]) {
                Some((level, is_last)) => {
                    walk.end(level, is_last, at);
                    if is_last { end } else { walk.begin(end) }
                }
                None => end,
            };
        }
        walk.close(0, raw.len());
        walk.tree
    }
}

/// A multipart whose end has not come yet.
struct Open {
    part: usize,
    boundary: Vec<u8>,
    body: usize,
}

struct Walk<'a, 'l> {
    raw: &'a [u8],
    limits: &'l ReadLimits,
    max_parts: usize,
    tree: Tree<'a>,
    open: Vec<Open>,
    /// The part whose lines are being passed, and where they begin.
    leaf: Option<(usize, usize)>,
}

impl Walk<'_, '_> {
    /// Reads the fields of a part that begins at `at`; tells where its body begins.
    fn begin(&mut self, at: usize) -> usize {
        if self.tree.parts.len() >= self.max_parts {
            self.tree.is_cut = true;
            self.close(0, at);
            return self.raw.len();
        }
        let is_end = |line: &[u8]| delimiter(&self.open, line).is_some();
        let (fields, body) = Fields::read(self.raw, at, self.limits, is_end);
        let structured = |name: &str| fields.first(name).map(Structured::parse);
        let parent = self.open.last().map(|open| open.part);
        let is_digest = parent.is_some_and(|parent| self.tree.parts[parent].content.is("multipart/digest"));
        // RFC 2045, section 5.2; RFC 2046, section 5.1.5.
        let usual = if is_digest { "message/rfc822" } else { "text/plain" };
        let content = structured("content-type").filter(|content| content.value.contains('/'));
        let content = content.unwrap_or_else(|| Structured::parse(usual));
        let disposition = structured("content-disposition").unwrap_or_default();
        let boundary = content.param("boundary").map(|boundary| boundary.trim_end().as_bytes().to_vec());
        let boundary = boundary.filter(|boundary| (1..=MAX_BOUNDARY).contains(&boundary.len()));
        let boundary = boundary.filter(|_| content.is("multipart/"));
        let number = self.tree.parts.len();
        if let Some(parent) = parent {
            self.tree.parts[parent].children.push(number);
        }
        self.tree.parts.push(Part { fields, content, disposition, ..Part::default() });
        match boundary {
            Some(boundary) if self.open.len() < self.limits.depth => {
                self.open.push(Open { part: number, boundary, body });
                self.leaf = None;
            }
            boundary => {
                self.tree.is_deep |= boundary.is_some();
                self.leaf = Some((number, body));
            }
        }
        body
    }

    fn delimiter(&self, line: &[u8]) -> Option<(usize, bool)> {
        delimiter(&self.open, line)
    }

    /// The delimiter at `at` belongs to the open multipart `level`: what stands in it ends.
    fn end(&mut self, level: usize, is_last: bool, at: usize) {
        // RFC 2046, section 5.1.1: the line break before a delimiter belongs to it.
        let before = &self.raw[..at];
        let before = before.strip_suffix(b"\n").unwrap_or(before);
        let end = before.strip_suffix(b"\r").unwrap_or(before).len();
        self.close(if is_last { level } else { level + 1 }, end);
    }

    /// Ends the open leaf and all multiparts from `level` on.
    fn close(&mut self, level: usize, end: usize) {
        if let Some((part, body)) = self.leaf.take() {
            self.tree.parts[part].body = &self.raw[body.min(end.max(body))..end.max(body)];
        }
        for open in self.open.drain(level.min(self.open.len())..) {
            self.tree.parts[open.part].body = &self.raw[open.body..end.max(open.body)];
        }
    }
}

/// The innermost open multipart that a line delimits, and whether it ends there.
fn delimiter(open: &[Open], line: &[u8]) -> Option<(usize, bool)> {
    let line = line.strip_prefix(b"--")?.trim_ascii_end();
    open.iter().enumerate().rev().find_map(|(level, open)| {
        let rest = line.strip_prefix(open.boundary.as_slice())?;
        match rest {
            b"" => Some((level, false)),
            b"--" => Some((level, true)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part as its type, its children and its body.
    fn shape(raw: &str) -> Vec<(String, Vec<usize>, String)> {
        let tree = Tree::parse(raw.as_bytes(), 10, &ReadLimits { depth: 3, ..ReadLimits::default() });
        let body = |part: &Part<'_>| {
            if part.children.is_empty() { String::from_utf8_lossy(part.body).into() } else { String::new() }
        };
        tree.parts.iter().map(|part| (part.content.value.clone(), part.children.clone(), body(part))).collect()
    }

    #[test]
    fn parts() {
        type Row<'a> = (&'a str, &'a [usize], &'a str);
        let table: &[(&str, &[Row<'_>])] = &[
            ("Subject: x\n\nbody\n--b\n", &[("text/plain", &[], "body\n--b\n")]),
            (
                "Content-Type: multipart/mixed; boundary=b\r\n\r\npreamble\r\n--b\r\n\r\none\r\n--bb\r\n--b--b\r\n--b \r\n\
                 Content-Type: text/html\r\n\r\ntwo\r\n--b--\r\nepilogue\r\n--b\r\n\r\nthree",
                &[
                    ("multipart/mixed", &[1, 2], ""),
                    ("text/plain", &[], "one\r\n--bb\r\n--b--b"),
                    ("text/html", &[], "two"),
                ],
            ),
            (
                "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/alternative; boundary=b-1\n\n\
                 --b-1\n\none\n--b-1\n\ntwo\n--b\n\nthree",
                &[
                    ("multipart/mixed", &[1, 4], ""),
                    ("multipart/alternative", &[2, 3], ""),
                    ("text/plain", &[], "one"),
                    ("text/plain", &[], "two"),
                    ("text/plain", &[], "three"),
                ],
            ),
            (
                "Content-Type: multipart/digest; boundary=b\n\n--b\n\nSubject: in\n\nx\n--b\nX: 1\n--b--\n",
                &[
                    ("multipart/digest", &[1, 2], ""),
                    ("message/rfc822", &[], "Subject: in\n\nx"),
                    ("message/rfc822", &[], ""),
                ],
            ),
            ("Content-Type: multipart/mixed; boundary=never\n\ntext", &[("multipart/mixed", &[], "text")]),
            ("Content-Type: multipart/mixed\n\ntext", &[("multipart/mixed", &[], "text")]),
            ("Content-Type: nonsense\n\ntext", &[("text/plain", &[], "text")]),
            ("", &[("text/plain", &[], "")]),
        ];
        for (raw, expected) in table {
            let expected: Vec<_> = expected
                .iter()
                .map(|(kind, children, body)| ((*kind).to_owned(), children.to_vec(), (*body).to_owned()))
                .collect();
            assert_eq!(shape(raw), expected, "{raw}");
        }
    }

    #[test]
    fn many_and_deep_parts_stay_cheap() {
        let limits = ReadLimits::default();
        let nested: String =
            (0..1_000).map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n")).collect::<String>()
                + "\ntext";
        let tree = Tree::parse(nested.as_bytes(), limits.parts, &limits);
        assert!(tree.is_deep && tree.parts.len() == limits.depth + 1);

        let flat = "Content-Type: multipart/mixed; boundary=b\n\n".to_owned()
            + &"--b\nContent-Type: multipart/mixed; boundary=never\n\nx\n".repeat(50_000);
        let tree = Tree::parse(flat.as_bytes(), limits.parts, &limits);
        assert!(tree.is_cut && tree.parts.len() == limits.parts);
    }
}
