//! Addresses, and whether two domains stand for the same owner.

use std::fmt;

use mail_auth::common::to_a_label;

use crate::allow::AllowList;

/// The longest address (RFC 5321, section 4.5.3.1: 64 for the local part, 255 for the domain).
const MAX_LENGTH: usize = 320;

/// What people register names under where a country's own domain is not enough; the first of two labels, the second of
/// two letters: `co.uk`, `com.cn`.
const SECOND_LEVEL: &[&str] = &[
    "ac", "co", "com", "edu", "gen", "go", "gob", "gouv", "gov", "gv", "id", "info", "ltd", "me", "mil", "name", "ne",
    "net", "nhs", "nom", "or", "org", "plc", "sch",
];
/// The same below other names.
const OTHER_SUFFIXES: &[&str] = &["br.com", "cn.com", "de.com", "eu.com", "eu.org", "gb.net", "uk.com", "us.com"];

/// `local@domain` in the form in which addresses are compared: in lower case, the domain in ASCII (IDNA, RFC 5891).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    plain: String,
    at: usize,
}

impl Address {
    /// `None` for what is no address: it has no name or no domain, white space or anything that would end it.
    pub fn parse(written: &str) -> Option<Self> {
        let (local, domain) = written.trim().rsplit_once('@')?;
        let domain = ascii_domain(domain)?;
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',' | ';' | '"');
        if local.is_empty() || local.chars().any(is_odd) || local.len() + 1 + domain.len() > MAX_LENGTH {
            return None;
        }
        // Of ASCII alone: other letters that fall together in lower case are not the same name.
        let local = local.to_ascii_lowercase();
        Some(Self { at: local.len(), plain: format!("{local}@{domain}") })
    }

    pub fn as_str(&self) -> &str {
        &self.plain
    }

    pub fn local(&self) -> &str {
        &self.plain[..self.at]
    }

    pub fn domain(&self) -> &str {
        &self.plain[self.at + 1..]
    }

    /// The address without what stands behind a `+` (RFC 5233).
    pub fn untagged(&self) -> String {
        let name = self.local().split_once('+').map_or(self.local(), |(name, _)| name);
        format!("{name}@{}", self.domain())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain)
    }
}

/// A list of whole addresses, of `@domain`s, which are that domain alone and none below it, or of `*`, everybody.
#[derive(Clone, Debug, Default)]
pub struct AddressList {
    everybody: bool,
    addresses: Vec<Address>,
    domains: Vec<String>,
}

impl AddressList {
    pub fn new(list: &AllowList) -> Self {
        let mut known = Self::default();
        for entry in list.entries() {
            match entry.strip_prefix('@') {
                Some(domain) => known.domains.extend(ascii_domain(domain)),
                None if entry == "*" => known.everybody = true,
                None => known.addresses.extend(Address::parse(entry)),
            }
        }
        known
    }

    pub fn contains(&self, address: &Address) -> bool {
        self.everybody || self.names(address)
    }

    /// Whether the address or its domain stands there; `*` names nobody.
    pub fn names(&self, address: &Address) -> bool {
        self.addresses.contains(address) || self.domains.iter().any(|d| d == address.domain())
    }
}

/// A domain in lower case and ASCII, without the root's dot; `None` for what cannot be one.
pub fn ascii_domain(written: &str) -> Option<String> {
    let written = written.trim();
    let domain = to_a_label(written.strip_suffix('.').unwrap_or(written));
    let is_label =
        |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    domain.split('.').all(is_label).then(|| domain.into_owned())
}

/// Whether what is proven for the domain `proven` is proven for mail from `from`, both as [`ascii_domain`] writes them.
///
/// RFC 7489, section 3.1.1 calls two domains aligned that belong to one organisation. Which those are nobody can tell
/// without a list of all public suffixes, so this is narrower: they are the same, or one lies below the other, which is
/// no suffix that strangers share. Sisters such as `news.example.org` and `mail.example.org` are not aligned by this.
pub fn aligned(from: &str, proven: &str) -> bool {
    let below =
        |low: &str, high: &str| low.strip_suffix(high).is_some_and(|rest| rest.ends_with('.')) && !is_shared(high);
    !from.is_empty() && (from == proven || below(from, proven) || below(proven, from))
}

/// Whether two domains could belong to one organisation at all: what one registers a name as is the same.
pub fn related(one: &str, other: &str) -> bool {
    registered(one) == registered(other)
}

/// The last two labels of a domain, and the last three where strangers share the last two.
fn registered(domain: &str) -> &str {
    let last = |labels: usize| domain.rmatch_indices('.').nth(labels - 1).map_or(domain, |(at, _)| &domain[at + 1..]);
    let two = last(2);
    if is_shared(two) { last(3) } else { two }
}

fn is_shared(domain: &str) -> bool {
    match domain.split('.').collect::<Vec<_>>()[..] {
        [_] => true,
        [second, top] => (top.len() == 2 && SECOND_LEVEL.contains(&second)) || OTHER_SUFFIXES.contains(&domain),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_in_one_form() {
        for (written, expected) in [
            ("Ann@Example.ORG", Some("ann@example.org")),
            (" ann@example.org. ", Some("ann@example.org")),
            ("ann@bücher.example", Some("ann@xn--bcher-kva.example")),
            // The Kelvin sign is no k.
            ("\u{212a}im@example.org", Some("\u{212a}im@example.org")),
            ("a@b@example.org", Some("a@b@example.org")),
            ("ann", None),
            ("@example.org", None),
            ("ann@", None),
            ("ann@exa mple.org", None),
            ("ann@example..org", None),
            ("ann b@example.org", None),
            ("<ann@example.org", None),
            ("ann@example.org\nBcc: x", None),
        ] {
            assert_eq!(Address::parse(written).as_ref().map(Address::as_str), expected, "{written:?}");
        }
        assert_eq!(Address::parse("Dao+x+y@example.org").unwrap().untagged(), "dao@example.org");
    }

    #[test]
    fn lists_know_whole_addresses_and_whole_domains() {
        let list = |entries: &[&str]| AddressList::new(&AllowList::new(entries.iter().map(|e| (*e).into()).collect()));
        for (entries, address, expected) in [
            (&[] as &[&str], "ann@example.org", false),
            (&["*"], "ann@example.org", true),
            (&["ann@example.org"], "ANN@Example.org", true),
            (&["ann@example.org"], "joann@example.org", false),
            (&["ann@example.org"], "ann@example.org.evil.test", false),
            (&["@example.org"], "bob@example.org", true),
            (&["@example.org"], "bob@mail.example.org", false),
            (&["@example.org"], "bob@badexample.org", false),
            (&["@BÜCHER.example"], "bob@xn--bcher-kva.example", true),
            (&["example.org"], "bob@example.org", false),
            (&["", "@", "ann"], "ann@example.org", false),
        ] {
            let address = Address::parse(address).unwrap();
            assert_eq!(list(entries).contains(&address), expected, "{entries:?} {address}");
            assert_eq!(list(entries).names(&address), expected && entries != ["*"], "{entries:?} {address}");
        }
    }

    #[test]
    fn domains_of_one_owner_are_aligned() {
        for (from, proven, expected) in [
            ("example.org", "example.org", true),
            ("example.org", "mail.example.org", true),
            ("news.example.org", "example.org", true),
            ("example.org", "badexample.org", false),
            ("example.org", "example.org.evil.test", false),
            ("news.example.org", "mail.example.org", false),
            ("example.org", "org", false),
            ("one.co.uk", "co.uk", false),
            ("co.uk", "evil.co.uk", false),
            ("one.com.cn", "two.com.cn", false),
            ("mail.one.com.cn", "one.com.cn", true),
            ("", "", false),
        ] {
            assert_eq!(aligned(from, proven), expected, "{from} {proven}");
            assert!(!expected || related(from, proven), "{from} {proven}: what is aligned is related");
        }
    }

    #[test]
    fn strangers_below_one_suffix_are_not_related() {
        for (one, other, expected) in [
            ("news.example.org", "mail.example.org", true),
            ("example.org", "example.net", false),
            ("bank.com.cn", "evil.com.cn", false),
            ("mail.bank.com.cn", "bank.com.cn", true),
            ("bank.com.cn", "com.cn", false),
            ("one.co.uk", "two.co.uk", false),
            ("one.eu.org", "two.eu.org", false),
            ("localhost", "localhost", true),
        ] {
            assert_eq!(related(one, other), expected, "{one} {other}");
        }
    }
}
