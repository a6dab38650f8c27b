//! Decodes encoded words in header fields (RFC 2047).

use super::charset;

/// The longest encoded word. RFC 2047, section 2 allows 75 characters, but some programs write more.
const MAX_WORD: usize = 4_000;
/// The number of invalid words after which the rest of a value is not searched. Each search for the end of a word takes up
/// to [`MAX_WORD`] steps.
pub const MAX_INVALID_WORDS: usize = 100;

/// Decodes all encoded words of a field's value and removes the white space between them. Adjacent words of one charset are
/// decoded together, because many programs split a text inside a character. Own code because mail-parser decodes each word
/// separately.
pub fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut open: Option<(String, Vec<u8>)> = None;
    let mut rest = text;
    let mut invalid = 0;
    while let Some(at) = rest.find("=?").filter(|_| invalid < MAX_INVALID_WORDS) {
        let (before, word) = rest.split_at(at);
        let found = EncodedWord::at(word);
        if !(found.is_some() && open.is_some() && before.chars().all(char::is_whitespace)) {
            flush(&mut open, &mut out);
            out.push_str(before);
        }
        rest = match found {
            Some(found) => {
                match &mut open {
                    Some((charset, bytes)) if *charset == found.charset => bytes.extend(found.bytes()),
                    _ => {
                        flush(&mut open, &mut out);
                        open = Some((found.charset.clone(), found.bytes()));
                    }
                }
                &word[found.length..]
            }
            None => {
                invalid += 1;
                out.push_str("=?");
                &word[2..]
            }
        };
    }
    flush(&mut open, &mut out);
    out.push_str(rest);
    out
}

/// Returns the length of the encoded word at the beginning of `text`.
pub fn encoded_word_len(text: &str) -> Option<usize> {
    EncodedWord::at(text).map(|word| word.length)
}

fn flush(open: &mut Option<(String, Vec<u8>)>, out: &mut String) {
    if let Some((charset, bytes)) = open.take() {
        out.push_str(&charset::decode(&bytes, Some(&charset)));
    }
}

struct EncodedWord<'a> {
    charset: String,
    is_base64: bool,
    text: &'a str,
    length: usize,
}

impl<'a> EncodedWord<'a> {
    fn at(text: &'a str) -> Option<Self> {
        let window = &text[..text.floor_char_boundary(MAX_WORD)];
        let (charset, rest) = window.strip_prefix("=?")?.split_once('?')?;
        // RFC 2231, section 5: a language may follow the charset.
        let charset = charset.split('*').next().unwrap_or_default().to_ascii_lowercase();
        if charset.is_empty() || charset.len() > 60 || charset.contains(|c: char| c.is_whitespace() || c == '=') {
            return None;
        }
        let (encoding, rest) = rest.split_once('?')?;
        let is_base64 = match encoding {
            "b" | "B" => true,
            "q" | "Q" => false,
            _ => return None,
        };
        let end = rest.find("?=")?;
        let text = &rest[..end];
        // Unencoded bytes of the word were already decoded with the whole field.
        let charset = if text.is_ascii() { charset } else { "utf-8".to_owned() };
        Some(Self { charset, is_base64, text, length: window.len() - rest.len() + end + 2 })
    }

    fn bytes(&self) -> Vec<u8> {
        if self.is_base64 {
            return super::transfer_encoding::decode_base64(self.text.as_bytes(), self.text.len());
        }
        let text: Vec<u8> = self.text.bytes().map(|byte| if byte == b'_' { b' ' } else { byte }).collect();
        super::transfer_encoding::decode_hex_escapes(&text, b'=')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_are_decoded() {
        let table = [
            ("plain", "plain"),
            ("=?utf-8?Q?caf=C3=A9_au_lait?=", "café au lait"),
            ("Re: =?GB2312?B?u+HS6bjEtb3PwM7nyP215A==?= ok", "Re: 会议改到侠午三典 ok"),
            // A text split inside a character.
            ("=?UTF-8?Q?=E4=BC?= =?utf-8?Q?=9A=E8=AE=AE?=", "会议"),
            ("=?gb18030?B?u+E=?= =?gb18030?B?0uk=?=", "会议"),
            ("=?gb18030?B?uw==?= =?gb18030?B?4Q==?=", "会"),
            ("=?utf-8?Q?a?= b =?utf-8?Q?c?=", "a b c"),
            ("=?iso-8859-1*fr?q?=E9t=E9?= =?utf-8?q?_=E2=82=AC?=", "été €"),
            ("=?utf-8?Q?=E4?", "=?utf-8?Q?=E4?"),
            ("=?x?z?a?= =?=?= 1=?2", "=?x?z?a?= =?=?= 1=?2"),
            ("=?iso-8859-1?Q?Fr\u{f6}sche_da?=", "Frösche da"),
            ("=?utf-8?Q??=", ""),
            ("=?iso-2022-jp?B?GyRCMnE1RBsoQg==?=", "会議"),
        ];
        for (text, expected) in table {
            assert_eq!(decode(text), expected, "{text}");
        }
        // Many unterminated words are not decoded.
        assert_eq!(decode(&"=?a?q? ".repeat(10_000)).len(), 70_000);
    }
}
