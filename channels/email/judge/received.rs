//! Who gave a mail to our own server, as its `Received` says (RFC 5321, section 4.4).

use std::net::IpAddr;

/// The other side of the connection by which a mail came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub ip: IpAddr,
    /// What it called itself.
    pub helo: String,
}

/// The longest field that is read, in bytes.
const MAX_LENGTH: usize = 4_096;

/// The client that the topmost `Received` written by one of `servers` tells of. `None` where no such field is found, or
/// where it tells of no client on the public net: a mail that passed through a filter on the way, or was written by
/// somebody near. Fields further down are not asked, for a sender may have written them.
pub fn client(headers: &[(String, String)], servers: &[String]) -> Option<Client> {
    let mut received = headers.iter().filter(|(name, _)| name == "received").map(|(_, value)| value.as_str());
    let field =
        received.find(|value| value.len() <= MAX_LENGTH && by(value).is_some_and(|by| servers.contains(&by)))?;
    let field = field.trim_start();
    let from = from_clause(field)?;
    let helo = from.split_whitespace().next()?.trim_matches(['[', ']']).to_owned();
    // Postfix, Exim, Sendmail and others: `from helo (name [1.2.3.4])`, IPv6 also as `[IPv6:…]`.
    let ip = from.split('[').skip(1).filter_map(|rest| rest.split(']').next()).find_map(|inside| {
        let address = inside.strip_prefix("IPv6:").unwrap_or(inside);
        address.parse::<IpAddr>().ok()
    })?;
    is_public(ip).then_some(Client { ip, helo })
}

fn from_clause(field: &str) -> Option<&str> {
    let rest = field.strip_prefix("from").or_else(|| field.strip_prefix("From"))?;
    let rest = rest.strip_prefix(|c: char| c.is_ascii_whitespace())?;
    Some(&rest[..by_at(rest)?])
}

/// The server that wrote the field, in lower case.
fn by(field: &str) -> Option<String> {
    let rest = &field[by_at(field)?..];
    let name = rest.trim_start().get(2..)?.split_whitespace().next()?;
    Some(name.trim_end_matches(';').to_ascii_lowercase())
}

/// Where the clause `by` begins, outside all comments: a client names itself as it likes.
fn by_at(field: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut is_start = true;
    for (at, c) in field.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && is_start {
            let word = field[at..].split_whitespace().next().unwrap_or_default();
            if word.eq_ignore_ascii_case("by") && field[at..].starts_with(word) {
                return Some(at);
            }
        }
        is_start = c.is_ascii_whitespace();
    }
    None
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
    fn the_client_is_who_spoke_to_our_server() {
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
            // The topmost of ours alone is asked.
            (
                &[
                    "from localhost (localhost [127.0.0.1]) by mx.here with ESMTP",
                    "from a ([192.0.2.7]) by mx.here with ESMTP",
                ],
                None,
            ),
            (&["from pc ([10.0.0.5]) by mx.here with ESMTPSA"], None),
            (&["from a ([192.0.2.7]) by mx.elsewhere with ESMTP"], None),
            (&["by mx.here with LMTP"], None),
            // A name that looks like the end of the clause.
            (&["from by (evil [192.0.2.7]) by mx.elsewhere with ESMTP"], None),
            (&["from x (by mx.here [192.0.2.9]) by mx.elsewhere with ESMTP"], None),
            (&[""], None),
        ] {
            let headers: Vec<_> = fields.iter().map(|value| ("received".to_owned(), (*value).to_owned())).collect();
            let found = client(&headers, &["mx.here".to_owned()]);
            let found = found.as_ref().map(|c| (c.ip.to_string(), c.helo.as_str()));
            assert_eq!(found, expected.map(|(ip, helo)| (ip.to_owned(), helo)), "{fields:?}");
        }
    }
}
