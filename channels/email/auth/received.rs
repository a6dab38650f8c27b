//! Finds the peer that delivered a mail to the receiving server, by its `Received` (RFC 5321, section 4.4). Own code
//! because mail-parser does not report ambiguous values of this field, with which a client could impersonate another.

use std::net::{IpAddr, SocketAddr};

/// The other side of the connection that delivered a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpPeer {
    pub ip: IpAddr,
    /// The name that the client gave in its greeting.
    pub helo: String,
}

/// The longest field, in bytes.
const MAX_LENGTH: usize = 4_096;

/// Returns the client named in the topmost `Received` that one of `servers` wrote. Returns `None` if there is no such
/// field, or if the field names no client on the public internet: the mail then passed a filter first, or comes from the
/// local network. Fields further down are ignored, because a sender may have written them.
///
/// The name that a client gives is part of the field and may look like an address. Therefore the clause counts only if it
/// has exactly one address, and none within the name.
pub fn smtp_peer(headers: &[(String, String)], servers: &[String]) -> Option<SmtpPeer> {
    let fields = headers.iter().filter(|(name, _)| name == "received").map(|(_, value)| value.trim_start());
    for field in fields {
        match writing_server(field) {
            Some(by) if servers.contains(&by) => return parse_from_clause(from_clause(field)?),
            // A client name that hides the rest of the field must not make the next field count.
            None if field.len() > MAX_LENGTH || has_from(field) => return None,
            _ => {}
        }
    }
    None
}

/// Parses the client in a `from` clause: `helo (name [1.2.3.4])` of Postfix, Sendmail and others, with IPv6 also as
/// `[IPv6:…]`; `unknown (HELO helo) (1.2.3.4)` of qmail; `[1.2.3.4] (helo=helo)` of Exim, where the host has no name.
fn parse_from_clause(from: &str) -> Option<SmtpPeer> {
    let first = from.split_whitespace().next()?;
    let mut found = addresses(from);
    let ip = found.next()?;
    let is_only = found.all(|other| other == ip);
    let is_name = addresses(first).next().is_none() || from[first.len()..].contains("helo=");
    let helo = first.trim_matches(['[', ']']).to_owned();
    (is_only && is_name && is_public(ip)).then_some(SmtpPeer { ip, helo })
}

/// Returns everything that parses as an address.
fn addresses(text: &str) -> impl Iterator<Item = IpAddr> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | ':' | '%' | '-' | '_'));
    words.filter_map(|word| {
        let word = word.strip_prefix("IPv6:").or_else(|| word.strip_prefix("ipv6:")).unwrap_or(word);
        // The zone names an interface of the receiving server.
        let word = word.split('%').next().unwrap_or_default().trim_end_matches('.');
        let with_port = || word.parse::<SocketAddr>().map(|address| address.ip());
        word.parse::<IpAddr>().or_else(|_| with_port()).ok().map(|ip| ip.to_canonical())
    })
}

/// Returns the text between `from` and `by`.
fn from_clause(field: &str) -> Option<&str> {
    let end = by_position(field)?;
    has_from(field).then(|| field.get(4..end)).flatten().map(str::trim)
}

fn has_from(field: &str) -> bool {
    field.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("from"))
}

/// Returns the server that wrote the field, in lower case; `None` also for a field that is too long.
fn writing_server(field: &str) -> Option<String> {
    if field.len() > MAX_LENGTH {
        return None;
    }
    let rest = &field[by_position(field)?..];
    let name = rest.trim_start().get(2..)?.split_whitespace().next()?;
    Some(name.trim_end_matches(';').to_ascii_lowercase())
}

/// Returns true for a field of local delivery (RFC 2033, RFC 3848). Mail from outside never arrives by local delivery.
pub fn is_local_delivery(field: &str) -> bool {
    let Some(at) = by_position(field).filter(|_| field.len() <= MAX_LENGTH) else { return false };
    let is_with = |word: &str| word.eq_ignore_ascii_case("with");
    // A client's name may contain such words, which makes the field ambiguous.
    if field.split_ascii_whitespace().filter(|word| is_with(word)).count() != 1 {
        return false;
    }
    let protocol = field[at..].split_ascii_whitespace().skip_while(|word| !is_with(word)).nth(1).unwrap_or_default();
    let protocol = protocol.trim_end_matches(';');
    ["LMTP", "LMTPA", "LMTPS", "LMTPSA"].iter().any(|local| protocol.eq_ignore_ascii_case(local))
}

/// Returns the position of the `by` clause, outside comments and after the client's name, which the client chooses freely.
/// Returns `None` if there is more than one such clause.
fn by_position(field: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut words = 0_usize;
    let mut found = None;
    let mut is_start = true;
    for (at, c) in field.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if is_start && !c.is_ascii_whitespace() {
            words += 1;
            let word = field[at..].split_ascii_whitespace().next().unwrap_or_default();
            let is_name = words == 2 && has_from(field);
            if depth == 0 && !is_name && word.eq_ignore_ascii_case("by") && found.replace(at).is_some() {
                return None;
            }
        }
        is_start = c.is_ascii_whitespace();
    }
    found
}

fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => {
            !(v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_broadcast())
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || v6.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_delivery_is_recognized() {
        for (field, expected) in [
            ("from mx.here by mx.here with LMTP id gBvRKh (envelope-from <a@b>) for <me@here>; x", true),
            ("from mx.here ([127.0.0.1])\r\n\tby box.here with LMTPS\r\n\tid 1; x", true),
            ("by box.here with lmtp; x", true),
            ("from a ([192.0.2.7]) by mx.here with ESMTP id 1; x", false),
            ("from a ([192.0.2.7]) by mx.here (Postfix) with ESMTPS id LMTP; x", false),
            ("from a (with LMTP [192.0.2.7]) by mx.here with ESMTP; x", false),
            ("from with LMTP ([192.0.2.7]) by mx.here with ESMTP; x", false),
            ("from by ([192.0.2.7]) by mx.here with ESMTP; x", false),
            ("from x by y with LMTP ([192.0.2.7]) by mx.here; x", false),
            ("with LMTP", false),
            ("", false),
        ] {
            assert_eq!(is_local_delivery(field), expected, "{field}");
        }
        assert!(!is_local_delivery(&format!("by x with LMTP {}", "y".repeat(MAX_LENGTH))));
    }

    #[test]
    fn the_peer_is_the_client_of_the_receiving_server() {
        for (fields, expected) in [
            (
                &["from mail.example.org (mail.example.org [192.0.2.7]) by mx.here (Postfix) with ESMTPS id 1; x"]
                    as &[&str],
                Some(("192.0.2.7", "mail.example.org")),
            ),
            (
                &["from mail.example.org ([IPv6:2001:db8::7]) by MX.HERE with ESMTP"],
                Some(("2001:db8::7", "mail.example.org")),
            ),
            (&["from [192.0.2.7] (port=1 helo=x) by mx.here with esmtp"], Some(("192.0.2.7", "192.0.2.7"))),
            (&["by mx.there with LMTP id 2", "from a ([192.0.2.7]) by mx.here with ESMTP"], Some(("192.0.2.7", "a"))),
            // Only the topmost field of our servers counts.
            (
                &[
                    "from localhost (localhost [127.0.0.1]) by mx.here with ESMTP",
                    "from a ([192.0.2.7]) by mx.here with ESMTP",
                ],
                None,
            ),
            (&["from a (b [192.0.2.7]:4711) by mx.here with ESMTP"], Some(("192.0.2.7", "a"))),
            (&["from a (192.0.2.7) by mx.here with Microsoft SMTP"], Some(("192.0.2.7", "a"))),
            (&["from unknown (HELO a) (192.0.2.7) by mx.here with SMTP"], Some(("192.0.2.7", "unknown"))),
            (&["from a (b [192.0.2.7] (may be forged)) by mx.here; x"], Some(("192.0.2.7", "a"))),
            // A client gives the address of another client as its name.
            (&["from [192.0.2.9] (unknown [192.0.2.7]) by mx.here with ESMTP"], None),
            (&["from [192.0.2.9] ([192.0.2.7]) by mx.here with ESMTP"], None),
            (&["from [192.0.2.9] (192.0.2.7) by mx.here with Microsoft SMTP"], None),
            (&["from 192.0.2.9 (HELO 192.0.2.9) (192.0.2.7) by mx.here with SMTP"], None),
            (&["from unknown (HELO [192.0.2.9]) (192.0.2.7) by mx.here with SMTP"], None),
            (&["from [IPv6:2001:db8::9] (unknown [IPv6:2001:db8::7]) by mx.here with ESMTP"], None),
            (&["from x[192.0.2.9] (unknown [192.0.2.7]) by mx.here with ESMTP"], None),
            (&["from [192.0.2.7] (helo=[192.0.2.9]) by mx.here with esmtp"], None),
            (&["from [192.0.2.9] by mx.here with ESMTP"], None),
            (&["from [192.0.2.9] (unknown [fe80::1%eth0]) by mx.here with ESMTP"], None),
            // A name that hides the writing server, above a forged field.
            (
                &["from x( (unknown [192.0.2.7]) by mx.here with ESMTP", "from a ([192.0.2.9]) by mx.here with ESMTP"],
                None,
            ),
            (
                &["from by (unknown [192.0.2.7]) by mx.elsewhere with ESMTP", "from a ([192.0.2.9]) by mx.here"],
                Some(("192.0.2.9", "a")),
            ),
            (
                &["from by (unknown [192.0.2.7]) by mx.here with ESMTP", "from a ([192.0.2.9]) by mx.here"],
                Some(("192.0.2.7", "by")),
            ),
            (&["from a ([192.0.2.9]) by mx.here (unknown [192.0.2.7]) by mx.here with ESMTP"], None),
            (&["from pc ([10.0.0.5]) by mx.here with ESMTPSA"], None),
            (&["from a ([192.0.2.7]) by mx.elsewhere with ESMTP"], None),
            (&["by mx.here with LMTP"], None),
            // A name that looks like the end of the clause.
            (&["from by (evil [192.0.2.7]) by mx.elsewhere with ESMTP"], None),
            (&["from x (by mx.here [192.0.2.9]) by mx.elsewhere with ESMTP"], None),
            (&[""], None),
        ] {
            let headers: Vec<_> = fields.iter().map(|value| ("received".to_owned(), (*value).to_owned())).collect();
            let found = smtp_peer(&headers, &["mx.here".to_owned()]);
            let found = found.as_ref().map(|c| (c.ip.to_string(), c.helo.as_str()));
            assert_eq!(found, expected.map(|(ip, helo)| (ip.to_owned(), helo)), "{fields:?}");
        }
    }
}
