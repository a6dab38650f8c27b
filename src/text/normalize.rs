//! Normal forms of texts, for comparisons.

use super::script::is_han_or_kana;
use daoyou_channels::text::is_invisible;

/// Returns a key that is equal for texts with the same content: case, width, spaces and punctuation do not count.
pub fn comparison_key(text: &str) -> String {
    let chars: Vec<char> = text.chars().map(narrow_char).flat_map(char::to_lowercase).collect();
    let mut key = String::with_capacity(text.len());
    let mut is_gap = false;
    for (at, c) in chars.iter().copied().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chars.get(at)).copied();
        let after = chars.get(at + 1).copied();
        if c.is_whitespace() || is_invisible(c) || is_punctuation(c, before, after) {
            is_gap = true;
            continue;
        }
        let last = key.chars().next_back();
        if is_gap && last.is_some_and(|last| !is_han_or_kana(last)) && !is_han_or_kana(c) {
            key.push(' ');
        }
        is_gap = false;
        key.push(c);
    }
    key
}

/// Returns a text with full-width forms (U+FF01 to U+FF5E) in their usual width, and straight apostrophes.
pub fn narrow(text: &str) -> String {
    text.chars().map(narrow_char).collect()
}

fn narrow_char(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        '\u{3000}' => ' ',
        '’' | '‘' => '\'',
        c => c,
    }
}

/// Returns true if a character is punctuation. Between letters and digits, it is part of a word: 3.5, well-known, user's.
fn is_punctuation(c: char, before: Option<char>, after: Option<char>) -> bool {
    let both = |is_part: fn(char) -> bool| before.is_some_and(is_part) && after.is_some_and(is_part);
    match c {
        ',' | ':' => !both(|c| c.is_ascii_digit()),
        '.' | '\'' | '/' | '@' | '_' => !both(char::is_alphanumeric),
        ';' | '!' | '?' | '"' | '“' | '”' | '(' | ')' | '[' | ']' | '`' | '*' => true,
        '。' | '、' | '《' | '》' | '「' | '」' | '『' | '』' | '【' | '】' | '…' | '·' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_say_the_same_have_the_same_key() {
        for (one, other, same) in [
            ("I like tea.", "  i LIKE  tea", true),
            ("我喜欢 茶。", "我喜欢茶", true),
            ("ＡＢＣ，１２", "abc, 12", true),
            ("The user’s cat", "the user's cat", true),
            ("Version 3.5", "version 35", false),
            ("C++ is fine", "C is fine", false),
            ("It is -5 degrees", "It is 5 degrees", false),
            ("may be", "maybe", false),
            ("“Momo”!", "momo", true),
            ("", "...", true),
        ] {
            assert_eq!(
                comparison_key(one) == comparison_key(other),
                same,
                "{one:?} {other:?}: {:?}",
                comparison_key(one)
            );
        }
    }
}
