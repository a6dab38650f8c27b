//! Decodes the bodies of responses (RFC 9110, section 8.4.1). The decoders of reqwest would need packages of their own.

use std::io::{self, Read};

use flate2::bufread::GzDecoder;
use flate2::read::{DeflateDecoder, ZlibDecoder};
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// The first bytes of a gzip member (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How a server has compressed a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentEncoding {
    Identity,
    Gzip,
    Deflate,
}

impl ContentEncoding {
    /// Returns the encoding that the headers of a response name.
    ///
    /// # Errors
    /// Returns the names of encodings that are not decoded.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, String> {
        let values = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let listed = values.collect::<Vec<_>>().join(",").to_ascii_lowercase();
        let names = listed.split(',').map(str::trim).filter(|name| !matches!(*name, "" | "identity"));
        match names.collect::<Vec<_>>()[..] {
            [] => Ok(Self::Identity),
            ["gzip" | "x-gzip"] => Ok(Self::Gzip),
            ["deflate"] => Ok(Self::Deflate),
            ref others => Err(others.join(", ")),
        }
    }

    /// Decodes at most `limit` bytes of a body. `is_cut` is true if `body` is only the beginning of the body. Returns the decoded
    /// bytes, and whether they are only the beginning.
    ///
    /// # Errors
    /// The body is not in this encoding, or ends too early.
    pub(super) fn decode(self, body: Vec<u8>, is_cut: bool, limit: usize) -> io::Result<(Vec<u8>, bool)> {
        let mut decoded = Vec::new();
        // One byte more shows that there is more.
        let most = limit as u64 + 1;
        let read = match (self, body.first()) {
            (Self::Identity, _) | (_, None) => return Ok((body, is_cut)),
            (Self::Gzip, _) => gunzip(&body, most, &mut decoded),
            // The method of the zlib header. Some servers leave out that header (RFC 9110, section 8.4.1.2).
            (Self::Deflate, Some(first)) if first & 0x0f == 8 => {
                ZlibDecoder::new(&body[..]).take(most).read_to_end(&mut decoded).map(drop)
            }
            (Self::Deflate, _) => DeflateDecoder::new(&body[..]).take(most).read_to_end(&mut decoded).map(drop),
        };
        let is_longer = decoded.len() > limit;
        decoded.truncate(limit);
        match read {
            Err(error) if !(is_cut && error.kind() == io::ErrorKind::UnexpectedEof) => Err(error),
            _ => Ok((decoded, is_cut || is_longer)),
        }
    }
}

/// Decodes the members of a gzip body, at most `most` bytes. Bytes behind the last member are ignored, as browsers do.
fn gunzip(mut body: &[u8], most: u64, decoded: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut member = GzDecoder::new(body);
        member.by_ref().take(most - decoded.len() as u64).read_to_end(decoded)?;
        body = member.into_inner();
        if decoded.len() as u64 == most || !body.starts_with(&GZIP_MAGIC) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_headers_name_an_encoding_that_is_known_or_not() {
        for (values, expected) in [
            (&[][..], Ok(ContentEncoding::Identity)),
            (&["identity"], Ok(ContentEncoding::Identity)),
            (&["GZIP"], Ok(ContentEncoding::Gzip)),
            (&[" x-gzip , identity"], Ok(ContentEncoding::Gzip)),
            (&["deflate"], Ok(ContentEncoding::Deflate)),
            (&["br"], Err("br")),
            (&["zstd"], Err("zstd")),
            (&["deflate", "gzip"], Err("deflate, gzip")),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, value.parse().unwrap());
            }
            assert_eq!(ContentEncoding::of(&headers), expected.map_err(str::to_owned), "{values:?}");
        }
    }

    #[test]
    fn bodies_are_decoded_and_damaged_ones_are_refused() {
        let text = "道友，喝茶。".repeat(100).into_bytes();
        let packed = gzip(&text);
        let (mut zlib, mut deflate) =
            (ZlibEncoder::new(Vec::new(), Compression::fast()), DeflateEncoder::new(Vec::new(), Compression::best()));
        zlib.write_all(&text).unwrap();
        deflate.write_all(&text).unwrap();
        let (zlib, deflate) = (zlib.finish().unwrap(), deflate.finish().unwrap());
        let two = [gzip(&text[..50]), gzip(&text[50..])].concat();
        for (encoding, body) in [
            (ContentEncoding::Identity, text.clone()),
            (ContentEncoding::Gzip, packed.clone()),
            (ContentEncoding::Gzip, [&two, &b"\0\0<!-- served by x -->"[..]].concat()),
            (ContentEncoding::Gzip, two),
            (ContentEncoding::Deflate, zlib.clone()),
            (ContentEncoding::Deflate, deflate.clone()),
        ] {
            assert_eq!(encoding.decode(body, false, text.len()).unwrap(), (text.clone(), false), "{encoding:?}");
        }
        assert_eq!(ContentEncoding::Gzip.decode(Vec::new(), false, 9).unwrap(), (Vec::new(), false));
        for (encoding, body) in
            [(ContentEncoding::Gzip, packed), (ContentEncoding::Deflate, zlib), (ContentEncoding::Deflate, deflate)]
        {
            let part = body[..body.len() / 2].to_vec();
            let error = encoding.decode(part.clone(), false, 9_999).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{encoding:?}");
            let (begin, is_cut) = encoding.decode(part, true, 9_999).unwrap();
            assert!(is_cut && text.starts_with(&begin), "{encoding:?} {begin:?}");
        }
        for encoding in [ContentEncoding::Gzip, ContentEncoding::Deflate] {
            assert!(encoding.decode(b"<html>plain</html>".to_vec(), true, 9_999).is_err(), "{encoding:?}");
        }
    }

    #[test]
    fn the_limit_holds_for_the_decoded_body() {
        let bomb = gzip(&gzip(&vec![0; 20_000_000]));
        assert!(bomb.len() < 1_000, "{}", bomb.len());
        let (inner, is_cut) = ContentEncoding::Gzip.decode(bomb, false, 100_000).unwrap();
        assert!(!is_cut, "the body has one encoding");
        let (decoded, is_cut) = ContentEncoding::Gzip.decode(inner, false, 1_000).unwrap();
        assert_eq!((decoded.len(), decoded.capacity() < 10_000, is_cut), (1_000, true, true));
    }
}
