//! What may never get from a mail into a field or a text: control characters, and those that nobody sees.

/// Lines of text that the HTML reader puts between others, to tell the quote cutter what it knows. They are private use
/// characters, which [`clean_text`] takes out of everything that arrives.
pub mod mark {
    /// Here begins a quotation that ends at [`QUOTE_END`].
    pub const QUOTE: char = '\u{f4d0}';
    pub const QUOTE_END: char = '\u{f4d1}';
    /// Whatever follows is history.
    pub const HISTORY: char = '\u{f4d2}';
    /// Here begins a signature that ends at [`SIGNATURE_END`].
    pub const SIGNATURE: char = '\u{f4d3}';
    pub const SIGNATURE_END: char = '\u{f4d4}';
    pub const ALL: std::ops::RangeInclusive<char> = QUOTE..=SIGNATURE_END;
}

/// One line: every run of white space and control characters is a space, none at the ends; nothing that is invisible or
/// turns the direction of writing.
pub fn clean_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_whitespace() || c.is_control() {
            if !out.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
        } else if !is_invisible(c) && !is_direction(c) {
            out.push(c);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Text: lines end with `\n`, and of the control characters only it and the tab are left.
pub fn clean_text(text: &str) -> String {
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
            c if c.is_control() || is_invisible(c) || is_override(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// `text` cut to at most `max` bytes, between characters.
pub fn cut_to(text: &mut String, max: usize) -> bool {
    let cut = text.len() > max;
    text.truncate(text.floor_char_boundary(max));
    cut
}

/// A zero width space, soft hyphen and the like, the tags of plane 14 that spell ASCII invisibly, and our own marks.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
        || mark::ALL.contains(&c)
}

/// Makes text read otherwise than it is written.
fn is_override(c: char) -> bool {
    matches!(c, '\u{202d}' | '\u{202e}')
}

fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_nobody_sees() {
        let table = [
            ("  a\r\nBcc: b@x.org\0 ", "a Bcc: b@x.org", "  a\nBcc: b@x.org "),
            ("a\u{7f}\u{9b}b", "a b", "ab"),
            ("x\u{200b}y\u{ad}z\u{e0041}", "xyz", "xyz"),
            ("photo\u{202e}gpj.exe", "photogpj.exe", "photogpj.exe"),
            ("\ta\u{2028}b\u{f4d2}", "a b", "\ta\nb"),
        ];
        for (text, line, body) in table {
            assert_eq!((clean_line(text).as_str(), clean_text(text).as_str()), (line, body), "{text:?}");
        }
    }
}
