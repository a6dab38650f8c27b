//! Decodes Content-Transfer-Encodings (RFC 2045, section 6) and skips invalid characters. Own code for all but base64,
//! because mail-parser rejects the whole text at an invalid character.

use mail_parser::decoders::base64::base64_decode;

/// The encoding of a part's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferEncoding {
    Identity,
    Base64,
    QuotedPrintable,
}

impl TransferEncoding {
    /// Parses the field's value.
    pub fn parse(value: &str) -> Self {
        let word = value.trim().split([';', ' ', '(']).next().unwrap_or_default();
        if word.eq_ignore_ascii_case("base64") {
            Self::Base64
        } else if word.eq_ignore_ascii_case("quoted-printable") {
            Self::QuotedPrintable
        } else {
            Self::Identity
        }
    }

    /// Decodes to at most `max` bytes.
    pub fn decode(self, bytes: &[u8], max: usize) -> Vec<u8> {
        match self {
            Self::Identity => bytes[..bytes.len().min(max)].to_vec(),
            Self::Base64 => decode_base64(bytes, max),
            Self::QuotedPrintable => decode_quoted_printable(bytes, max),
        }
    }

    /// Returns the decoded size without decoding; for faulty text, an upper bound.
    pub fn decoded_size(self, bytes: &[u8]) -> usize {
        match self {
            Self::Base64 => bytes.iter().filter(|byte| is_base64(**byte)).count() * 3 / 4,
            Self::Identity | Self::QuotedPrintable => bytes.len(),
        }
    }
}

/// Decodes base64 to at most `max` bytes. A `=` ends a group; another group may follow.
pub fn decode_base64(bytes: &[u8], max: usize) -> Vec<u8> {
    // Each group of four characters yields at least one byte.
    let bytes = &bytes[..bytes.len().min(max.saturating_mul(4))];
    let mut decoded = base64_decode(bytes).unwrap_or_else(|| {
        let valid: Vec<u8> = bytes.iter().copied().filter(|byte| is_base64(*byte) || *byte == b'=').collect();
        base64_decode(&valid).unwrap_or_default()
    });
    decoded.truncate(max);
    decoded
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

/// Decodes quoted-printable to at most `max` bytes. Joins soft line breaks and drops white space at line ends.
fn decode_quoted_printable(bytes: &[u8], max: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().min(max));
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if out.len() >= max {
            break;
        }
        let text = line.trim_ascii_end();
        let ends = line.len() > text.len() && line.ends_with(b"\n");
        let continued = text.strip_suffix(b"=");
        out.extend(decode_hex_escapes(continued.unwrap_or(text), b'='));
        if ends && continued.is_none() {
            out.push(b'\n');
        }
    }
    out.truncate(max);
    out
}

/// Replaces `escape` and two hexadecimal digits with their byte; keeps everything else.
pub fn decode_hex_escapes(text: &[u8], escape: u8) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match (digit(at + 1), digit(at + 2)) {
            (Some(high), Some(low)) if *byte == escape => {
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_decoded_despite_errors() {
        use TransferEncoding::{Base64, Identity, QuotedPrintable};
        let table: &[(&str, TransferEncoding, &str, &str)] = &[
            ("8bit", Identity, "a=41", "a=41"),
            ("BASE64 ", Base64, "aGVs\r\nbG8=\r\n", "hello"),
            ("base64", Base64, "aGVsbG8", "hello"),
            ("base64", Base64, "aGVs!bG8=aGk=", "hellohi"),
            ("Quoted-Printable", QuotedPrintable, "a=3Db =\r\nc  \r\nd=ZZ=4", "a=b c\nd=ZZ=4"),
            ("quoted-printable", QuotedPrintable, "caf=c3=a9\n", "café\n"),
        ];
        for (name, transfer, bytes, expected) in table {
            assert_eq!(TransferEncoding::parse(name), *transfer);
            assert_eq!(String::from_utf8_lossy(&transfer.decode(bytes.as_bytes(), 99)), *expected, "{bytes:?}");
            assert!(transfer.decode(bytes.as_bytes(), 3).len() <= 3);
            let size = transfer.decoded_size(bytes.as_bytes());
            assert!(size >= expected.len() && (*transfer != Base64 || size == expected.len()), "{bytes:?}: {size}");
        }
    }
}
