//! Mailbox names in IMAP syntax.

use base64::Engine;
use base64::alphabet::IMAP_MUTF7;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::NO_PAD;

/// Base64 with `,` instead of `/`, without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(&IMAP_MUTF7, NO_PAD);

/// Quotes `mailbox` for a command.
pub fn quote(mailbox: &str) -> String {
    format!("\"{}\"", escape(&encode(mailbox)))
}

/// Encodes `name` in modified UTF-7 (RFC 3501, section 5.1.3): `测试` becomes `&bUuL1Q-`.
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    let mut units: Vec<u8> = Vec::new();
    for c in name.chars() {
        if matches!(c, ' '..='~') {
            flush_base64(&mut units, &mut encoded);
            encoded.push(c);
            if c == '&' {
                encoded.push('-');
            }
        } else {
            let mut buffer = [0; 2];
            units.extend(c.encode_utf16(&mut buffer).iter().flat_map(|unit| unit.to_be_bytes()));
        }
    }
    flush_base64(&mut units, &mut encoded);
    encoded
}

/// Escapes the content of a quoted string (RFC 3501, section 9, `quoted`).
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn flush_base64(units: &mut Vec<u8>, encoded: &mut String) {
    if !units.is_empty() {
        encoded.push('&');
        BASE64.encode_string(&*units, encoded);
        encoded.push('-');
        units.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_in_modified_utf_7() {
        for (name, wanted) in [
            ("INBOX", "INBOX"),
            ("测试", "&bUuL1Q-"),
            ("Entwürfe", "Entw&APw-rfe"),
            ("R&D", "R&-D"),
            ("~peter/mail/台北/日本語", "~peter/mail/&U,BTFw-/&ZeVnLIqe-"),
            ("a\u{1F600}", "a&2D3eAA-"),
            ("a\r\nb", "a&AA0ACg-b"),
        ] {
            assert_eq!(encode(name), wanted);
        }
    }

    #[test]
    fn names_are_quoted() {
        for (name, wanted) in [("INBOX", r#""INBOX""#), ("a\"b\\c", r#""a\"b\\c""#), ("测试", r#""&bUuL1Q-""#)] {
            assert_eq!(quote(name), wanted);
        }
    }
}
