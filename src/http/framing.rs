//! The framing of a request's body, which decides where the body ends. The stream uses it to find the next head.

/// The most bytes of a chunk extension, and of all trailer fields.
const MAX_LINE: u32 = 4_096;

/// The most digits of a chunk's size; more do not fit into 64 bits.
const MAX_DIGITS: u32 = 15;

/// The parsing state of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyFraming(FramingState);

#[derive(Clone, Debug, PartialEq, Eq)]
enum FramingState {
    /// The number of bytes that are still to come.
    Length(u64),
    Chunked(ChunkState),
}

/// The state of a chunked body (RFC 9112, section 7.1). Stricter than the RFC: lines end with CR LF, and only an extension
/// may follow the size. `httparse::parse_chunk_size` needs the whole line at once.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ChunkState {
    Size {
        value: u64,
        digits: u32,
    },
    Extension {
        value: u64,
        length: u32,
    },
    SizeEnd {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// At the start of a trailer field or of the final blank line.
    Trailer {
        length: u32,
    },
    TrailerText {
        length: u32,
    },
    TrailerEnd {
        length: u32,
    },
    LastLf,
    Done,
}

/// The chunks of a body are invalid.
#[derive(Debug, PartialEq, Eq)]
pub struct MalformedChunk;

impl BodyFraming {
    pub fn length(bytes: u64) -> Self {
        Self(FramingState::Length(bytes))
    }

    pub fn chunked() -> Self {
        Self(FramingState::Chunked(ChunkState::Size { value: 0, digits: 0 }))
    }

    /// Returns true if the whole body was read.
    pub fn is_done(&self) -> bool {
        matches!(self.0, FramingState::Length(0) | FramingState::Chunked(ChunkState::Done))
    }

    /// Parses `bytes`, and returns the number of them that belong to the body.
    pub fn consume(&mut self, bytes: &[u8]) -> Result<usize, MalformedChunk> {
        let chunk = match &mut self.0 {
            FramingState::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                return Ok(taken);
            }
            FramingState::Chunked(chunk) => chunk,
        };
        let mut at = 0;
        while at < bytes.len() && *chunk != ChunkState::Done {
            if let ChunkState::Data { left } = chunk {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                *left -= taken as u64;
                at += taken;
                if *left == 0 {
                    *chunk = ChunkState::DataCr;
                }
            } else {
                *chunk = chunk.step(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }
}

impl ChunkState {
    fn step(&self, byte: u8) -> Result<Self, MalformedChunk> {
        Ok(match (self, byte) {
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() && *digits < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).ok_or(MalformedChunk)?;
                Self::Size { value: (value << 4) | u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { value, digits: 1.. }, b';') => Self::Extension { value: *value, length: 0 },
            (Self::Size { value, digits: 1.. } | Self::Extension { value, .. }, b'\r') => {
                Self::SizeEnd { value: *value }
            }
            (Self::Extension { value, length }, _) if byte != b'\n' && *length < MAX_LINE => {
                Self::Extension { value: *value, length: length + 1 }
            }
            (Self::SizeEnd { value: 0 }, b'\n') => Self::Trailer { length: 0 },
            (Self::SizeEnd { value }, b'\n') => Self::Data { left: *value },
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Size { value: 0, digits: 0 },
            (Self::Trailer { .. }, b'\r') => Self::LastLf,
            (Self::LastLf, b'\n') => Self::Done,
            (Self::TrailerText { length }, b'\r') => Self::TrailerEnd { length: *length },
            (Self::Trailer { length } | Self::TrailerText { length }, _) if byte != b'\n' && *length < MAX_LINE => {
                Self::TrailerText { length: length + 1 }
            }
            (Self::TrailerEnd { length }, b'\n') => Self::Trailer { length: *length },
            _ => return Err(MalformedChunk),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_ends_where_it_ends_however_it_arrives() {
        let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(5_000));
        let table: &[(&str, Option<usize>)] = &[
            ("0\r\n\r\nGET", Some(5)),
            ("3\r\nabc\r\n0\r\n\r\nGET", Some(13)),
            ("A;name=\"v\"\r\n0123456789\r\n00\r\nX: 1\r\nY: 2\r\n\r\n", Some(42)),
            ("3\r\nabcd\r\n0\r\n\r\n", None),
            ("\r\n", None),
            ("3\nabc\r\n", None),
            ("3 \r\nabc\r\n", None),
            ("-3\r\nabc", None),
            ("0x3\r\nabc", None),
            ("ffffffffffffffff\r\n", None),
            ("3;\nabc\r\n", None),
            ("0\r\nX: 1\n\r\n", None),
            (&long, None),
        ];
        for (text, expected) in table {
            let mut whole = BodyFraming::chunked();
            let got = whole.consume(text.as_bytes()).ok().filter(|_| whole.is_done());
            assert_eq!(got, *expected, "{text:.40?}");
            let mut split = BodyFraming::chunked();
            let mut used = 0;
            let ends = text.bytes().try_for_each(|byte| split.consume(&[byte]).map(|one| used += one));
            assert_eq!(ends.ok().filter(|()| split.is_done()).map(|()| used), *expected, "{text:.40?} byte by byte");
        }
    }

    #[test]
    fn a_body_of_known_length_takes_no_more() {
        let mut body = BodyFraming::length(5);
        assert_eq!(body.consume(b"abc"), Ok(3));
        assert!(!body.is_done());
        assert_eq!(body.consume(b"deGET"), Ok(2));
        assert!(body.is_done());
    }
}
