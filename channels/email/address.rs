//! E-mail addresses, in the form in which they are compared and in the form of the settings.

use std::fmt;

use mail_auth::common::to_a_label;

use crate::trust::AllowList;

/// The longest address in the settings (RFC 5321, section 4.5.3.1.3), in bytes.
const MAX_SETTING: usize = 254;
/// The longest local part (RFC 5321, section 4.5.3.1.1), in bytes.
const MAX_LOCAL: usize = 64;
/// The longest domain (RFC 5321, section 4.5.3.1.2), in bytes.
const MAX_DOMAIN: usize = 255;

/// `local@domain` in the form in which addresses are compared: in lower case, the domain in ASCII (IDNA, RFC 5891).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EmailAddress {
    plain: String,
    at: usize,
}

impl EmailAddress {
    /// Parses an address. Returns `None` if the name or the domain is missing, or for a form to which no reply can be sent:
    /// with a quoted name, white space, a delimiter, a dot at an end of the name or beside another one, or a part that is
    /// too long.
    pub fn parse(written: &str) -> Option<Self> {
        let (local, domain) = written.trim().rsplit_once('@')?;
        let domain = ascii_domain(domain)?;
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',' | ';' | '"');
        let has_empty_part = local.split('.').any(str::is_empty);
        if has_empty_part || local.chars().any(is_odd) || local.len() > MAX_LOCAL || domain.len() > MAX_DOMAIN {
            return None;
        }
        // ASCII only: two other letters with the same lower case are still different names.
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

    /// Returns the address without the tag after a `+` (RFC 5233).
    pub fn untagged(&self) -> String {
        let name = self.local().split_once('+').map_or(self.local(), |(name, _)| name);
        format!("{name}@{}", self.domain())
    }
}

impl fmt::Display for EmailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain)
    }
}

/// A list of whole addresses, of `@domain`s (without their subdomains), and of `*` (everybody).
#[derive(Clone, Debug, Default)]
pub struct AddressList {
    everybody: bool,
    addresses: Vec<EmailAddress>,
    domains: Vec<String>,
}

impl AddressList {
    pub fn new(list: &AllowList) -> Self {
        let mut known = Self::default();
        for entry in list.entries() {
            match entry.strip_prefix('@') {
                Some(domain) => known.domains.extend(ascii_domain(domain)),
                None if entry == "*" => known.everybody = true,
                None => known.addresses.extend(EmailAddress::parse(entry)),
            }
        }
        known
    }

    pub fn contains(&self, address: &EmailAddress) -> bool {
        self.everybody || self.names(address)
    }

    /// Returns true if the list contains the address or its domain; `*` does not count.
    pub fn names(&self, address: &EmailAddress) -> bool {
        self.addresses.contains(address) || self.domains.iter().any(|d| d == address.domain())
    }
}

/// Returns a domain in lower case and ASCII, without a final dot; `None` if the text is not a domain.
pub fn ascii_domain(written: &str) -> Option<String> {
    let written = written.trim();
    let domain = to_a_label(written.strip_suffix('.').unwrap_or(written));
    let is_label =
        |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    domain.split('.').all(is_label).then(|| domain.into_owned())
}

/// Returns true for one plain address, `local@domain`, without a name, brackets or comments.
pub fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    // RFC 5322 permits `*`, but who writes it means a pattern, which would match nobody.
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !"<>()[],;:\\\"*".contains(c);
    text.len() <= MAX_SETTING
        && EmailAddress::parse(text).is_some()
        && !local.contains('@')
        && local.chars().all(plain)
        && is_domain(domain)
}

/// Returns true for the name of a domain or a host. The name may contain characters beyond ASCII.
pub fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_') || (!c.is_ascii() && !c.is_whitespace());
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(inner)
    };
    text.len() <= MAX_SETTING && text.split('.').all(label)
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
            // The Kelvin sign is not a `k`.
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
            ("\"a b\"@example.org", None),
            (".ann@example.org", None),
            ("ann.@example.org", None),
            ("a..n@example.org", None),
        ] {
            assert_eq!(EmailAddress::parse(written).as_ref().map(EmailAddress::as_str), expected, "{written:?}");
        }
        for (length, expected) in [(64, true), (65, false)] {
            assert_eq!(EmailAddress::parse(&format!("{}@example.org", "a".repeat(length))).is_some(), expected);
        }
        assert_eq!(EmailAddress::parse("Dao+x+y@example.org").unwrap().untagged(), "dao@example.org");
    }

    #[test]
    fn lists_match_whole_addresses_and_whole_domains() {
        let list = |entries: &[&str]| AddressList::new(&AllowList::new(entries.iter().copied()));
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
            let address = EmailAddress::parse(address).unwrap();
            assert_eq!(list(entries).contains(&address), expected, "{entries:?} {address}");
            assert_eq!(list(entries).names(&address), expected && entries != ["*"], "{entries:?} {address}");
        }
    }

    #[test]
    fn an_address_in_the_settings_is_one_plain_address() {
        let table = [
            ("me@example.org", true),
            ("first.last+tag@mail.example.co.uk", true),
            ("o'brien@example.org", true),
            ("me@localhost", true),
            ("我@例子.中国", true),
            ("", false),
            ("me", false),
            ("@example.org", false),
            ("*@example.org", false),
            (".me@example.org", false),
            ("me@", false),
            ("me@example..org", false),
            ("me@-example.org", false),
            ("a@b@example.org", false),
            ("Me <me@example.org>", false),
            ("me@example.org, you@example.org", false),
            ("me @example.org", false),
            ("me@example.org\r\nBcc: x@y.z", false),
            ("email:me@example.org", false),
        ];
        for (text, expected) in table {
            assert_eq!(is_address(text), expected, "{text:?}");
        }
    }
}
