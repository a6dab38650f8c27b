//! Finds the known name that a misspelled name most likely means.

/// Measures how similar two names are, from 0 to 1.
pub type Similarity = fn(&str, &str) -> f64;

/// The similarity that tolerates typing errors: the share of characters that need no insertion, deletion, substitution or
/// transposition.
pub const BY_EDITS: Similarity = strsim::normalized_damerau_levenshtein;

/// The similarity that favours a common beginning.
pub const BY_BEGINNING: Similarity = strsim::jaro_winkler;

/// The maximum number of characters of a name that are compared: the work grows with the product of the lengths.
const COMPARED: usize = 100;

/// Returns the value of the known name that is most similar to `name`, if it is at least `least` similar. If several names are
/// equally similar, the last one counts.
pub fn nearest<'a, T>(
    name: &str,
    known: impl IntoIterator<Item = (&'a str, T)>,
    similarity: Similarity,
    least: f64,
) -> Option<T> {
    let name = name.char_indices().nth(COMPARED).map_or(name, |(end, _)| &name[..end]);
    let scored = known.into_iter().map(|(known, value)| (similarity(known, name), value));
    let (score, value) = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (score >= least).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_found_if_it_is_similar_enough() {
        for (name, least, expected) in [("statsu", 0.5, Some(2)), ("stop", 0.9, Some(1)), ("banana", 0.5, None)] {
            let found = nearest(name, [("stop", 1), ("status", 2)], BY_EDITS, least);
            assert_eq!(found, expected, "{name} {least}");
        }
        // Of a long name, only the beginning is compared: 4 of 100 characters, not of 1,004.
        assert_eq!(nearest(&format!("stop{}", "ö".repeat(1_000)), [("stop", 1)], BY_EDITS, 0.03), Some(1));
        assert_eq!(nearest("stat", [("stop", 1), ("status", 2)], BY_BEGINNING, 0.75), Some(2));
    }
}
