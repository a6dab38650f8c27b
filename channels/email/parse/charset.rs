//! Decodes text of any charset.

use std::borrow::Cow;

use encoding_rs::{Encoding, GB18030, ISO_2022_JP, REPLACEMENT, UTF_8, WINDOWS_1252};
use mail_parser::decoders::charsets::map::charset_decoder;

/// Decodes bytes in the charset `label`. Guesses the charset if the label is unknown, or if 8-bit bytes are labelled as
/// ASCII or invalid UTF-8.
pub fn decode(bytes: &[u8], label: Option<&str>) -> String {
    let label = label.unwrap_or_default().trim().trim_matches(['"', '\'']).to_ascii_lowercase();
    match label.as_str() {
        "" | "ascii" | "us-ascii" | "ansi_x3.4-1968" => return guess(bytes),
        "iso-2022-jp-ms" | "iso-2022-jp-1" | "iso-2022-jp-2" | "cp50220" | "cp50221" => {
            return ISO_2022_JP.decode_without_bom_handling(bytes).0.into_owned();
        }
        _ => {}
    }
    match Encoding::for_label(label.as_bytes()) {
        Some(encoding) if encoding == UTF_8 || encoding == REPLACEMENT => guess(bytes),
        // Text is never valid UTF-8 by accident; some programs label UTF-8 wrongly.
        Some(encoding) if encoding == WINDOWS_1252 && !bytes.is_ascii() && std::str::from_utf8(bytes).is_ok() => {
            guess(bytes)
        }
        Some(encoding) => encoding.decode(bytes).0.into_owned(),
        None => match charset_decoder(label.as_bytes()) {
            Some(decode) => decode(bytes),
            None => guess(bytes),
        },
    }
}

/// Guesses the charset: UTF-8, ISO-2022-JP by its escapes, GB18030 if the result is Chinese, or windows-1252. Own code
/// because chardetng needs a country to recognize short Chinese texts, and with a country takes German for Chinese.
pub fn guess(bytes: &[u8]) -> String {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) if has_escape(bytes) => {
            let (decoded, broken) = ISO_2022_JP.decode_without_bom_handling(bytes);
            if broken { text.to_owned() } else { decoded.into_owned() }
        }
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) if is_mostly_utf8(bytes) => text,
        Cow::Owned(_) if reads_as_chinese(bytes) => GB18030.decode_without_bom_handling(bytes).0.into_owned(),
        Cow::Owned(_) => WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned(),
    }
}

fn has_escape(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|at| matches!(at, b"\x1b$B" | b"\x1b$@"))
}

/// Returns true for UTF-8 with few errors, such as a cut inside a character.
fn is_mostly_utf8(bytes: &[u8]) -> bool {
    let (mut good, mut bad) = (0_usize, 0_usize);
    for chunk in bytes.utf8_chunks() {
        good += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        bad += usize::from(!chunk.invalid().is_empty());
    }
    good > bad * 4
}

/// Returns true if 8-bit bytes are GB18030, i.e. if they decode mostly to pairs of common characters. Bytes of a western
/// charset are isolated among ASCII letters and decode to rare characters.
fn reads_as_chinese(bytes: &[u8]) -> bool {
    if GB18030.decode_without_bom_handling_and_without_replacement(bytes).is_none() {
        return false;
    }
    let (mut common, mut rare) = (0_usize, 0_usize);
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if first.is_ascii() {
            continue;
        }
        let second = after.first().copied().unwrap_or_default();
        if (0xa1..=0xf7).contains(first) && second >= 0xa1 {
            common += 1;
        } else {
            rare += 1;
        }
        rest = after.get(1..).unwrap_or_default();
    }
    common >= rare * 3
}

#[cfg(test)]
mod tests {
    use encoding_rs::*;

    use super::*;

    #[test]
    fn charsets_are_decoded_or_guessed() {
        let table: &[(&str, &'static Encoding, &str)] = &[
            ("gbk", GBK, "会议改到下午三点"),
            ("\"GB2312\"", GBK, "会议改到下午三点"),
            ("gb18030", GB18030, "𠮷野家"),
            ("cp936", GBK, "会议"),
            ("big5", BIG5, "會議改到下午"),
            ("Shift_JIS", SHIFT_JIS, "会議は三時です"),
            ("iso-2022-jp", ISO_2022_JP, "会議は三時です"),
            ("euc-kr", EUC_KR, "회의"),
            ("ks_c_5601-1987", EUC_KR, "회의"),
            ("koi8-r", KOI8_R, "Привет"),
            ("windows-1251", WINDOWS_1251, "Привет"),
            ("iso-8859-1", WINDOWS_1252, "déjà vu"),
            ("iso-8859-15", ISO_8859_15, "10 €"),
            ("windows-1256", WINDOWS_1256, "مرحبا"),
            ("utf-8", UTF_8, "会议 déjà"),
            ("x-unknown", UTF_8, "会议"),
            ("us-ascii", GBK, "会议改到下午三点"),
            ("", GBK, "你好，see you at 3 点"),
            ("", WINDOWS_1252, "Déjà vu à l'été, où ça"),
            ("", WINDOWS_1252, "Grüße aus München"),
            ("", ISO_2022_JP, "会議は三時です"),
            ("utf-8", GBK, "声明有误的邮件"),
            ("iso-8859-1", UTF_8, "Grüße, 会议"),
            ("windows-1252", UTF_8, "déjà vu"),
        ];
        for (label, charset, text) in table {
            let (bytes, _, broken) = charset.encode(text);
            assert!(!broken);
            assert_eq!(decode(&bytes, Some(label)), *text, "{label:?} {}", charset.name());
        }
        assert_eq!(decode(b"Hi +AOk- there", Some("utf-7")), "Hi é there");
        assert_eq!(guess("会议改到下午".as_bytes().get(..16).unwrap()), "会议改到下\u{fffd}");
    }
}
