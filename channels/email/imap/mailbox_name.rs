//! Names of mailboxes as IMAP writes them.

use base64::Engine;
use base64::alphabet::IMAP_MUTF7;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::NO_PAD;

/// Base64 with `,` in place of `/`, and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(&IMAP_MUTF7, NO_PAD);

/// `name` in modified UTF-7 (RFC 3501, section 5.1.3): `测试` is `&bUuL1Q-`.
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    let mut shifted: Vec<u8> = Vec::new();
    for c in name.chars() {
        if matches!(c, ' '..='~') {
            unshift(&mut shifted, &mut encoded);
            encoded.push(c);
            if c == '&' {
                encoded.push('-');
            }
        } else {
            let mut units = [0; 2];
            shifted.extend(c.encode_utf16(&mut units).iter().flat_map(|unit| unit.to_be_bytes()));
        }
    }
    unshift(&mut shifted, &mut encoded);
    encoded
}

/// The inside of a quoted string (RFC 3501, section 9, `quoted`).
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn unshift(shifted: &mut Vec<u8>, encoded: &mut String) {
    if !shifted.is_empty() {
        encoded.push('&');
        BASE64.encode_string(&*shifted, encoded);
        encoded.push('-');
        shifted.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_in_modified_utf_7() {
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
}
