//! Classes of characters by script. This is the only table of script ranges.

use daoyou_channels::text::Language;

/// Returns Chinese for a text with at least one Chinese character, and English for any other.
pub fn language_of(text: &str) -> Language {
    if text.contains(is_han) { Language::Zh } else { Language::En }
}

/// Returns true for a Chinese character, or a mark that repeats or replaces one.
pub fn is_han(c: char) -> bool {
    matches!(c, '\u{3005}'..='\u{3007}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Returns true for a Chinese or Japanese character.
pub fn is_han_or_kana(c: char) -> bool {
    is_han(c)
        || matches!(c, '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}')
}

/// Returns true for a character of Chinese, Japanese or Korean, punctuation included.
pub fn is_cjk(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Returns true for a letter of a script that is searched by characters, since its words may have no spaces between them:
/// Chinese, Japanese, Korean, Thai, Lao, Burmese, Khmer.
pub fn is_unspaced(c: char) -> bool {
    match c {
        // Punctuation and currency signs are not letters.
        '\u{e3f}' | '\u{e5a}' | '\u{e5b}' | '\u{104a}' | '\u{104b}' => false,
        '\u{e01}'..='\u{edf}' | '\u{1000}'..='\u{109f}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17d3}' => true,
        '\u{3105}'..='\u{318e}' | '\u{ac00}'..='\u{d7a3}' => true,
        c => is_han_or_kana(c),
    }
}
