//! Text helpers that channels and the agent share.

use std::any::Any;
use std::error::Error;
use std::iter;
use std::panic::AssertUnwindSafe;

use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use unicode_width::UnicodeWidthStr;

/// Base64 with the usual symbols, with or without padding.
pub(crate) const BASE64_ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A language that the program understands and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    #[default]
    En,
    Zh,
}

/// Declares a struct of texts and its function `of`, which returns the texts of a language. A row is a name, its text in
/// English, and its text in Chinese.
#[macro_export]
macro_rules! texts {
    ($(#[$about:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $english:literal, $chinese:literal;)*
    }) => {
        $(#[$about])*
        #[derive(Debug)]
        $vis struct $name {
            $($(#[$doc])* pub $field: &'static str,)*
        }

        impl $name {
            /// Returns the texts of `language`.
            $vis fn of(language: $crate::text::Language) -> &'static Self {
                static EN: $name = $name { $($field: $english,)* };
                static ZH: $name = $name { $($field: $chinese,)* };
                match language {
                    $crate::text::Language::En => &EN,
                    $crate::text::Language::Zh => &ZH,
                }
            }
        }
    };
}
pub use texts;

/// Returns a text as one line: each run of white space and control characters becomes a space, and invisible marks are removed.
pub fn one_line(text: &str) -> String {
    one_line_without(text, is_invisible)
}

/// Returns a text as one line like [`one_line`], and also removes the characters that `is_removed` selects.
pub(crate) fn one_line_without(text: &str, is_removed: impl Fn(char) -> bool) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !is_removed(*c)) {
        if !c.is_whitespace() && !c.is_control() {
            line.push(c);
        } else if !line.is_empty() && !line.ends_with(' ') {
            line.push(' ');
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns true for a mark that changes how a text looks but not its meaning: direction, byte order, zero width. Joiners
/// are not included, because emoji and Indian scripts need them.
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns the beginning of a text, at most `max` characters long. If something is cut off, the last character is `…`.
pub fn truncate(text: &str, max: usize) -> String {
    let mut ends = text.char_indices().map(|(at, _)| at).skip(max.saturating_sub(1));
    match (ends.next(), ends.next()) {
        (Some(end), Some(_)) => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// Returns the beginning of a text, at most `max_bytes` long, up to the end of a whole character.
pub fn beginning(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// Returns the number of columns that a text takes on the screen; a Chinese character takes two.
pub fn display_width(text: &str) -> usize {
    text.width()
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Runs `work`, and turns a panic in it into an error.
///
/// # Errors
/// The message of the panic. The panic hook has logged the panic itself.
pub fn catch_panic<T>(work: impl Future<Output = T>) -> impl Future<Output = Result<T, String>> {
    // No `async fn`: the state of one would hold `work` twice.
    AssertUnwindSafe(work).catch_unwind().map(|done| done.map_err(|panic| panic_message(&*panic).to_owned()))
}

/// Formats an error with its causes in one text. Many errors repeat their cause, so a text that is already there is left out.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in iter::successors(error.source(), |&cause| cause.source()).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(&format!(": {cause}"));
        }
    }
    text
}

/// Returns the innermost cause of an error: the outer errors only name the layers that passed it on.
pub fn innermost_cause(error: &(dyn Error + 'static)) -> String {
    let innermost = iter::successors(Some(error), |&error| error.source()).last();
    innermost.unwrap_or(error).to_string()
}

/// Formats a size such as `1.2 GB`, with powers of 1,000 as in the configuration.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KB", "MB", "GB", "TB", "PB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let (mut amount, mut unit) = (bytes as f64 / 1_000.0, 0);
    while amount >= 999.95 && unit + 1 < UNITS.len() {
        amount /= 1_000.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// Groups the digits of a number: `1234567` becomes `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns `bytes` in hexadecimal, in lower case.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect()
}

/// Returns the SHA-256 of all `parts` together in hexadecimal.
pub(crate) fn sha256_hex(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Replaces each `{}` by the next value, and `{0}`, `{1}` by the value at that index.
pub fn fill(template: &str, values: &[&str]) -> String {
    let mut filled = String::with_capacity(template.len() + 64);
    let mut rest = template;
    let mut next = 0;
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((index, behind)) = behind.split_once('}') else { break };
        filled.push_str(before);
        let at = index.parse().unwrap_or(next);
        next += 1;
        filled.push_str(values.get(at).unwrap_or(&""));
        rest = behind;
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced() {
        assert_eq!(fill("a {} b {} c", &["1", "{}"]), "a 1 b {} c");
        assert_eq!(fill("{1} and {0}", &["1", "2"]), "2 and 1");
        assert_eq!(fill("{} {}", &["1"]), "1 ");
    }

    #[test]
    fn a_text_becomes_one_visible_line() {
        for (text, expected) in [
            (" a\n\u{0}b\u{202e}c \t d ", "a bc d"),
            ("a\n  b", "a b"),
            ("a \u{200b} b", "a b"),
            ("👩\u{200d}🚀", "👩\u{200d}🚀"),
            ("\n", ""),
        ] {
            assert_eq!(one_line(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for (text, max, expected) in
            [("一二三四五", 4, "一二三…"), ("abc", 3, "abc"), ("abcd", 3, "ab…"), ("ab", 1, "…"), ("", 0, "")]
        {
            assert_eq!(truncate(text, max), expected, "{text:?} {max}");
        }
    }

    #[test]
    fn sizes_have_one_unit() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 KB"),
            (1_550, "1.6 KB"),
            (999_960, "1.0 MB"),
            (1_234_567_890, "1.2 GB"),
            (u64::MAX, "18446.7 PB"),
        ] {
            assert_eq!(format_size(bytes), expected);
        }
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, words) in [(0, "0"), (999, "999"), (1_000, "1,000"), (3_400, "3,400"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), words);
        }
    }

    #[test]
    fn bytes_are_two_lower_case_digits_each() {
        assert_eq!(hex(&[0, 0x0a, 0xf0, 0xff]), "000af0ff");
    }
}
