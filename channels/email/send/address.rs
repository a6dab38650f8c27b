//! Addresses as a mail's header and SMTP want them.

use lettre::Address;
use lettre::message::Mailbox;

/// The longest name beside an address, in characters.
const MAX_NAME: usize = 100;

/// Reads one address as a header writes it: `Name <local@domain>`, `"Name" <local@domain>` or `local@domain`. A domain
/// beyond ASCII is written in its ASCII form (RFC 5891), so that only the local part can ask for SMTPUTF8.
///
/// # Errors
///
/// One line that says what it is not.
pub fn mailbox(text: &str) -> Result<Mailbox, String> {
    let text = one_line(text);
    let (name, address) = match text.rsplit_once('<') {
        Some((name, address)) => (name.trim(), address.split('>').next().unwrap_or_default().trim()),
        None => ("", text.as_str()),
    };
    let name: String = unquote(name).chars().take(MAX_NAME).collect();
    Ok(Mailbox::new((!name.is_empty()).then_some(name), self::address(address)?))
}

/// The ASCII form of a domain (RFC 5891); `None` where it is none.
pub fn ascii_domain(domain: &str) -> Option<String> {
    if domain.is_ascii() {
        return Some(domain.to_ascii_lowercase());
    }
    let url = reqwest::Url::parse(&format!("http://{domain}/")).ok()?;
    url.host_str().filter(|host| host.is_ascii() && url.path() == "/").map(str::to_owned)
}

/// Whether two addresses are one to every server that is in use: case is the same, though RFC 5321, section 2.4, would
/// let a local part depend on it.
pub fn same(one: &Address, other: &Address) -> bool {
    let (one, other): (&str, &str) = (one.as_ref(), other.as_ref());
    one.to_lowercase() == other.to_lowercase()
}

/// Text without line breaks and controls, each run of white space one space: nothing that could begin another header
/// field.
pub fn one_line(text: &str) -> String {
    let visible: String = text.chars().map(|c| if c.is_control() || is_hidden(c) { ' ' } else { c }).collect();
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Marks that turn or break lines without being controls: a file called `gpj.exe` is not to be shown as `exe.jpg`.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn address(text: &str) -> Result<Address, String> {
    let wrong = || format!("{:?} is not an e-mail address such as \"name@example.org\"", shortened(text));
    let (local, domain) = text.rsplit_once('@').ok_or_else(wrong)?;
    let domain = ascii_domain(domain).ok_or_else(wrong)?;
    Address::new(local, domain).map_err(|_| wrong())
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The name inside a quoted string (RFC 5322, section 3.2.4).
fn unquote(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return name.to_owned();
    };
    let mut plain = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == '\\' { plain.extend(chars.next()) } else { plain.push(c) }
    }
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_headers_write_them() {
        for (text, name, address) in [
            ("ann@example.org", None, "ann@example.org"),
            ("<ann@Example.ORG>", None, "ann@example.org"),
            ("Ann <ann@example.org>", Some("Ann"), "ann@example.org"),
            ("\"Doe, \\\"Ann\\\"\" <ann@example.org>", Some("Doe, \"Ann\""), "ann@example.org"),
            ("Ann <3 B <ann@example.org>", Some("Ann <3 B"), "ann@example.org"),
            ("王 伟 <wei@例子.测试>", Some("王 伟"), "wei@xn--fsqu00a.xn--0zwm56d"),
            ("Ann\r\nBcc: eve@example.org <ann@example.org>", Some("Ann Bcc: eve@example.org"), "ann@example.org"),
            ("用户@example.org", None, "用户@example.org"),
        ] {
            let mailbox = mailbox(text).unwrap();
            assert_eq!((mailbox.name.as_deref(), mailbox.email.as_ref()), (name, address), "{text}");
        }
        for wrong in ["", "ann", "@example.org", "ann@", "a b@example.org", "ann@exa mple.org", "ann@例/子.测试"] {
            assert!(mailbox(wrong).is_err(), "{wrong}");
        }
    }
}
