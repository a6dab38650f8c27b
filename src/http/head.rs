//! The head of a request, validated before hyper parses it, and the framing of its body, which decides where the next head begins.
//!
//! hyper 1 offers no hook for this. It drops a Content-Length beside a Transfer-Encoding and merges equal ones, so that no service
//! can refuse them, and it answers a head that it cannot parse without a body. This module refuses every head that two programs may
//! read differently, so that no request is smuggled past a proxy in front of this server: RFC 9112, sections 2.2 (lines), 3.2
//! (`Host`), 6.1 (`Transfer-Encoding`), 6.3 (length of the body) and 11.2.

use std::borrow::Cow;

use axum::http::Uri;
use daoyou_channels::HttpError;

use super::error;

/// The maximum number of header fields of one request.
const MAX_FIELDS: usize = 100;

/// Finds the end of the head at the start of `bytes`, after its blank line. `scanned` is the position that the last call reached,
/// and is updated, so that a head which arrives byte by byte is not scanned again for each byte.
pub fn find_end(bytes: &[u8], scanned: &mut usize) -> Option<usize> {
    let mut from = scanned.saturating_sub(3);
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == b'\n') {
        let next = from + at + 1;
        match (bytes.get(next), bytes.get(next + 1)) {
            (Some(b'\n'), _) => return Some(next + 1),
            (Some(b'\r'), Some(b'\n')) => return Some(next + 2),
            _ => from = next,
        }
    }
    *scanned = bytes.len();
    None
}

/// Validates the complete head of a request, and returns the framing of its body.
///
/// # Errors
/// 400 or 431; the connection cannot be used any more.
pub fn validate_head(bytes: &[u8]) -> Result<BodyFraming, HttpError> {
    // RFC 9112, section 2.2, allows a recipient to accept a bare LF as the end of a line, and httparse does; other programs do not.
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    if let Some(line) = lines.position(|line| !line.ends_with(b"\r\n")) {
        let line = line + 1;
        return bad_request(format!("line {line} of the request's head ends with a bare LF instead of CR LF"));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return bad_request("the head of the request is incomplete"),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(error::too_many_headers(format!("the request has more than {MAX_FIELDS} header fields")));
        }
        Err(error) => return bad_request(format!("this is not an HTTP/1.1 request: {error}")),
    };
    if length != bytes.len() {
        return bad_request("the head of the request does not end at its blank line");
    }
    let (Some(target), Some(version)) = (request.path, request.version) else {
        return bad_request("the request has no request line");
    };
    if target.parse::<Uri>().is_err() {
        return bad_request("the target of the request is not a valid URI");
    }
    body_framing(request.headers, version == 0)
}

fn body_framing(fields: &[httparse::Header<'_>], is_http_10: bool) -> Result<BodyFraming, HttpError> {
    let single = |name: &str| {
        let mut values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value);
        let value = values.next();
        if values.next().is_some() { bad_request(format!("the request has more than one {name}")) } else { Ok(value) }
    };
    if single("Host")?.is_none() {
        return bad_request("the request has no Host");
    }
    match (single("Content-Length")?, single("Transfer-Encoding")?) {
        (None, None) => Ok(BodyFraming::length(0)),
        (Some(length), None) => match parse_length(length) {
            Some(length) => Ok(BodyFraming::length(length)),
            None => bad_request("Content-Length is not a number of bytes"),
        },
        (Some(_), Some(_)) => bad_request("the request has both Content-Length and Transfer-Encoding"),
        (None, Some(_)) if is_http_10 => bad_request("HTTP/1.0 has no Transfer-Encoding"),
        (None, Some(coding)) if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(BodyFraming::chunked()),
        (None, Some(_)) => bad_request("the only supported Transfer-Encoding is chunked"),
    }
}

/// Parses a number of digits only: programs read `+5`, `5, 5` and inner white space differently.
fn parse_length(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn bad_request<T>(message: impl Into<Cow<'static, str>>) -> Result<T, HttpError> {
    Err(HttpError::bad_request(message))
}

/// The maximum size, in bytes, of a chunk extension, and of all trailer fields.
const MAX_LINE: u32 = 4_096;

/// The maximum number of digits of a chunk's size; more do not fit into 64 bits.
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
    ///
    /// # Errors
    /// A chunk's size, extension, line end or trailer is malformed or too long.
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            head in "(GET|POST|\\PC{0,4}) ?(/|\\PC{0,9}) HTTP/1\\.[01]\r?\n((Host|Content-Length|Transfer-Encoding|\\PC{0,5}): ?(chunked|[0-9, ]{0,20}|\\PC{0,9})\r?\n){0,4}\r?\n",
            body in "([0-9a-fA-F]{0,2}(;x)?\r\n[a-z]{0,9}\r\n){0,4}(0\r\n\r\n)?",
        ) {
            let found = find_end(head.as_bytes(), &mut 0);
            prop_assert!(found.is_none_or(|end| end <= head.len()));
            if let Err(fault) = validate_head(head.as_bytes()) {
                prop_assert!(fault.status.is_client_error(), "{:?}", fault);
            }
            let mut framing = BodyFraming::chunked();
            if let Ok(taken) = framing.consume(body.as_bytes()) {
                prop_assert!(taken <= body.len());
                prop_assert!(framing.is_done() || taken == body.len());
            }
        }
    }

    #[test]
    fn a_head_ends_at_its_blank_line_however_it_arrives() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", Some(27)),
            ("GET / HTTP/1.1\nHost: a\n\nrest", Some(24)),
            ("GET / HTTP/1.1\r\nHost: a\r\n", None),
            ("", None),
        ] {
            let bytes = text.as_bytes();
            assert_eq!(find_end(bytes, &mut 0), expected, "{text:?}");
            let mut scanned = 0;
            let found = (0..=bytes.len()).find_map(|length| find_end(&bytes[..length], &mut scanned));
            assert_eq!(found, expected, "{text:?} byte by byte");
        }
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        let many = "X: 1\r\n".repeat(MAX_FIELDS);
        type Expected = Result<BodyFraming, (u16, &'static str)>;
        let table: &[(&str, Expected)] = &[
            ("GET / HTTP/1.1\r\nHost: a\r\n", Ok(BodyFraming::length(0))),
            ("GET /%20?a=b HTTP/1.0\r\nHost: a\r\n", Ok(BodyFraming::length(0))),
            ("POST / HTTP/1.1\r\nHost: a\r\ncontent-length:  12 \r\n", Ok(BodyFraming::length(12))),
            ("POST / HTTP/1.1\r\nHost: a\r\nTRANSFER-ENCODING: Chunked\r\n", Ok(BodyFraming::chunked())),
            ("GET / HTTP/1.1\r\n", Err((400, "no Host"))),
            ("GET / HTTP/1.0\r\n", Err((400, "no Host"))),
            ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n", Err((400, "more than one Host"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", Err((400, "both"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n", Err((400, "both"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n", Err((400, "more than one"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n", Err((400, "not a number"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n", Err((400, "not a number"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n", Err((400, "not a number"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n", Err((400, "not a number"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n", Err((400, "not a number"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n", Err((400, "chunked"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n", Err((400, "chunked"))),
            ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n", Err((400, "HTTP/1.0"))),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                Err((400, "more than one")),
            ),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n", Err((400, "invalid header name"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length\t: 1\r\n", Err((400, "invalid header name"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length\r\n", Err((400, "not an HTTP/1.1"))),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\tfolded\r\n", Err((400, "invalid header name"))),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n", Err((400, "invalid header name"))),
            ("GET / HTTP/1.1\r\n Host: a\r\n", Err((400, "invalid header name"))),
            ("GET / HTTP/1.1\r\nHost: a\rX: b\r\n", Err((400, "not an HTTP/1.1"))),
            ("GET / HTTP/1.1\r\nHost: a\r\r\n", Err((400, "not an HTTP/1.1"))),
            ("GET / HTTP/1.1\r\nHost: a\0\r\n", Err((400, "invalid header value"))),
            ("GET / HTTP/1.1\nHost: a\r\n", Err((400, "line 1 of the request's head ends with a bare LF"))),
            ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n", Err((400, "line 2"))),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: b\n", Err((400, "line 3"))),
            ("GET  / HTTP/1.1\r\nHost: a\r\n", Err((400, "not an HTTP/1.1"))),
            ("GET /<> HTTP/1.1\r\nHost: a\r\n", Err((400, "not a valid URI"))),
            ("GET / HTTP/2.0\r\nHost: a\r\n", Err((400, "not an HTTP/1.1"))),
            ("PRI * HTTP/2.0\r\n", Err((400, "not an HTTP/1.1"))),
            ("GET /\r\n", Err((400, "not an HTTP/1.1"))),
            ("\u{16}\u{3}\u{1}\r\n", Err((400, "not an HTTP/1.1"))),
            (&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}"), Err((431, "more than 100"))),
        ];
        for (text, expected) in table {
            let got = validate_head(format!("{text}\r\n").as_bytes());
            match (&got, expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{text:?}"),
                (Err(fault), Err((status, part))) => {
                    assert!(fault.status == *status && fault.message.contains(part), "{text:?}: {fault:?}");
                }
                _ => panic!("{text:?}: {got:?}, expected {expected:?}"),
            }
        }
        let broken = validate_head(b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n").unwrap_err();
        assert_eq!(broken.status, 400, "{broken:?}");
    }

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
