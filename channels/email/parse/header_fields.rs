//! Header fields (RFC 5322, section 2.2), and values that are not address lists.

use super::charset;
use super::limits::ParseLimits;
use crate::sanitize::sanitize_line;

/// Fields that are read even beyond the limit, so that many other fields cannot hide a second From.
const ALWAYS: &[&str] = &["from", "sender", "reply-to"];

/// The header fields of a mail or part, topmost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderFields(pub Vec<(String, String)>);

impl HeaderFields {
    /// Parses fields up to the empty line; returns the fields and the position where the body begins. `is_end` returns true
    /// for a line that ends the part without an empty line.
    pub fn parse(raw: &[u8], start: usize, limits: &ParseLimits, is_end: impl Fn(&[u8]) -> bool) -> (Self, usize) {
        let mut parser = FieldParser { fields: Vec::new(), open: None, limits };
        let mut at = start;
        while at < raw.len() {
            let end = raw[at..].iter().position(|byte| *byte == b'\n').map_or(raw.len(), |end| at + end + 1);
            let line = raw[at..end].strip_suffix(b"\n").unwrap_or(&raw[at..end]);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if is_end(line) {
                break;
            }
            at = end;
            if line.is_empty() {
                break;
            }
            parser.parse_line(line);
        }
        parser.finish_field();
        (Self(parser.fields), at)
    }

    /// Returns the values of a field, topmost first. `name` is in lower case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the topmost value of a field.
    pub fn first<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }
}

struct FieldParser<'a> {
    fields: Vec<(String, String)>,
    open: Option<(String, Vec<u8>)>,
    limits: &'a ParseLimits,
}

impl FieldParser<'_> {
    fn parse_line(&mut self, line: &[u8]) {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            if let Some((_, value)) = &mut self.open {
                let room = self.limits.field_size.saturating_sub(value.len());
                value.extend_from_slice(&line[..line.len().min(room)]);
            }
            return;
        }
        self.finish_field();
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let name = line[..colon].trim_ascii_end();
        if name.is_empty() || name.len() > 100 || !name.iter().all(u8::is_ascii_graphic) {
            return;
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let count = self.fields.len();
        if count < self.limits.fields || (ALWAYS.contains(&name.as_str()) && count < self.limits.fields + 20) {
            let value = &line[colon + 1..];
            self.open = Some((name, value[..value.len().min(self.limits.field_size)].to_vec()));
        }
    }

    fn finish_field(&mut self) {
        if let Some((name, value)) = self.open.take() {
            let value = charset::guess(&value);
            let value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            self.fields.push((name, value.trim().to_owned()));
        }
    }
}

/// Decodes an unstructured value into one line of text.
pub fn decode_unstructured(value: &str) -> String {
    sanitize_line(&super::encoded_words::decode(value))
}

/// Parses the Message-IDs of a value (RFC 5322, section 3.6.4). Each keeps its angle brackets but no white space. An id may
/// lack an `@`, as some programs write it.
pub fn parse_message_ids(value: &str) -> Vec<String> {
    /// Longest id in bytes; RFC 5322, section 2.1.1 limits lines to 998.
    const MAX_ID: usize = 900;
    let mut ids = Vec::new();
    let mut rest = value;
    while let Some(start) = rest.find('<') {
        let after = &rest[start + 1..];
        let Some(end) = after.find(['<', '>']) else { break };
        rest = &after[end..];
        if !rest.starts_with('>') {
            continue;
        }
        let id: String = after[..end].chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
        if !id.is_empty() && id.len() <= MAX_ID && id.is_ascii() {
            ids.push(format!("<{id}>"));
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_unfolded_and_bounded() {
        let raw = b"From mbox Mon 1 10:00\r\nSubject: a\r\n\tb\r\nX-Y : 1\nbad line\n continued\nFrom:x\n\nbody";
        let (fields, body) = HeaderFields::parse(raw, 0, &ParseLimits::default(), |_| false);
        let expected = [("subject", "a b"), ("x-y", "1"), ("from", "x")];
        assert_eq!(fields.0, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(&raw[body..], b"body");

        let limits = ParseLimits { fields: 3, field_size: 5, ..ParseLimits::default() };
        let many = "A: 123456789\n".repeat(50) + "From: 1\nB: 1\nFrom: 2\n";
        let (fields, _) = HeaderFields::parse(many.as_bytes(), 0, &limits, |_| false);
        assert_eq!(fields.0.len(), 5);
        assert_eq!(fields.first("a"), Some("1234"));
        assert_eq!(fields.all("from").collect::<Vec<_>>(), ["1", "2"], "none is hidden");
    }

    #[test]
    fn message_ids_are_parsed() {
        let table: &[(&str, &[&str])] = &[
            ("<a@b> <c@d>", &["<a@b>", "<c@d>"]),
            ("(x) <a @ b>\t<1>, <<c@d>", &["<a@b>", "<1>", "<c@d>"]),
            ("a@b <unclosed@x <>", &[]),
        ];
        for (value, expected) in table {
            assert_eq!(parse_message_ids(value), *expected, "{value}");
        }
    }
}
