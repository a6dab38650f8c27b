//! Escapes of lone UTF-16 surrogates in JSON (RFC 8259, section 8.2), which parsers refuse. JavaScript writes one for a text that was cut
//! inside an emoji.

use std::borrow::Cow;

/// Returns a JSON text in which each escape of a lone surrogate is U+FFFD.
pub fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    replace_lone(json, None)
}

/// Joins the halves of surrogate pairs (`\ud83d`, `\ude00`) that a service escaped in different texts of a stream.
#[derive(Default)]
pub struct SurrogateJoiner {
    /// The escape of a first half at the end of a text, which waits for its second half.
    first: Option<String>,
}

impl SurrogateJoiner {
    /// Returns the JSON text without lone halves: a first half at the end of a text moves to the second half at the beginning of
    /// a later text, and any other lone half becomes U+FFFD.
    pub fn join<'a>(&mut self, json: &'a str) -> Cow<'a, str> {
        replace_lone(json, Some(&mut self.first))
    }
}

/// Replaces lone halves, except those that `waiting` joins.
fn replace_lone<'a>(json: &'a str, mut waiting: Option<&mut Option<String>>) -> Cow<'a, str> {
    // Most texts have no such escape.
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let mut joined = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        joined.push_str(before);
        let half = half_of(escape);
        let length = match half {
            None => escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end),
            Some(SurrogateHalf::First) if half_of(&escape[6..]) == Some(SurrogateHalf::Second) => 12,
            Some(_) => 6,
        };
        let (piece, behind) = escape.split_at(length);
        let is_first = half == Some(SurrogateHalf::First);
        if half.is_none() || length > 6 {
            joined.push_str(piece);
        } else if let Some(first) = waiting.as_deref_mut().filter(|_| is_first && behind.starts_with('"')) {
            *first = Some(piece.to_owned());
        } else {
            let first = waiting.as_deref_mut().and_then(Option::take);
            match first.filter(|_| !is_first && joined.ends_with('"')) {
                Some(first) => joined.extend([first.as_str(), piece]),
                None => joined.push(char::REPLACEMENT_CHARACTER),
            }
        }
        rest = behind;
    }
    joined.push_str(rest);
    Cow::Owned(joined)
}

#[derive(Clone, Copy, PartialEq)]
enum SurrogateHalf {
    First,
    Second,
}

/// Returns the half of a pair whose escape begins the text.
fn half_of(text: &str) -> Option<SurrogateHalf> {
    let digits =
        text.strip_prefix("\\u")?.get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xD800..=0xDBFF => Some(SurrogateHalf::First),
        0xDC00..=0xDFFF => Some(SurrogateHalf::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_surrogate_pairs_are_joined_or_replaced() {
        for (pieces, expected) in [
            ([r#"{"a":"ab\ud83d"}"#, r#"{"a":"\ude00cd"}"#], [r#"{"a":"ab"}"#, r#"{"a":"\ud83d\ude00cd"}"#]),
            ([r#"{"a":"\uD83D"}"#, r#"{"a":"\uDE00"}"#], [r#"{"a":""}"#, r#"{"a":"\uD83D\uDE00"}"#]),
            ([r#""\ud83d\ude00""#, r#""\ude00""#], [r#""\ud83d\ude00""#, "\"\u{fffd}\""]),
            ([r#""\ud83dx""#, r#""x\ude00""#], ["\"\u{fffd}x\"", "\"x\u{fffd}\""]),
            ([r#""\ud83d\ud83d""#, r#""\ude00""#], ["\"\u{fffd}\"", r#""\ud83d\ude00""#]),
            // These are not escapes of halves.
            ([r#""\\ud83d""#, r#""\\\\ude00\n""#], [r#""\\ud83d""#, r#""\\\\ude00\n""#]),
            ([r#""\ud7ff\ue000""#, r#""\udz""#], [r#""\ud7ff\ue000""#, r#""\udz""#]),
        ] {
            let mut joiner = SurrogateJoiner::default();
            assert_eq!(pieces.map(|piece| joiner.join(piece).into_owned()), expected, "{pieces:?}");
        }
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        for (text, expected) in [
            (r#""cut emoji \ud83d end""#, Some("\"cut emoji \u{fffd} end\"")),
            (r#""\uDE00\ud83d""#, Some("\"\u{fffd}\u{fffd}\"")),
            (r#""\ud83d\ud83d\ude00""#, Some("\"\u{fffd}\\ud83d\\ude00\"")),
            (r#""\ud83d\ude00""#, None),
            (r#""\\ud83d \\\\ud83d""#, None),
            (r#""\\\ud83d""#, Some("\"\\\\\u{fffd}\"")),
            (r#""\é\ud8\u00e9""#, None),
            ("\\", None),
        ] {
            assert_eq!(without_lone_surrogates(text), expected.unwrap_or(text), "{text}");
        }
    }
}
