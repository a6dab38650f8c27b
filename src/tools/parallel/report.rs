//! The result of a plan as the model reads it: a section for each call, in input order, within one limit.

use crate::tools::OutputLimit;
use crate::tools::truncation::TextExtent;

/// The section of one call.
pub(super) struct ReportSection {
    /// The heading, one line.
    pub head: String,
    /// The text, which may be empty.
    pub text: String,
}

/// Returns how much of each section's text fits into `limit` next to the headings. The bound is the same for all sections, but
/// long texts get the room that short texts leave.
pub(super) fn text_limit(sections: &[ReportSection], limit: OutputLimit) -> OutputLimit {
    let heads = TextExtent::of(&sections.iter().map(|section| format!("\n{}\n\n", section.head)).collect::<String>());
    let wants: Vec<TextExtent> = sections.iter().map(|section| TextExtent::of(&section.text)).collect();
    OutputLimit {
        chars: largest_equal_bound(wants.iter().map(|want| want.chars), limit.chars.saturating_sub(heads.chars)),
        lines: largest_equal_bound(wants.iter().map(|want| want.lines), limit.lines.saturating_sub(heads.lines)),
    }
}

/// Joins the sections to one text.
pub(super) fn join_sections(sections: &[ReportSection]) -> String {
    let one = |section: &ReportSection| format!("{}\n{}", section.head, section.text.trim_end()).trim_end().to_owned();
    sections.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// Returns the highest bound for which the `wants`, each cut to the bound, fit into `room` together.
fn largest_equal_bound(wants: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut wants: Vec<usize> = wants.collect();
    wants.sort_unstable();
    let mut left = room;
    for (index, want) in wants.iter().enumerate() {
        let each = left / (wants.len() - index);
        if *want > each {
            return each;
        }
        left -= want;
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_short_texts_leave_goes_to_long_ones() {
        for (wants, room, expected) in [
            (vec![], 9, 9),
            (vec![3, 4], 9, 9),
            (vec![10, 10], 9, 4),
            (vec![1, 100, 2], 20, 17),
            (vec![100, 5, 100], 25, 10),
            (vec![1, 1], 1, 0),
        ] {
            assert_eq!(largest_equal_bound(wants.iter().copied(), room), expected, "{wants:?} {room}");
        }
    }
}
