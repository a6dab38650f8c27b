//! The MIME parts of a mail as a tree (RFC 2045 and 2046), built in one pass without copying.
//!
//! Own code because mail-parser is unsuitable for hostile mail: it decodes all attachments at once, accepts `--boundary`
//! inside a line and before other text, rescans for each boundary that never occurs, and nests mails without a limit, which
//! overflows the stack when they are dropped.

use super::header_fields::HeaderFields;
use super::limits::ParseLimits;
use super::parameters::ParameterizedValue;
use super::transfer_encoding::TransferEncoding;

/// Longest boundary; RFC 2046, section 5.1.1 allows 70 characters.
const MAX_BOUNDARY: usize = 200;

/// A part of a mail, or the mail itself.
#[derive(Clone, Debug, Default)]
pub struct MimePart<'a> {
    pub fields: HeaderFields,
    pub content: ParameterizedValue,
    pub disposition: ParameterizedValue,
    /// The body before decoding.
    pub body: &'a [u8],
    /// The children of a multipart, as indices into [`MimeTree::parts`].
    pub children: Vec<usize>,
}

impl MimePart<'_> {
    pub fn transfer_encoding(&self) -> TransferEncoding {
        self.fields.first("content-transfer-encoding").map_or(TransferEncoding::Identity, TransferEncoding::parse)
    }

    /// Returns the file name of the part.
    pub fn file_name(&self) -> Option<&str> {
        let name = self.disposition.param("filename").or_else(|| self.content.param("name"));
        name.filter(|name| !name.trim().is_empty())
    }
}

/// The parts of a mail; the first is the mail itself.
#[derive(Clone, Debug, Default)]
pub struct MimeTree<'a> {
    pub parts: Vec<MimePart<'a>>,
    /// True if the mail has more parts than permitted.
    pub has_too_many_parts: bool,
    /// True if some parts are nested deeper than permitted.
    pub is_too_deep: bool,
}

impl<'a> MimeTree<'a> {
    /// Parses at most `max_parts` parts.
    pub fn parse(raw: &'a [u8], max_parts: usize, limits: &ParseLimits) -> Self {
        let mut parser = MimeParser { raw, limits, max_parts, tree: Self::default(), open: Vec::new(), leaf: None };
        let mut at = parser.begin_part(0);
        while at < raw.len() && !parser.open.is_empty() {
            let end = raw[at..].iter().position(|byte| *byte == b'\n').map_or(raw.len(), |end| at + end + 1);
            at = match find_delimiter(&parser.open, &raw[at..end]) {
                Some((level, is_last)) => {
                    parser.end_part(level, is_last, at);
                    if is_last { end } else { parser.begin_part(end) }
                }
                None => end,
            };
        }
        parser.close(0, raw.len());
        parser.tree
    }

    /// Returns true if the body fits the mail's Content-Type and Content-Transfer-Encoding, and no others with which a
    /// quotation or an attachment would not be read as text. Reads at most `max` bytes of a text.
    ///
    /// Somebody who sends a signed mail on can change these two fields, unless the signature covers them.
    pub fn fits_its_type(&self, max: usize) -> bool {
        let Some(whole) = self.parts.first() else { return true };
        let mut lines = whole.body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        if let Some(kind) = whole.content.value.strip_prefix("multipart/") {
            let first = lines.find_map(|line| line.strip_prefix(b"--").filter(|rest| !rest.is_empty()));
            let boundary = whole.content.param("boundary").map(|boundary| boundary.trim_end().as_bytes());
            return matches!(kind, "mixed" | "alternative" | "related" | "signed")
                && first.is_some()
                && first == boundary;
        }
        let is_field = |line: &[u8]| line.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
        let encoding = whole.transfer_encoding();
        let mut is_delimited = false;
        for line in lines {
            let is_odd = match encoding {
                TransferEncoding::Base64 => {
                    !line.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte))
                }
                // RFC 2045, section 6.7: a line break of a text is not encoded.
                TransferEncoding::QuotedPrintable => {
                    let breaks =
                        |code: &[u8]| [b"=0A", b"=0D"].iter().any(|line_break| code.eq_ignore_ascii_case(*line_break));
                    line.windows(3).any(breaks)
                }
                // A line of quoted-printable that continues.
                TransferEncoding::Identity => line.ends_with(b"="),
            };
            if is_odd || (is_delimited && is_field(line)) {
                return false;
            }
            is_delimited = line.starts_with(b"--");
        }
        let text = encoding.decode(whole.body, max);
        match whole.content.value.as_str() {
            "text/html" => text.trim_ascii_start().starts_with(b"<"),
            "text/plain" => !text.windows(2).any(|tag| tag == b"</"),
            _ => false,
        }
    }
}

/// A multipart that is being parsed.
struct OpenMultipart {
    part: usize,
    boundary: Vec<u8>,
    body: usize,
}

struct MimeParser<'a, 'l> {
    raw: &'a [u8],
    limits: &'l ParseLimits,
    max_parts: usize,
    tree: MimeTree<'a>,
    open: Vec<OpenMultipart>,
    /// The current part without children, and the position where its body begins.
    leaf: Option<(usize, usize)>,
}

impl MimeParser<'_, '_> {
    /// Parses the header of a part that begins at `at`. Returns the position where its body begins.
    fn begin_part(&mut self, at: usize) -> usize {
        if self.tree.parts.len() >= self.max_parts {
            self.tree.has_too_many_parts = true;
            self.close(0, at);
            return self.raw.len();
        }
        let is_end = |line: &[u8]| find_delimiter(&self.open, line).is_some();
        let (fields, body) = HeaderFields::parse(self.raw, at, self.limits, is_end);
        let structured = |name: &str| fields.first(name).map(ParameterizedValue::parse);
        let parent = self.open.last().map(|open| open.part);
        let is_digest = parent.is_some_and(|parent| self.tree.parts[parent].content.is("multipart/digest"));
        // RFC 2045, section 5.2; RFC 2046, section 5.1.5.
        let default_type = if is_digest { "message/rfc822" } else { "text/plain" };
        let content = structured("content-type").filter(|content| content.value.contains('/'));
        let content = content.unwrap_or_else(|| ParameterizedValue::parse(default_type));
        let disposition = structured("content-disposition").unwrap_or_default();
        let boundary = content.param("boundary").map(|boundary| boundary.trim_end().as_bytes().to_vec());
        let boundary = boundary.filter(|boundary| (1..=MAX_BOUNDARY).contains(&boundary.len()));
        let boundary = boundary.filter(|_| content.is("multipart/"));
        let number = self.tree.parts.len();
        if let Some(parent) = parent {
            self.tree.parts[parent].children.push(number);
        }
        self.tree.parts.push(MimePart { fields, content, disposition, ..MimePart::default() });
        match boundary {
            Some(boundary) if self.open.len() < self.limits.depth => {
                self.open.push(OpenMultipart { part: number, boundary, body });
                self.leaf = None;
            }
            boundary => {
                self.tree.is_too_deep |= boundary.is_some();
                self.leaf = Some((number, body));
            }
        }
        body
    }

    /// Ends the parts inside the open multipart `level`, whose delimiter is at `at`.
    fn end_part(&mut self, level: usize, is_last: bool, at: usize) {
        // RFC 2046, section 5.1.1: the line break before a delimiter belongs to it.
        let before = &self.raw[..at];
        let before = before.strip_suffix(b"\n").unwrap_or(before);
        let end = before.strip_suffix(b"\r").unwrap_or(before).len();
        self.close(if is_last { level } else { level + 1 }, end);
    }

    /// Ends the current part and all multiparts from `level` on.
    fn close(&mut self, level: usize, end: usize) {
        if let Some((part, body)) = self.leaf.take() {
            self.tree.parts[part].body = &self.raw[body.min(end.max(body))..end.max(body)];
        }
        for open in self.open.drain(level.min(self.open.len())..) {
            self.tree.parts[open.part].body = &self.raw[open.body..end.max(open.body)];
        }
    }
}

/// Returns the innermost open multipart that a line delimits, and whether the line ends that multipart.
fn find_delimiter(open: &[OpenMultipart], line: &[u8]) -> Option<(usize, bool)> {
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

    /// Returns each part as its type, its children and its body.
    fn part_rows(raw: &str) -> Vec<(String, Vec<usize>, String)> {
        let tree = MimeTree::parse(raw.as_bytes(), 10, &ParseLimits { depth: 3, ..ParseLimits::default() });
        let body = |part: &MimePart<'_>| {
            if part.children.is_empty() { String::from_utf8_lossy(part.body).into() } else { String::new() }
        };
        tree.parts.iter().map(|part| (part.content.value.clone(), part.children.clone(), body(part))).collect()
    }

    #[test]
    fn mails_are_split_into_parts() {
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
            assert_eq!(part_rows(raw), expected, "{raw}");
        }
    }

    #[test]
    fn many_and_deep_parts_take_linear_time() {
        let limits = ParseLimits::default();
        let nested: String =
            (0..1_000).map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n")).collect::<String>()
                + "\ntext";
        let tree = MimeTree::parse(nested.as_bytes(), limits.parts, &limits);
        assert!(tree.is_too_deep && tree.parts.len() == limits.depth + 1);

        let flat = "Content-Type: multipart/mixed; boundary=b\n\n".to_owned()
            + &"--b\nContent-Type: multipart/mixed; boundary=never\n\nx\n".repeat(50_000);
        let tree = MimeTree::parse(flat.as_bytes(), limits.parts, &limits);
        assert!(tree.has_too_many_parts && tree.parts.len() == limits.parts);
    }
}
