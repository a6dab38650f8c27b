//! What the model reads of a plan: a section for each call, in the order asked, all within one limit.

use super::super::{Extent, OutputLimit};

/// What is said of one call.
pub(super) struct Section {
    /// One line.
    pub head: String,
    /// May be empty.
    pub text: String,
}

/// How much of each section's text fits into `limit` beside the heads: the same for all, but what short ones leave is
/// there for long ones.
pub(super) fn share(sections: &[Section], limit: OutputLimit) -> OutputLimit {
    let heads = Extent::of(&sections.iter().map(|section| format!("\n{}\n\n", section.head)).collect::<String>());
    let wants: Vec<Extent> = sections.iter().map(|section| Extent::of(&section.text)).collect();
    OutputLimit {
        chars: level(wants.iter().map(|want| want.chars), limit.chars.saturating_sub(heads.chars)),
        lines: level(wants.iter().map(|want| want.lines), limit.lines.saturating_sub(heads.lines)),
    }
}

/// The sections as one text.
pub(super) fn joined(sections: &[Section]) -> String {
    let one = |section: &Section| format!("{}\n{}", section.head, section.text.trim_end()).trim_end().to_owned();
    sections.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// The highest level at which `wants`, each cut to it, add up to no more than `room`.
fn level(wants: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut wants: Vec<usize> = wants.collect();
    wants.sort_unstable();
    let mut left = room;
    for (place, want) in wants.iter().enumerate() {
        let each = left / (wants.len() - place);
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
    fn the_room_is_shared_and_what_is_left_goes_to_the_long() {
        for (wants, room, expected) in [
            (vec![], 9, 9),
            (vec![3, 4], 9, 9),
            (vec![10, 10], 9, 4),
            (vec![1, 100, 2], 20, 17),
            (vec![100, 5, 100], 25, 10),
            (vec![1, 1], 1, 0),
        ] {
            assert_eq!(level(wants.iter().copied(), room), expected, "{wants:?} {room}");
        }
    }
}
