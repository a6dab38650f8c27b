//! Content-Transfer-Encodings (RFC 2045, section 6), read with patience: what is no part of the encoding is passed over.

/// How a part's bytes were made fit for transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    Identity,
    Base64,
    QuotedPrintable,
}

impl Transfer {
    /// Reads the field's value.
    pub fn of(value: &str) -> Self {
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
            Self::Base64 => base64(bytes, max),
            Self::QuotedPrintable => quoted_printable(bytes, max),
        }
    }

    /// How many bytes [`Transfer::decode`] would give, without making them. For quoted-printable it is a bound.
    pub fn decoded_size(self, bytes: &[u8]) -> usize {
        match self {
            Self::Base64 => bytes.iter().filter(|byte| SEXTETS[usize::from(**byte)] < 64).count() / 4 * 3 + 2,
            Self::Identity | Self::QuotedPrintable => bytes.len(),
        }
    }
}

/// Base64; a `=` ends a group, after which another may begin.
pub fn base64(bytes: &[u8], max: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity((bytes.len() / 4 * 3 + 3).min(max));
    let (mut group, mut count) = (0_u32, 0_u8);
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        if out.len() >= max {
            break;
        }
        // Whole groups are nearly all there is.
        if count == 0
            && let Some(([a, b, c, d], after)) = rest.split_first_chunk()
        {
            let [a, b, c, d] = [a, b, c, d].map(|byte| SEXTETS[usize::from(*byte)]);
            if (a | b | c | d) < 64 {
                out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]);
                rest = after;
                continue;
            }
        }
        rest = after;
        match SEXTETS[usize::from(*byte)] {
            value @ ..64 => {
                group = group << 6 | u32::from(value);
                count += 1;
                if count == 4 {
                    out.extend_from_slice(&group.to_be_bytes()[1..]);
                    (group, count) = (0, 0);
                }
            }
            _ if *byte == b'=' => {
                end_group(&mut out, group, count);
                (group, count) = (0, 0);
            }
            _ => {}
        }
    }
    end_group(&mut out, group, count);
    out.truncate(max);
    out
}

fn end_group(out: &mut Vec<u8>, group: u32, count: u8) {
    match count {
        2 => out.push((group >> 4) as u8),
        3 => out.extend_from_slice(&[(group >> 10) as u8, (group >> 2) as u8]),
        _ => {}
    }
}

/// What each byte stands for (RFC 4648, section 4); 255 for nothing.
const SEXTETS: [u8; 256] = {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut table = [u8::MAX; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        table[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    table
};

/// Quoted-printable: soft line breaks joined, white space at the ends of lines dropped.
fn quoted_printable(bytes: &[u8], max: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().min(max));
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if out.len() >= max {
            break;
        }
        let text = line.trim_ascii_end();
        let ends = line.len() > text.len() && line.ends_with(b"\n");
        match text.strip_suffix(b"=") {
            Some(text) => out.extend(hex_escapes(text, b'=')),
            None => {
                out.extend(hex_escapes(text, b'='));
                if ends {
                    out.push(b'\n');
                }
            }
        }
    }
    out.truncate(max);
    out
}

/// Replaces `escape` and two hexadecimal digits by the byte they name; anything else stays as it is.
pub fn hex_escapes(text: &[u8], escape: u8) -> Vec<u8> {
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
    fn encodings_are_read_with_patience() {
        use Transfer::{Base64, Identity, QuotedPrintable};
        let table: &[(&str, Transfer, &str, &str)] = &[
            ("8bit", Identity, "a=41", "a=41"),
            ("BASE64 ", Base64, "aGVs\r\nbG8=\r\n", "hello"),
            ("base64", Base64, "aGVsbG8", "hello"),
            ("base64", Base64, "aGVs!bG8=aGk=", "hellohi"),
            ("Quoted-Printable", QuotedPrintable, "a=3Db =\r\nc  \r\nd=ZZ=4", "a=b c\nd=ZZ=4"),
            ("quoted-printable", QuotedPrintable, "caf=c3=a9\n", "café\n"),
        ];
        for (name, transfer, bytes, expected) in table {
            assert_eq!(Transfer::of(name), *transfer);
            assert_eq!(String::from_utf8_lossy(&transfer.decode(bytes.as_bytes(), 99)), *expected, "{bytes:?}");
            assert!(transfer.decode(bytes.as_bytes(), 3).len() <= 3);
            assert!(transfer.decoded_size(bytes.as_bytes()) + 3 >= expected.len());
        }
    }
}
