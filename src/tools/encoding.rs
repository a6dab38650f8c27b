//! Detects the encoding of texts: by a byte order mark, by zeros in every other byte, or by a guess.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, GB18030, GBK, UTF_8, UTF_16BE, UTF_16LE};

/// UTF-16 without a byte order mark is recognized if at least one in this many code units has a zero byte.
const ZERO_SHARE: usize = 4;
/// A text with invalid bytes counts as UTF-8 if it has more than this many multi-byte characters for each fault.
const MOSTLY: usize = 8;
/// The byte order marks of UTF-32, which is not supported.
const UTF_32_MARKS: [&[u8]; 2] = [b"\xff\xfe\0\0", b"\0\0\xfe\xff"];

/// The encoding of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextEncoding {
    pub encoding: &'static Encoding,
    /// The length of the byte order mark, in bytes.
    pub mark: usize,
}

impl TextEncoding {
    /// Detects the encoding of a text from its first bytes; `None` if they are not text. `is_whole` is true if the text has no
    /// further bytes.
    pub fn detect(start: &[u8], is_whole: bool) -> Option<Self> {
        if UTF_32_MARKS.iter().any(|mark| start.starts_with(mark)) {
            return None;
        }
        if let Some((encoding, mark)) = Encoding::for_bom(start) {
            return Some(Self { encoding, mark });
        }
        let plain = |encoding| Some(Self { encoding, mark: 0 });
        if start.contains(&0) {
            let is_odd = is_whole && !start.len().is_multiple_of(2);
            return utf_16_without_mark(start).filter(|_| !is_odd).and_then(plain);
        }
        if is_utf_8(start, is_whole) {
            return plain(UTF_8);
        }
        plain(guess(start, is_whole))
    }

    /// Returns true if each code unit has two bytes.
    pub fn is_wide(self) -> bool {
        self.encoding == UTF_16LE || self.encoding == UTF_16BE
    }

    /// Returns the name of the encoding; `None` for UTF-8, which needs no mention.
    pub fn name(self) -> Option<&'static str> {
        (self.encoding != UTF_8).then(|| self.encoding.name())
    }

    /// Decodes a text that starts with its byte order mark; `None` if some bytes encode no character.
    pub fn decode(self, bytes: &[u8]) -> Option<Cow<'_, str>> {
        self.encoding.decode_without_bom_handling_and_without_replacement(&bytes[self.mark..])
    }

    /// Decodes a text that starts with its byte order mark. Bytes that encode no character become replacement characters.
    pub fn decode_lossy(self, bytes: &[u8]) -> Cow<'_, str> {
        self.encoding.decode_without_bom_handling(&bytes[self.mark..]).0
    }

    /// Encodes a text, with the same byte order mark as `original`.
    ///
    /// # Errors
    /// Returns the first character that the encoding lacks.
    pub fn encode(self, text: &str, original: &[u8]) -> Result<Vec<u8>, char> {
        let mut bytes = original[..self.mark].to_vec();
        if self.encoding == UTF_16LE {
            bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        } else if self.encoding == UTF_16BE {
            bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
        } else {
            // Both encodings decode alike, and GB 18030 has every character.
            let encoding = if self.encoding == GBK { GB18030 } else { self.encoding };
            let (encoded, _, has_unmappable) = encoding.encode(text);
            if has_unmappable {
                let is_unknown = |c: &char| encoding.encode(c.encode_utf8(&mut [0; 4])).2;
                return Err(text.chars().find(is_unknown).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            bytes.extend_from_slice(&encoded);
        }
        Ok(bytes)
    }
}

/// Guesses the encoding of a text that is not UTF-8.
pub(super) fn guess(start: &[u8], is_whole: bool) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(start, is_whole);
    detector.guess(None, Utf8Detection::Deny)
}

/// Returns true for UTF-8, even with a few invalid bytes. Unless the text is whole, its last character may be cut.
fn is_utf_8(start: &[u8], is_whole: bool) -> bool {
    match std::str::from_utf8(start) {
        Err(error) if is_whole || error.error_len().is_some() => {}
        _ => return true,
    }
    let (mut wide, mut invalid) = (0, 0);
    for chunk in start.utf8_chunks() {
        wide += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    wide > invalid * MOSTLY
}

/// Detects UTF-16 without a byte order mark. Latin text in UTF-16 has a zero on the same side of nearly every code unit, and no
/// control characters.
fn utf_16_without_mark(start: &[u8]) -> Option<&'static Encoding> {
    let units = start.len() / 2;
    let zeros = |side: usize| start.iter().skip(side).step_by(2).filter(|byte| **byte == 0).count();
    let (first, second) = (zeros(0), zeros(1));
    let encoding = match (first, second) {
        (0, zeros) if zeros * ZERO_SHARE >= units => UTF_16LE,
        (zeros, 0) if zeros * ZERO_SHARE >= units => UTF_16BE,
        _ => return None,
    };
    let text = encoding.decode_without_bom_handling_and_without_replacement(&start[..units * 2])?;
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}');
    (!text.chars().any(is_control)).then_some(encoding)
}

#[cfg(test)]
mod tests {
    use encoding_rs::{BIG5, GBK, SHIFT_JIS, WINDOWS_1251, WINDOWS_1252};
    use proptest::prelude::*;

    use super::*;

    const CHINESE: &str = "道友，今天的天气很好，我们去山上喝茶吧。茶馆在山脚下，走路十分钟就到了。";
    const TRADITIONAL: &str = "道友，今天的天氣很好，我們去山上喝茶吧。茶館在山腳下，走路十分鐘就到了。";
    const JAPANESE: &str = "今日はとても良い天気ですから、山へお茶を飲みに行きましょう。";
    const RUSSIAN: &str = "Сегодня хорошая погода, пойдём в горы пить чай. Чайная стоит у подножия.";

    fn utf_16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(to_bytes).collect()
    }

    #[test]
    fn each_encoding_is_recognized_and_written_back() {
        let marked = |mark: &[u8], rest: Vec<u8>| [mark, &rest].concat();
        for (bytes, name, expected) in [
            (b"plain".to_vec(), None, "plain"),
            ("\u{feff}marked".as_bytes().to_vec(), None, "marked"),
            (CHINESE.as_bytes().to_vec(), None, CHINESE),
            (GBK.encode(CHINESE).0.into_owned(), Some("GBK"), CHINESE),
            (BIG5.encode(TRADITIONAL).0.into_owned(), Some("Big5"), TRADITIONAL),
            (SHIFT_JIS.encode(JAPANESE).0.into_owned(), Some("Shift_JIS"), JAPANESE),
            (WINDOWS_1251.encode(RUSSIAN).0.into_owned(), Some("windows-1251"), RUSSIAN),
            (WINDOWS_1252.encode("le café était fermé").0.into_owned(), Some("windows-1252"), "le café était fermé"),
            (marked(b"\xff\xfe", utf_16(CHINESE, u16::to_le_bytes)), Some("UTF-16LE"), CHINESE),
            (marked(b"\xfe\xff", utf_16(RUSSIAN, u16::to_be_bytes)), Some("UTF-16BE"), RUSSIAN),
            (utf_16("one\r\ntwo\r\n", u16::to_le_bytes), Some("UTF-16LE"), "one\r\ntwo\r\n"),
            (utf_16("one\ntwo\n", u16::to_be_bytes), Some("UTF-16BE"), "one\ntwo\n"),
            (Vec::new(), None, ""),
        ] {
            let found = TextEncoding::detect(&bytes, true).unwrap();
            assert_eq!((found.name(), found.decode(&bytes).as_deref()), (name, Some(expected)), "{name:?}");
            assert_eq!(found.encode(expected, &bytes), Ok(bytes.clone()), "{name:?}");
        }
        for binary in [&b"\x7fELF\x02\x01\x01\0\0\0\0\0"[..], b"a\0b", b"\xff\xfe\0\0a\0\0\0", &[0; 64]] {
            assert_eq!(TextEncoding::detect(binary, true), None, "{binary:?}");
        }
        let cut = &CHINESE.as_bytes()[..20];
        assert_eq!(TextEncoding::detect(cut, false).unwrap().name(), None);
        let latin = TextEncoding { encoding: WINDOWS_1252, mark: 0 };
        assert_eq!(latin.encode("fine 道", b""), Err('道'));
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_encoded_to_the_same_bytes_or_not_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(found) = TextEncoding::detect(&bytes, true)
                && let Some(text) = found.decode(&bytes)
                && let Ok(again) = found.encode(&text, &bytes)
            {
                // Some encodings have two forms of a character, so the test compares the decoded texts, as the callers do.
                prop_assert_eq!(found.decode(&again), Some(text));
            }
        }
    }
}
