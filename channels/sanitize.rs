//! Removes control characters and invisible characters from fields and texts.

use crate::text::one_line_without;

/// Marker lines that describe the structure of a mail: the HTML renderer writes them and the quote stripper reads them.
/// They are private use characters, which [`sanitize_text`] removes from all input.
pub mod marker {
    /// Start of a quotation that ends at [`QUOTE_END`].
    pub const QUOTE: char = '\u{f4d0}';
    pub const QUOTE_END: char = '\u{f4d1}';
    /// Start of history that extends to the end of the text.
    pub const HISTORY: char = '\u{f4d2}';
    /// Start of a signature that ends at [`SIGNATURE_END`].
    pub const SIGNATURE: char = '\u{f4d3}';
    pub const SIGNATURE_END: char = '\u{f4d4}';
    pub const ALL: std::ops::RangeInclusive<char> = QUOTE..=SIGNATURE_END;
}

/// Sanitizes one line: runs of white space and control characters become one space; invisible characters and changes of
/// writing direction are removed.
pub fn sanitize_line(text: &str) -> String {
    one_line_without(text, |c| is_invisible(c) || is_direction_mark(c))
}

/// Sanitizes a text: lines end with `\n`, and no other control characters than line break and tab remain.
pub fn sanitize_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' => {
                chars.next_if_eq(&'\n');
                out.push('\n');
            }
            '\n' | '\t' => out.push(c),
            '\u{2028}' | '\u{2029}' | '\u{85}' | '\u{b}' | '\u{c}' => out.push('\n'),
            // These two override the display order of the text.
            '\u{202d}' | '\u{202e}' => {}
            c if c.is_control() || is_invisible(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// Cuts `text` to at most `max` bytes at a character boundary. Returns true if it was longer.
pub fn truncate(text: &mut String, max: usize) -> bool {
    let is_cut = text.len() > max;
    text.truncate(text.floor_char_boundary(max));
    is_cut
}

/// Returns true for zero width spaces, soft hyphens and the like, the invisible ASCII tags of plane 14, and our own markers.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
        || marker::ALL.contains(&c)
}

fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_removed() {
        let table = [
            ("  a\r\nBcc: b@x.org\0 ", "a Bcc: b@x.org", "  a\nBcc: b@x.org "),
            ("a\u{7f}\u{9b}b", "a b", "ab"),
            ("x\u{200b}y\u{ad}z\u{e0041}", "xyz", "xyz"),
            ("photo\u{202e}gpj.exe", "photogpj.exe", "photogpj.exe"),
            ("\ta\u{2028}b\u{f4d2}", "a b", "\ta\nb"),
        ];
        for (text, line, body) in table {
            assert_eq!((sanitize_line(text).as_str(), sanitize_text(text).as_str()), (line, body), "{text:?}");
        }
    }
}
