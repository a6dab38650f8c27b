//! The text of a file that a tool changes. Its encoding, byte order mark and line ends stay as they are.

use crate::guard::FileContent;
use crate::tools::encoding::TextEncoding;

/// A text that can be written back without changing other bytes of the file.
#[derive(Debug)]
pub(in crate::tools) struct TextFile<'a> {
    opened: &'a FileContent,
    pub encoding: TextEncoding,
    /// The line end of the file if it has only one kind. In `text`, such lines end with LF.
    line_end: &'static str,
    pub text: String,
}

impl<'a> TextFile<'a> {
    /// Decodes a file.
    ///
    /// # Errors
    /// The file is not a text, or decoding would lose some of its bytes.
    pub(in crate::tools) fn decode(opened: &'a FileContent) -> Result<Self, String> {
        let (bytes, shown) = (&opened.bytes, &opened.shown);
        let encoding = TextEncoding::detect(bytes, true)
            .ok_or_else(|| format!("{shown}: a binary file, not text; nothing was changed"))?;
        let name = encoding.encoding.name();
        let lossy =
            || format!("{shown}: not {name} throughout, so that a change would lose bytes; nothing was changed");
        let text = encoding.decode(bytes).ok_or_else(lossy)?;
        if encoding.encode(&text, bytes).as_ref() != Ok(bytes) {
            return Err(lossy());
        }
        let line_end = line_end(&text);
        let text = if line_end == "\n" { text.into_owned() } else { text.replace(line_end, "\n") };
        Ok(Self { opened, encoding, line_end, text })
    }

    /// Converts the line ends of a text from the model to those of `text`.
    pub(in crate::tools) fn normalize(&self, text: &str) -> String {
        match self.line_end {
            "\n" => text.to_owned(),
            line_end => text.replace("\r\n", "\n").replace(line_end, "\n"),
        }
    }

    /// Encodes the new text of the file.
    ///
    /// # Errors
    /// The file's encoding lacks a character.
    pub(in crate::tools) fn encode(&self, text: &str) -> Result<Vec<u8>, String> {
        let ended = (self.line_end != "\n").then(|| text.replace('\n', self.line_end));
        self.encoding.encode(ended.as_deref().unwrap_or(text), &self.opened.bytes).map_err(|lacking| {
            let (shown, name) = (&self.opened.shown, self.encoding.encoding.name());
            format!("{shown}: its encoding {name} has no {lacking:?}; nothing was changed")
        })
    }
}

/// Returns the line end that a text has throughout: CR LF, or CR alone as in files of old Macs. A text with several kinds, or with
/// none, counts as one with LF.
fn line_end(text: &str) -> &'static str {
    match text.matches('\n').count() {
        0 if text.contains('\r') => "\r",
        0 => "\n",
        breaks if text.matches("\r\n").count() == breaks => "\r\n",
        _ => "\n",
    }
}

#[cfg(test)]
mod tests {
    use encoding_rs::{GBK, WINDOWS_1252};

    use super::*;

    #[test]
    fn marks_line_ends_and_encodings_are_kept() {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        for (bytes, text, new, expected) in [
            (b"a\nb\n".to_vec(), "a\nb\n", "a\nc\n", Ok(b"a\nc\n".to_vec())),
            (b"\xef\xbb\xbfa\r\nb\r\n".to_vec(), "a\nb\n", "a\nc\n", Ok(b"\xef\xbb\xbfa\r\nc\r\n".to_vec())),
            (b"a\r\r\nb\r\n".to_vec(), "a\r\nb\n", "a\r\nb\n", Ok(b"a\r\r\nb\r\n".to_vec())),
            (b"a\r\nb\nc".to_vec(), "a\r\nb\nc", "a\r\nb\nd", Ok(b"a\r\nb\nd".to_vec())),
            (b"a\rb\r".to_vec(), "a\nb\n", "a\nc\nd\n", Ok(b"a\rc\rd\r".to_vec())),
            (b"a\rb\nc".to_vec(), "a\rb\nc", "a\rb\nd", Ok(b"a\rb\nd".to_vec())),
            (wide("\u{feff}a\r\n"), "a\n", "道\n", Ok(wide("\u{feff}道\r\n"))),
            (
                GBK.encode("今天的天气很好，去喝茶").0.into_owned(),
                "今天的天气很好，去喝茶",
                "茶",
                Ok(GBK.encode("茶").0.into_owned()),
            ),
            (
                WINDOWS_1252.encode("le café noir").0.into_owned(),
                "le café noir",
                "le thé 茶",
                Err("windows-1252 has no '茶'"),
            ),
        ] {
            let opened = FileContent { bytes, shown: "f".to_owned() };
            let file = TextFile::decode(&opened).unwrap();
            assert_eq!(file.text, text);
            match (file.encode(new), expected) {
                (Ok(bytes), Ok(expected)) => assert_eq!(bytes, expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (got, expected) => panic!("{got:?} {expected:?}"),
            }
        }
        for (bytes, expected) in [
            (b"a\0b".to_vec(), "binary file"),
            ("道道道道道道道道道道\u{fffd}".as_bytes()[..31].to_vec(), "not UTF-8 throughout"),
        ] {
            let error = TextFile::decode(&FileContent { bytes, shown: "f".to_owned() }).unwrap_err();
            assert!(error.contains(expected) && error.contains("nothing was changed"), "{error}");
        }
    }
}
