//! Parses address lists (RFC 5322, section 3.4).
//!
//! Only the text in angle brackets is the address, whatever a name looks like. Names are decoded after the list is split,
//! so that an encoded word cannot add a bracket or comma. Own code because mail-parser joins two addresses in brackets into
//! one, reads addresses from comments and broken quotes, and drops quoted local parts.

use super::encoded_words::{self, MAX_INVALID_WORDS, encoded_word_len};
use crate::email::mail::NamedAddress;
use crate::sanitize::{sanitize_line, truncate};

/// Longest address in bytes (RFC 5321, section 4.5.3.1): 64 before the `@`, 255 after it.
const MAX_ADDRESS: usize = 320;
/// Longest name in bytes; the rest is cut.
const MAX_NAME: usize = 300;

/// Parses at most `max` mailboxes of a value, including those of groups. Skips entries without a valid address.
pub fn parse_address_list(value: &str, max: usize) -> Vec<NamedAddress> {
    let mut found = Vec::new();
    let mut entry = AddressEntry::default();
    let mut rest = value;
    let mut invalid_words = 0;
    while let Some(c) = rest.chars().next() {
        if found.len() >= max {
            return found;
        }
        let mut length = c.len_utf8();
        match c {
            '(' => {
                let (comment, end) = parse_comment(rest);
                entry.comment = comment;
                length = end;
            }
            '"' => {
                let (text, end) = parse_quoted_string(rest);
                entry.phrase.push_str(&text);
                entry.spec.push_str(&rest[..end]);
                length = end;
            }
            '<' => {
                // A second bracket in one entry is a second address. It must stay visible to the sender check, because the
                // author is then ambiguous.
                if entry.angle.is_some() {
                    found.extend(std::mem::take(&mut entry).finish());
                }
                let (address, end) = parse_angle_address(rest);
                // An unclosed bracket contains no address.
                entry.angle = Some(address.unwrap_or_default());
                entry.spec.clear();
                length = end;
            }
            ',' | ';' => found.extend(std::mem::take(&mut entry).finish()),
            ':' if entry.angle.is_none() && !entry.spec.contains('[') => entry = AddressEntry::default(),
            '=' if rest.starts_with("=?") && invalid_words < MAX_INVALID_WORDS => {
                let word = encoded_word_len(rest).filter(|end| !rest[..*end].contains(char::is_whitespace));
                match word {
                    Some(end) => {
                        length = end;
                        entry.spec.push(' ');
                    }
                    None => {
                        invalid_words += 1;
                        entry.spec.push(c);
                    }
                }
                entry.phrase.push_str(&rest[..length]);
            }
            c => {
                entry.phrase.push(c);
                entry.spec.push(c);
            }
        }
        // An address after a closed bracket is another address.
        if entry.angle.is_some() && c == '@' {
            found.extend(AddressEntry { angle: entry.angle.take(), ..AddressEntry::default() }.finish());
        }
        rest = &rest[length..];
    }
    found.extend(entry.finish());
    found.truncate(max);
    found
}

/// An entry of the list that is being parsed.
#[derive(Default)]
struct AddressEntry {
    /// The text that becomes the name if an address in brackets follows.
    phrase: String,
    /// The text that becomes the address if there are no brackets.
    spec: String,
    angle: Option<String>,
    comment: String,
}

impl AddressEntry {
    fn finish(self) -> Option<NamedAddress> {
        let (name, address) = match self.angle {
            Some(address) => (self.phrase, address),
            None => (self.comment, self.spec),
        };
        let address = normalize_address(&address)?;
        let mut name = sanitize_line(&encoded_words::decode(&name));
        truncate(&mut name, MAX_NAME);
        Some(NamedAddress { name, address })
    }
}

/// Returns a valid address with its domain in lower case.
fn normalize_address(spec: &str) -> Option<String> {
    let spec = spec.trim();
    let (local, domain) = spec.rsplit_once('@')?;
    let (local, domain) = (local.trim(), domain.trim().trim_end_matches('.').to_lowercase());
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_special = |c: char| c.is_whitespace() || c.is_control() || "<>()[]\\,;:@\"".contains(c);
    let is_local_valid =
        !local.is_empty() && (is_quoted && !local.contains(char::is_control) || !local.contains(is_special));
    let is_literal = domain.starts_with('[') && domain.ends_with(']');
    let inner = if is_literal { domain.trim_start_matches('[').trim_end_matches(']') } else { domain.as_str() };
    let is_invalid =
        |c: char| is_special(c) && !(is_literal && c == ':') || sanitize_line(c.encode_utf8(&mut [0; 4])).is_empty();
    let is_domain_valid =
        !inner.is_empty() && !inner.contains(is_invalid) && !inner.starts_with('.') && !inner.contains("..");
    let address = format!("{local}@{domain}");
    (is_local_valid && is_domain_valid && address.len() <= MAX_ADDRESS).then_some(address)
}

/// Parses a comment at the beginning of `text`; returns its content and length. Comments can be nested (RFC 5322, section
/// 3.2.2); an unclosed comment ends with the text.
fn parse_comment(text: &str) -> (String, usize) {
    let mut depth = 0_usize;
    let mut content = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => content.extend(chars.next().map(|(_, c)| c)),
            '(' => {
                depth += 1;
                if depth > 1 {
                    content.push(c);
                }
            }
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return (content, at + 1);
                }
                content.push(c);
            }
            c => content.push(c),
        }
    }
    (content, text.len())
}

/// Parses a quoted string at the beginning of `text`; returns its content and length.
fn parse_quoted_string(text: &str) -> (String, usize) {
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => content.extend(chars.next().map(|(_, c)| c)),
            '"' => return (content, at + 1),
            c => content.push(c),
        }
    }
    (content, text.len())
}

/// Parses an address in angle brackets at the beginning of `text`, without comments and route (RFC 5322, section 4.4);
/// returns the address and the length. The address is `None` if the bracket is unclosed.
fn parse_angle_address(text: &str) -> (Option<String>, usize) {
    let mut spec = String::new();
    let mut at = 1;
    let mut is_closed = false;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '>' => {
                at += 1;
                is_closed = true;
                break;
            }
            '"' => {
                let (_, length) = parse_quoted_string(&text[at..]);
                spec.push_str(&text[at..at + length]);
                at += length;
            }
            '(' => at += parse_comment(&text[at..]).1,
            c => {
                spec.push(c);
                at += c.len_utf8();
            }
        }
    }
    let address = match spec.split_once(':') {
        Some((route, address)) if route.trim_start().starts_with('@') => address.to_owned(),
        _ => spec,
    };
    (is_closed.then_some(address), at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_text_in_brackets() {
        let table: &[(&str, &[(&str, &str)])] = &[
            ("a@x.org", &[("", "a@x.org")]),
            ("A <a.b+c@X.Org>", &[("A", "a.b+c@x.org")]),
            ("\"boss@x.org\" <evil@y.org>", &[("boss@x.org", "evil@y.org")]),
            ("boss@x.org <evil@y.org>", &[("boss@x.org", "evil@y.org")]),
            ("\"<boss@x.org>\" <evil@y.org>", &[("<boss@x.org>", "evil@y.org")]),
            ("=?utf-8?Q?=3Cboss=40x.org=3E=2C?= <evil@y.org>", &[("<boss@x.org>,", "evil@y.org")]),
            ("=?utf-8?Q?<boss@x.org>?= <evil@y.org>", &[("<boss@x.org>", "evil@y.org")]),
            ("<boss@x.org> <evil@y.org>", &[("", "boss@x.org"), ("", "evil@y.org")]),
            ("<boss@x.org> evil@y.org", &[("", "boss@x.org"), ("", "evil@y.org")]),
            ("(<boss@x.org>) evil@y.org (Evil \\) (of) Y)", &[("Evil ) (of) Y", "evil@y.org")]),
            ("<boss@x.org(> <evil@y.org>", &[]),
            ("a@x.org, b@y.org", &[("", "a@x.org"), ("", "b@y.org")]),
            ("Doe, John <j@x.org>", &[("John", "j@x.org")]),
            ("\"Doe, \\\"J\\\" John\" <j@x.org>", &[("Doe, \"J\" John", "j@x.org")]),
            ("=?GBK?B?1cXI/Q==?= <z@163.com>", &[("张三", "z@163.com")]),
            ("\"=?GBK?B?1cXI/Q==?=\" <z@163.com>", &[("张三", "z@163.com")]),
            ("Team: a@x.org, B <b@x.org>; c@x.org", &[("", "a@x.org"), ("B", "b@x.org"), ("", "c@x.org")]),
            ("undisclosed-recipients:;", &[]),
            ("\"a b\"@x.org", &[("", "\"a b\"@x.org")]),
            ("\"a@b\"@x.org", &[("", "\"a@b\"@x.org")]),
            ("<@r.org,@s.org:a@x.org>", &[("", "a@x.org")]),
            ("<a@b@c>, <a b@c>, <@c>, <a@>, <>, x, <a@.c>, <a@b..c>", &[]),
            ("用户@例子.中国, a@BÜCHER.example", &[("", "用户@例子.中国"), ("", "a@bücher.example")]),
            ("a@[192.0.2.1], a@[IPv6:::1]", &[("", "a@[192.0.2.1]"), ("", "a@[ipv6:::1]")]),
            ("A\u{0}\r\nBcc: x@y.z <a@x.org>", &[("x@y.z", "a@x.org")]),
            ("a@x.\u{200b}org", &[]),
            ("", &[]),
        ];
        for (value, expected) in table {
            let found = parse_address_list(value, 10);
            let found: Vec<_> = found.iter().map(|found| (found.name.as_str(), found.address.as_str())).collect();
            assert_eq!(found, *expected, "{value}");
        }
        assert_eq!(parse_address_list(&"a@b,".repeat(20_000), 10).len(), 10);
        assert!(parse_address_list(&"(".repeat(60_000), 10).is_empty());
        assert!(parse_address_list(&"\"<(".repeat(20_000), 10).is_empty());
    }
}
