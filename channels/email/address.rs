//! What is taken for an address where one is written into the settings.

/// The longest address (RFC 5321, section 4.5.3.1.3), in bytes.
const MOST_BYTES: usize = 254;

/// Whether `text` is one plain address, `local@domain`: without a name, brackets or comments, as people write it.
pub fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !"<>()[],;:\\\"".contains(c);
    text.len() <= MOST_BYTES
        && !local.is_empty()
        && !local.contains('@')
        && local.chars().all(plain)
        && is_domain(domain)
}

/// Whether `text` is the name of a domain or a host, also one that is not ASCII.
pub fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_') || (!c.is_ascii() && !c.is_whitespace());
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(inner)
    };
    text.len() <= MOST_BYTES && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_and_plain() {
        let table = [
            ("me@example.org", true),
            ("first.last+tag@mail.example.co.uk", true),
            ("o'brien@example.org", true),
            ("me@localhost", true),
            ("我@例子.中国", true),
            ("", false),
            ("me", false),
            ("@example.org", false),
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
