//! Truncation of texts that are too long for a model. Head and tail are kept, and a marker between them states how much is
//! missing.

use super::tool::OutputLimit;

/// The size of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextExtent {
    pub chars: usize,
    /// The number of line breaks, plus one if the last line has none.
    pub lines: usize,
}

impl TextExtent {
    pub fn of(text: &str) -> Self {
        let breaks = text.bytes().filter(|byte| *byte == b'\n').count();
        let open = usize::from(!text.is_empty() && !text.ends_with('\n'));
        Self { chars: text.chars().count(), lines: breaks + open }
    }

    pub fn fits(self, limit: OutputLimit) -> bool {
        self.chars <= limit.chars && self.lines <= limit.lines
    }
}

/// Returns `text` if it fits `limit`. Otherwise returns its head and tail around a marker, within the limit and never longer than
/// `text`. `stored` says where the model can read the rest, as [`StoredOutput`](super::StoredOutput) does.
pub fn truncate_middle(text: &str, limit: OutputLimit, stored: Option<&str>) -> String {
    truncate_middle_of(text, text, TextExtent::of(text), limit, stored)
}

/// Truncates a text like [`truncate_middle`] if only its start and its end were kept. `front` and `back` may overlap or leave a
/// gap, but each must be as long as the limit or the text.
pub fn truncate_middle_of(
    front: &str,
    back: &str,
    total: TextExtent,
    limit: OutputLimit,
    stored: Option<&str>,
) -> String {
    if total.fits(limit) {
        return front.to_owned();
    }
    // The marker shrinks before the text does, since small limits and short texts have no room for a long marker.
    let stored = stored.map(|stored| format!("; {stored}")).unwrap_or_default();
    let marker = |chars: usize, lines: usize| format!("[... {chars} characters, {lines} lines cut{stored} ...]");
    let room = marker(total.chars, total.lines).chars().count();
    if let Some((head, tail)) = head_and_tail(front, back, total, limit, room) {
        let kept = TextExtent::of(head).lines + TextExtent::of(tail).lines;
        let chars = total.chars - head.chars().count() - tail.chars().count();
        return format!("{}\n{tail}", with_marker(head, &marker(chars, total.lines.saturating_sub(kept))));
    }
    for marker in ["[...]", "..."] {
        if let Some((head, tail)) = head_and_tail(front, back, total, limit, marker.len()) {
            return format!("{}\n{tail}", with_marker(head, marker));
        }
    }
    prefix(front, limit.chars, limit.lines).to_owned()
}

/// Returns `text` if it fits `limit`. Otherwise returns its head and a marker, within the limit and never longer than `text`.
/// `stored` says where the model can read the rest, as in [`truncate_middle`].
pub fn truncate_end(text: &str, limit: OutputLimit, stored: Option<&str>) -> String {
    let total = TextExtent::of(text);
    if total.fits(limit) {
        return text.to_owned();
    }
    let stored = stored.map(|stored| format!("; {stored}")).unwrap_or_default();
    let marker = |chars: usize, lines: usize| format!("[... {chars} characters, {lines} lines cut{stored}]");
    let room = marker(total.chars, total.lines).chars().count();
    let head = |marker: usize| {
        let chars = limit.chars.min(total.chars).checked_sub(marker + 1)?;
        let lines = limit.lines.checked_sub(1).filter(|lines| *lines > 0)?;
        (chars > marker).then(|| whole_lines_of_head(prefix(text, chars, lines)))
    };
    if let Some(head) = head(room) {
        let left = TextExtent::of(head);
        return with_marker(head, &marker(total.chars - left.chars, total.lines.saturating_sub(left.lines)));
    }
    match head("...".len()) {
        Some(head) => with_marker(head, "..."),
        None => prefix(text, limit.chars, limit.lines).to_owned(),
    }
}

/// Puts the marker on a line of its own behind the head.
fn with_marker(head: &str, marker: &str) -> String {
    let before = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    format!("{head}{before}{marker}")
}

/// Returns the head and tail around a marker of `marker` characters, including its line breaks. Returns `None` if they get half
/// of the limit or less, or if the result is longer than the text.
fn head_and_tail<'a>(
    front: &'a str,
    back: &'a str,
    total: TextExtent,
    limit: OutputLimit,
    marker: usize,
) -> Option<(&'a str, &'a str)> {
    let chars = limit.chars.min(total.chars).checked_sub(marker + 2)?;
    let lines = limit.lines.checked_sub(1)?;
    if chars <= marker || lines < 2 {
        return None;
    }
    let head = whole_lines_of_head(prefix(front, chars - chars / 2, lines - lines / 2));
    let tail = whole_lines_of_tail(suffix(back, chars / 2, lines / 2));
    Some((head, tail))
}

/// Returns the longest prefix of `text` within both bounds.
fn prefix(text: &str, chars: usize, lines: usize) -> &str {
    let by_chars = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    if lines == 0 {
        return "";
    }
    let by_lines = text.match_indices('\n').nth(lines - 1).map_or(text.len(), |(at, _)| at + 1);
    &text[..by_chars.min(by_lines)]
}

/// Returns the longest suffix of `text` within both bounds.
pub fn suffix(text: &str, chars: usize, lines: usize) -> &str {
    if chars == 0 || lines == 0 {
        return "";
    }
    let by_chars = text.char_indices().rev().nth(chars - 1).map_or(0, |(at, _)| at);
    // A final line break ends the last line; it starts none.
    let body = text.strip_suffix('\n').unwrap_or(text);
    let by_lines = body.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1);
    &text[by_chars.max(by_lines)..]
}

/// Cuts after the last line break if that costs less than half of the text.
fn whole_lines_of_head(head: &str) -> &str {
    match head.rfind('\n') {
        Some(at) if at + 1 >= head.len() / 2 => &head[..=at],
        _ => head,
    }
}

/// Cuts before the first line break if that costs less than half of the text. The function cannot detect whether the tail already
/// starts a line; such a tail loses at most one line.
fn whole_lines_of_tail(tail: &str) -> &str {
    match tail.find('\n') {
        Some(at) if at < tail.len() / 2 => &tail[at + 1..],
        _ => tail,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_marker_states_how_much_of_the_middle_is_missing() {
        let numbered: String = (1..=100).map(|n| format!("line {n}\n")).collect();
        let got =
            truncate_middle(&numbered, OutputLimit { chars: 8_000, lines: 11 }, Some("the whole output: spill/x.txt"));
        assert!(got.starts_with("line 1\nline 2\nline 3\nline 4\nline 5\n[... "), "{got}");
        assert!(got.contains(" lines cut; the whole output: spill/x.txt ...]\n"), "{got}");
        assert!(got.ends_with("line 99\nline 100\n"), "{got}");
        let long = "x".repeat(300);
        for (text, chars, lines, expected) in [
            ("abc", 3, 1, "abc"),
            ("abc\n", 4, 1, "abc\n"),
            ("", 0, 0, ""),
            ("abcd", 3, 1, "abc"),
            ("a\nb\nc\nd", 100, 3, "a\nb\nc\n"),
            (long.as_str(), 20, 9, "xxxxxxx\n[...]\nxxxxxx"),
            ("abc", 0, 5, ""),
        ] {
            assert_eq!(truncate_middle(text, OutputLimit { chars, lines }, None), expected, "{text:?} {chars} {lines}");
        }
    }

    proptest! {
        #[test]
        fn a_truncated_text_is_within_its_limit_and_not_longer_and_keeps_both_ends(
            text in "([a-c界🦀\r\n]{0,30}|[a-z ]{0,80}\n){0,40}",
            chars in 0_usize..900,
            lines in 0_usize..40,
            named: bool,
        ) {
            let limit = OutputLimit { chars, lines };
            let got = truncate_middle(&text, limit, named.then_some("a/b.txt"));
            let extent = TextExtent::of(&got);
            prop_assert!(extent.chars <= chars && extent.lines <= lines || got == text && extent.fits(limit), "{got:?}");
            prop_assert!(got.len() <= text.len() && extent.chars <= TextExtent::of(&text).chars, "{got:?}");
            if TextExtent::of(&text).fits(limit) {
                prop_assert_eq!(&got, &text);
            } else if let Some((head, rest)) = got.split_once("[... ") {
                let (_, tail) = rest.split_once(" ...]\n").unwrap();
                prop_assert!(text.starts_with(head) || text.starts_with(head.strip_suffix('\n').unwrap()));
                prop_assert!(text.ends_with(tail));
            }
        }

        #[test]
        fn a_text_cut_at_its_end_is_within_its_limit_and_not_longer_and_keeps_its_start(
            text in "([a-c界🦀\r\n]{0,30}|[a-z ]{0,80}\n){0,40}",
            chars in 0_usize..900,
            lines in 0_usize..40,
            named: bool,
        ) {
            let limit = OutputLimit { chars, lines };
            let got = truncate_end(&text, limit, named.then_some("a/b.txt"));
            let extent = TextExtent::of(&got);
            prop_assert!(extent.fits(limit) && got.len() <= text.len(), "{got:?}");
            if TextExtent::of(&text).fits(limit) {
                prop_assert_eq!(&got, &text);
            } else if let Some((head, _)) = got.split_once("[... ") {
                prop_assert!(text.starts_with(head) || text.starts_with(head.strip_suffix('\n').unwrap()));
            }
        }

        #[test]
        fn kept_ends_give_the_same_result_as_the_whole_text(text in "([a-c界]{0,12}\n?){0,60}", chars in 1_usize..120, lines in 1_usize..12) {
            let limit = OutputLimit { chars, lines };
            let total = TextExtent::of(&text);
            let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
            let start = text.char_indices().rev().nth(chars).map_or(0, |(at, _)| at);
            if !total.fits(limit) {
                prop_assert_eq!(truncate_middle_of(&text[..end], &text[start..], total, limit, None), truncate_middle(&text, limit, None));
            }
        }
    }
}
