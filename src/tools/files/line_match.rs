//! Finds blocks of lines in a text: exact matches, or matches with different white space at line ends and different indentation.

/// The maximum number of line numbers that an error names.
const MAX_NAMED_LINES: usize = 10;
/// The maximum number of line comparisons in one call.
const MAX_COMPARISONS: u64 = 20_000_000;
/// The maximum number of places that are reported.
const MAX_PLACES: usize = 1_000;
/// The maximum numbers of lines, of the block and of the text, that the search for a similar place compares.
const SIMILAR_BLOCK: usize = 12;
const SIMILAR_LINES: usize = 20_000;
/// The longest part of a line that is compared for its similarity, in characters.
const SIMILAR_CHARS: usize = 200;

/// The difference between the indentation of the block and that of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndentShift {
    /// The text has this prefix before each line of the block; it may be empty.
    Added(String),
    /// The block has this prefix before each line of the text.
    Removed(String),
}

impl IndentShift {
    pub(super) fn none() -> Self {
        Self::Added(String::new())
    }

    /// Converts a line of the block to the indentation of the text.
    pub(super) fn apply(&self, line: &str) -> String {
        match self {
            _ if line.trim().is_empty() => line.to_owned(),
            Self::Added(indent) => format!("{indent}{line}"),
            Self::Removed(indent) => {
                let common = indent.chars().zip(line.chars()).take_while(|(one, other)| one == other).count();
                line.chars().skip(common).collect()
            }
        }
    }
}

/// A place where a block was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockMatch {
    /// The index of its first line.
    pub line: usize,
    pub shift: IndentShift,
}

/// A search for blocks, with one limit on the work of all its searches together.
pub(super) struct BlockSearch<'a> {
    lines: &'a [&'a str],
    left: u64,
}

impl<'a> BlockSearch<'a> {
    pub(super) fn new(lines: &'a [&'a str]) -> Self {
        Self { lines, left: MAX_COMPARISONS }
    }

    /// Returns the places at or after line `from` that equal the block.
    ///
    /// # Errors
    /// The search takes too long.
    pub(super) fn exact(&mut self, block: &[&str], from: usize) -> Result<Vec<BlockMatch>, String> {
        self.search(block, from, |place| {
            place.iter().zip(block).all(|(one, other)| one == other).then(IndentShift::none)
        })
    }

    /// Returns the places at or after line `from` that differ from the block only in white space at line ends, and in an equal
    /// change of the indentation of all lines.
    ///
    /// # Errors
    /// The search takes too long.
    pub(super) fn tolerant(&mut self, block: &[&str], from: usize) -> Result<Vec<BlockMatch>, String> {
        if block.iter().all(|line| line.trim().is_empty()) {
            return Ok(Vec::new());
        }
        self.search(block, from, |place| shift_between(place, block))
    }

    fn search(
        &mut self,
        block: &[&str],
        from: usize,
        compare: impl Fn(&[&str]) -> Option<IndentShift>,
    ) -> Result<Vec<BlockMatch>, String> {
        let mut places = Vec::new();
        if block.is_empty() || from >= self.lines.len() {
            return Ok(places);
        }
        for (line, place) in self.lines.windows(block.len()).enumerate().skip(from) {
            // The first comparison already rules out most places.
            let is_likely = place[0].trim() == block[0].trim();
            let cost = if is_likely { block.len() as u64 } else { 1 };
            self.left = self.left.checked_sub(cost).ok_or("finding the place takes too long; give more exact text")?;
            if is_likely && let Some(shift) = compare(place) {
                places.push(BlockMatch { line, shift });
                if places.len() == MAX_PLACES {
                    break;
                }
            }
        }
        Ok(places)
    }

    /// Returns the index of the line where the text is most similar to the block; `None` if nothing is similar.
    pub(super) fn most_similar(&self, block: &[&str]) -> Option<usize> {
        let skipped = block.iter().take_while(|line| line.trim().is_empty()).count();
        let block = &block[skipped..block.len().min(skipped + SIMILAR_BLOCK)];
        let wanted = block.first()?;
        let equal_lines = |at: usize| {
            let place = self.lines[at..].iter().zip(block);
            place.filter(|(one, other)| !one.trim().is_empty() && one.trim() == other.trim()).count()
        };
        let end = self.lines.len().min(SIMILAR_LINES);
        let best = (0..end).map(|at| (equal_lines(at), at)).max_by_key(|(equal, at)| (*equal, std::cmp::Reverse(*at)));
        let by_similarity = || nearest_lines(&self.lines[..end], wanted).first().map(|(at, _)| *at);
        let found = best.filter(|(equal, _)| *equal > 0).map(|(_, at)| at).or_else(by_similarity)?;
        Some(found.saturating_sub(skipped))
    }
}

/// Returns the shift that converts all lines of the block to those of the text; `None` if there is none.
fn shift_between(place: &[&str], block: &[&str]) -> Option<IndentShift> {
    let mut common: Option<IndentShift> = None;
    for (line, wanted) in place.iter().zip(block) {
        let (body, wanted_body) = (line.trim(), wanted.trim());
        if body != wanted_body {
            return None;
        }
        if body.is_empty() {
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let wanted_indent = &wanted[..wanted.len() - wanted.trim_start().len()];
        let shift = match (indent.strip_suffix(wanted_indent), wanted_indent.strip_suffix(indent)) {
            (Some(added), _) => IndentShift::Added(added.to_owned()),
            (None, Some(removed)) => IndentShift::Removed(removed.to_owned()),
            (None, None) => return None,
        };
        match &common {
            Some(known) if *known != shift => return None,
            Some(_) => {}
            None => common = Some(shift),
        }
    }
    common
}

/// The minimum similarity of a line that an error names; 1 means equal.
const MIN_SIMILARITY: f64 = 0.6;
/// The maximum number of similar lines that an error names.
const MAX_NEAREST: usize = 3;

/// Returns the lines that are most similar to `wanted`, best first: their index and their similarity.
pub(super) fn nearest_lines(lines: &[&str], wanted: &str) -> Vec<(usize, f64)> {
    let clip = |line: &str| line.trim().chars().take(SIMILAR_CHARS).collect::<String>();
    let wanted = clip(wanted);
    let similar = |(at, line): (usize, &&str)| {
        let similarity = strsim::normalized_levenshtein(&clip(line), &wanted);
        (!line.trim().is_empty() && similarity >= MIN_SIMILARITY).then_some((at, similarity))
    };
    let mut found: Vec<_> = lines.iter().enumerate().filter_map(similar).collect();
    found.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    found.truncate(MAX_NEAREST);
    found
}

/// Formats line numbers for an error.
pub(super) fn line_list(lines: impl ExactSizeIterator<Item = usize>) -> String {
    let more = if lines.len() > MAX_NAMED_LINES { ", …" } else { "" };
    let named: Vec<_> = lines.take(MAX_NAMED_LINES).map(|line| line.to_string()).collect();
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_other_spaces_but_the_same_form() {
        let added = |indent: &str| Some(IndentShift::Added(indent.to_owned()));
        let removed = |indent: &str| Some(IndentShift::Removed(indent.to_owned()));
        for (text, block, expected) in [
            ("a\nb", "a\nb", added("")),
            ("a  \nb\t", "a\nb  ", added("")),
            ("    if x:\n        y\n", "if x:\n    y", added("    ")),
            ("\tif x {\n\n\t\ty\n", "if x {\n   \n\ty", added("\t")),
            ("if x:\n    y", "  if x:\n      y", removed("  ")),
            ("if x:\n    y", "if x:\n  y", None),
            ("if x:\n    y", "  if x:\n    y", None),
            ("\ta", "    a", None),
            ("a\n\nb", "a\nb", None),
            ("\n\n", "\n", None),
        ] {
            let lines: Vec<&str> = text.lines().collect();
            let block: Vec<&str> = block.lines().collect();
            let found = BlockSearch::new(&lines).tolerant(&block, 0).unwrap();
            assert_eq!(found.first().map(|place| place.shift.clone()), expected, "{text:?} {block:?}");
        }
        assert_eq!(IndentShift::Added("  ".to_owned()).apply("x"), "  x");
        assert_eq!(IndentShift::Removed("    ".to_owned()).apply("  x"), "x");
        assert_eq!(IndentShift::Removed("\t".to_owned()).apply("\t\tx"), "\tx");
        assert_eq!(IndentShift::Added("  ".to_owned()).apply(""), "");
    }

    #[test]
    fn a_search_is_bounded() {
        let lines = vec![""; 20_000];
        let mut block = vec![""; 10_000];
        block.push("x");
        let error = BlockSearch::new(&lines).exact(&block, 0).unwrap_err();
        assert!(error.contains("takes too long"), "{error}");
    }
}
