//! Parses parameterized values: Content-Type and Content-Disposition (RFC 2045, section 5.1; RFC 2183), with the
//! continuations and encodings of RFC 2231. Own code because mail-parser decodes each continuation separately and loses
//! names with spaces, line breaks or backslashes.

use super::transfer_encoding::decode_hex_escapes;
use super::{charset, encoded_words};
use crate::sanitize::sanitize_line;

/// Largest number of parameters and continuations.
const MAX_PARAMS: usize = 100;

/// A value of the form `value; name=value; …`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterizedValue {
    /// The value in lower case.
    pub value: String,
    /// The parameters: names in lower case, values decoded.
    params: Vec<(String, String)>,
}

impl ParameterizedValue {
    /// Parses a field's value.
    pub fn parse(text: &str) -> Self {
        let mut pieces = split_parameters(text).into_iter();
        let value = pieces.next().unwrap_or_default().trim().to_ascii_lowercase();
        let value = value.split_whitespace().next().unwrap_or_default().to_owned();
        let mut params: Vec<(String, String)> = Vec::new();
        let mut segments: Vec<ParamSegment> = Vec::new();
        for piece in pieces.take(MAX_PARAMS) {
            let Some((name, value)) = piece.split_once('=') else { continue };
            let (name, value) = (name.trim().to_ascii_lowercase(), unquote(value.trim()));
            match ParamSegment::parse(&name, &value) {
                Some(segment) => segments.push(segment),
                None if name.is_empty() => {}
                None => params.push((name, sanitize_line(&encoded_words::decode(&value)))),
            }
        }
        segments.sort_by(|a, b| (&a.name, a.number).cmp(&(&b.name, b.number)));
        for segments in segments.chunk_by(|a, b| a.name == b.name) {
            // RFC 2231 takes precedence over the plain form, which serves old programs.
            params.insert(0, (segments[0].name.clone(), decode_segments(segments)));
        }
        Self { value, params }
    }

    /// Returns the value of a parameter. `name` is in lower case.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns true if the value has the prefix `kind`, such as `multipart/`, or equals it, such as `text/plain`.
    pub fn is(&self, kind: &str) -> bool {
        if kind.ends_with('/') { self.value.starts_with(kind) } else { self.value == kind }
    }
}

/// A segment of a parameter (`name*0=…`, `name*1*=…`), or a whole parameter (`name*=…`).
struct ParamSegment {
    name: String,
    number: u32,
    is_encoded: bool,
    value: String,
}

impl ParamSegment {
    fn parse(name: &str, value: &str) -> Option<Self> {
        let (base, rest) = name.split_once('*')?;
        let (number, is_encoded) = match rest.strip_suffix('*') {
            Some(number) => (number, true),
            None => (rest, rest.is_empty()),
        };
        let number = if number.is_empty() { 0 } else { number.parse().ok()? };
        Some(Self { name: base.to_owned(), number, is_encoded, value: value.to_owned() })
    }
}

/// Decodes all segments together, because a segment can end inside a character. The first segment names the charset.
fn decode_segments(segments: &[ParamSegment]) -> String {
    let mut label = None;
    let mut bytes = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let mut value = segment.value.as_str();
        if index == 0 && segment.is_encoded {
            let mut three = value.splitn(3, '\'');
            if let (Some(charset), Some(_), Some(rest)) = (three.next(), three.next(), three.next()) {
                label = Some(charset);
                value = rest;
            }
        }
        if segment.is_encoded {
            bytes.extend(decode_hex_escapes(value.as_bytes(), b'%'));
        } else {
            bytes.extend(value.as_bytes());
        }
    }
    sanitize_line(&encoded_words::decode(&charset::decode(&bytes, label)))
}

/// Splits the value at semicolons outside quotes, and drops comments in parentheses.
fn split_parameters(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let (mut is_quoted, mut comments) = (false, 0_usize);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let piece = pieces.len() - 1;
        match c {
            '\\' if is_quoted => {
                pieces[piece].push(c);
                pieces[piece].extend(chars.next());
            }
            '"' if comments == 0 => {
                is_quoted = !is_quoted;
                pieces[piece].push(c);
            }
            '(' if !is_quoted && !pieces[piece].contains('=') => comments += 1,
            ')' if !is_quoted && comments > 0 => comments -= 1,
            ';' if !is_quoted && comments == 0 => {
                if pieces.len() > MAX_PARAMS {
                    return pieces;
                }
                pieces.push(String::new());
            }
            c if comments == 0 => pieces[piece].push(c),
            _ => {}
        }
    }
    pieces
}

fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            // A Windows path keeps its backslashes.
            ('\\', Some('"' | '\\')) => out.extend(chars.next()),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_real_programs_are_parsed() {
        let table = [
            ("text/Plain; Charset=\"gbk\"", "text/plain", "charset", Some("gbk")),
            ("text/plain (x; y) ; charset = utf-8 ", "text/plain", "charset", Some("utf-8")),
            ("attachment; filename=\"a;b \\\"c\\\".pdf\"", "attachment", "filename", Some("a;b \"c\".pdf")),
            ("attachment; filename=report (1).pdf", "attachment", "filename", Some("report (1).pdf")),
            ("attachment; filename==?GB18030?B?u+HS6S5wZGY=?=", "attachment", "filename", Some("会议.pdf")),
            (
                "attachment; filename=\"=?utf-8?B?5Lya?=\r\n =?utf-8?B?6K6uLnBkZg==?=\"",
                "attachment",
                "filename",
                Some("会议.pdf"),
            ),
            (
                "attachment; filename*=UTF-8''%E4%BC%9A%E8%AE%AE.pdf; filename=x.pdf",
                "attachment",
                "filename",
                Some("会议.pdf"),
            ),
            (
                "attachment; filename*0*=gbk'zh'%BB%E1%D2; filename*1*=%E9; filename*2=.pdf",
                "attachment",
                "filename",
                Some("会议.pdf"),
            ),
            ("a/b; name*1=two; name*0=\"one \"", "a/b", "name", Some("one two")),
            ("attachment; filename=\"a\r\nBcc: x\"", "attachment", "filename", Some("a Bcc: x")),
            ("x; filename*99999999999=a; =b; c", "x", "c", None),
            ("", "", "x", None),
        ];
        for (text, value, name, expected) in table {
            let found = ParameterizedValue::parse(text);
            assert_eq!((found.value.as_str(), found.param(name)), (value, expected), "{text}");
        }
        ParameterizedValue::parse(&";a=b".repeat(16_000));
    }
}
