//! Lists of addresses (RFC 5322, section 3.4).
//!
//! What stands in angle brackets is the address; a name never becomes one, whatever it looks like. Names are decoded only
//! after the list was taken apart, so that no encoded word can bring a bracket or a comma into it.

use super::clean::clean_line;
use super::words;
use crate::email::letter::Mailbox;

/// RFC 5321, section 4.5.3.1: 64 octets before the `@`, 255 behind it.
const MAX_ADDRESS: usize = 320;
/// A longer name is cut.
const MAX_NAME: usize = 300;

/// The mailboxes of a field's value, those of groups among the others; what is no address is left out.
pub fn list(value: &str, max: usize) -> Vec<Mailbox> {
    let mut found = Vec::new();
    let mut open = Open::default();
    let mut rest = value;
    while let Some(c) = rest.chars().next() {
        if found.len() >= max {
            return found;
        }
        let mut length = c.len_utf8();
        match c {
            '(' => {
                let (comment, end) = comment(rest);
                open.comment = comment;
                length = end;
            }
            '"' => {
                let (text, end) = quoted(rest);
                open.phrase.push_str(&text);
                open.spec.push_str(&rest[..end]);
                length = end;
            }
            '<' => {
                // Two in one entry are two: whoever looks for the one author must see that there is none.
                if open.angle.is_some() {
                    found.extend(std::mem::take(&mut open).close());
                }
                let (address, end) = angle(rest);
                // One that never closes is no address.
                open.angle = Some(address.unwrap_or_default());
                open.spec.clear();
                length = end;
            }
            ',' | ';' => found.extend(std::mem::take(&mut open).close()),
            ':' if open.angle.is_none() && !open.spec.contains('[') => open = Open::default(),
            '=' if words::length_at(rest).is_some_and(|end| !rest[..end].contains(char::is_whitespace)) => {
                length = words::length_at(rest).unwrap_or(length);
                open.phrase.push_str(&rest[..length]);
                open.spec.push(' ');
            }
            c => {
                open.phrase.push(c);
                open.spec.push(c);
            }
        }
        // An address behind a closed bracket is one more.
        if open.angle.is_some() && c == '@' {
            found.extend(Open { angle: open.angle.take(), ..Open::default() }.close());
        }
        rest = &rest[length..];
    }
    found.extend(open.close());
    found.truncate(max);
    found
}

/// An entry of the list that is being read.
#[derive(Default)]
struct Open {
    /// What would be the name.
    phrase: String,
    /// What would be the address, as it is written.
    spec: String,
    angle: Option<String>,
    comment: String,
}

impl Open {
    fn close(self) -> Option<Mailbox> {
        let (name, address) = match self.angle {
            Some(address) => (self.phrase, address),
            None => (self.comment, self.spec),
        };
        let address = address_of(&address)?;
        let mut name = clean_line(&words::decode(&name));
        super::clean::cut_to(&mut name, MAX_NAME);
        Some(Mailbox { name, address })
    }
}

/// An address in its usual form, if it is one.
fn address_of(spec: &str) -> Option<String> {
    let spec = spec.trim();
    let (local, domain) = spec.rsplit_once('@')?;
    let (local, domain) = (local.trim(), domain.trim().trim_end_matches('.').to_lowercase());
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let odd = |c: char| c.is_whitespace() || c.is_control() || "<>()[]\\,;:@\"".contains(c);
    let local_is_good = !local.is_empty() && (is_quoted && !local.contains(char::is_control) || !local.contains(odd));
    let is_literal = domain.starts_with('[') && domain.ends_with(']');
    let inner = if is_literal { domain.trim_start_matches('[').trim_end_matches(']') } else { domain.as_str() };
    let is_odd = |c: char| {
        odd(c) && !(is_literal && c == ':') || super::clean::clean_line(c.encode_utf8(&mut [0; 4])).is_empty()
    };
    let domain_is_good =
        !inner.is_empty() && !inner.contains(is_odd) && !inner.starts_with('.') && !inner.contains("..");
    let address = format!("{local}@{domain}");
    (local_is_good && domain_is_good && address.len() <= MAX_ADDRESS).then_some(address)
}

/// A comment at the beginning of `text`: what it says, and its length. Comments stand in each other (RFC 5322, section
/// 3.2.2); one that never ends goes to the end.
fn comment(text: &str) -> (String, usize) {
    let mut depth = 0_usize;
    let mut said = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => said.extend(chars.next().map(|(_, c)| c)),
            '(' => {
                depth += 1;
                if depth > 1 {
                    said.push(c);
                }
            }
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return (said, at + 1);
                }
                said.push(c);
            }
            c => said.push(c),
        }
    }
    (said, text.len())
}

/// A quoted string at the beginning of `text`: its content, and its length.
fn quoted(text: &str) -> (String, usize) {
    let mut said = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => said.extend(chars.next().map(|(_, c)| c)),
            '"' => return (said, at + 1),
            c => said.push(c),
        }
    }
    (said, text.len())
}

/// What stands in angle brackets at the beginning of `text`, without comments and route (RFC 5322, section 4.4), and its
/// length.
fn angle(text: &str) -> (Option<String>, usize) {
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
                let (_, length) = quoted(&text[at..]);
                spec.push_str(&text[at..at + length]);
                at += length;
            }
            '(' => at += comment(&text[at..]).1,
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
    fn the_address_is_what_stands_in_brackets() {
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
            let found = list(value, 10);
            let found: Vec<_> = found.iter().map(|found| (found.name.as_str(), found.address.as_str())).collect();
            assert_eq!(found, *expected, "{value}");
        }
        assert_eq!(list(&"a@b,".repeat(20_000), 10).len(), 10);
        assert!(list(&"(".repeat(60_000), 10).is_empty());
        assert!(list(&"\"<(".repeat(20_000), 10).is_empty());
    }
}
