//! Positions in a text: as models count them, as servers count them, and as byte offsets.

use std::cell::RefCell;
use std::collections::HashMap;

use lsp_types::Position;

/// The number of characters between two cached places of a line.
const CHECKPOINT_CHARS: usize = 1_024;

/// The unit in which a server counts the characters of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PositionEncoding {
    Utf8,
    Utf16,
    Utf32,
}

impl PositionEncoding {
    /// Returns the encoding with this name in the protocol.
    ///
    /// # Errors
    /// The client did not offer this encoding.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        match name {
            "utf-8" => Ok(Self::Utf8),
            "utf-16" => Ok(Self::Utf16),
            "utf-32" => Ok(Self::Utf32),
            _ => Err(format!("it counts characters by an encoding that was not offered ({name:?})")),
        }
    }

    fn width(self, character: char) -> usize {
        match self {
            Self::Utf8 => character.len_utf8(),
            Self::Utf16 => character.len_utf16(),
            Self::Utf32 => 1,
        }
    }
}

/// An index of the lines of a text. Lines end with LF, CR LF or CR, as in the protocol.
#[derive(Debug)]
pub(super) struct PositionIndex<'a> {
    text: &'a str,
    encoding: PositionEncoding,
    /// The byte offsets at which lines start.
    starts: Vec<usize>,
    /// Cached places in the lines that were used, since one long line may have many positions.
    checkpoints: RefCell<HashMap<usize, Vec<LinePosition>>>,
}

/// A place within a line, in several units from the start of the line.
#[derive(Clone, Copy, Debug, Default)]
struct LinePosition {
    units: usize,
    characters: usize,
    bytes: usize,
}

impl LinePosition {
    fn after(self, character: char, encoding: PositionEncoding) -> Self {
        Self {
            units: self.units + encoding.width(character),
            characters: self.characters + 1,
            bytes: self.bytes + character.len_utf8(),
        }
    }
}

impl<'a> PositionIndex<'a> {
    pub(super) fn new(text: &'a str, encoding: PositionEncoding) -> Self {
        let bytes = text.as_bytes();
        let is_end = |at: &usize| bytes[*at] == b'\n' || bytes[*at] == b'\r' && bytes.get(at + 1) != Some(&b'\n');
        let starts = (0..bytes.len()).filter(is_end).map(|at| at + 1);
        Self { text, encoding, starts: std::iter::once(0).chain(starts).collect(), checkpoints: RefCell::default() }
    }

    /// Returns a line without its line break. Lines are counted from 0.
    pub(super) fn line(&self, number: usize) -> Option<&'a str> {
        let start = *self.starts.get(number)?;
        let end = self.starts.get(number + 1).copied().unwrap_or(self.text.len());
        Some(self.text[start..end].trim_end_matches(['\n', '\r']))
    }

    /// Converts a line and a character, which models count from 1, to a position as the server counts.
    ///
    /// # Errors
    /// There is no such place; the error states the valid range.
    pub(super) fn to_server(&self, line: u32, character: u32) -> Result<Position, String> {
        let lines = self.starts.len() - usize::from(self.text.is_empty() || self.text.ends_with(['\n', '\r']));
        let found = (line as usize).checked_sub(1).filter(|at| *at < lines.max(1)).and_then(|at| self.line(at));
        let Some(text) = found else { return Err(format!("there is no line {line}: the file has {lines} lines")) };
        let length = text.chars().count();
        let Some(before) = (character as usize).checked_sub(1).filter(|before| *before <= length) else {
            return Err(format!("there is no character {character} in line {line}: it has {length} characters"));
        };
        let units = text.chars().take(before).map(|character| self.encoding.width(character)).sum::<usize>();
        Ok(Position::new(line - 1, u32::try_from(units).unwrap_or(u32::MAX)))
    }

    /// Returns the last cached place of a line that is not after `units`.
    fn place_before(&self, number: usize, line: &str, units: usize) -> LinePosition {
        let mut checkpoints = self.checkpoints.borrow_mut();
        let checkpoints = checkpoints.entry(number).or_insert_with(|| {
            let places = line.chars().scan(LinePosition::default(), |place, character| {
                Some(std::mem::replace(place, place.after(character, self.encoding)))
            });
            places.step_by(CHECKPOINT_CHARS).collect()
        });
        let reached = checkpoints.partition_point(|place| place.units <= units);
        let mut place = reached.checked_sub(1).map_or_else(LinePosition::default, |last| checkpoints[last]);
        for character in line[place.bytes..].chars() {
            let next = place.after(character, self.encoding);
            if next.units > units {
                break;
            }
            place = next;
        }
        place
    }

    /// Converts a server's position to a line and a character, counted from 1. A position beyond the text is moved into it.
    pub(super) fn to_model(&self, position: Position) -> (u32, usize) {
        let at = position.line as usize;
        let line = self.line(at).unwrap_or_default();
        let place = self.place_before(at, line, position.character as usize);
        (position.line.saturating_add(1), place.characters + 1)
    }

    /// Returns the byte offset of a server's position. A position beyond the end of a line means its end, as in the protocol.
    ///
    /// # Errors
    /// There is no such line, or the position lies within a character.
    pub(super) fn offset(&self, position: Position) -> Result<usize, String> {
        let (at, wanted) = (position.line as usize, position.character as usize);
        // Some servers name the end of a text without a final line break as the line after it.
        if at == self.starts.len() && wanted == 0 {
            return Ok(self.text.len());
        }
        let outside = || format!("line {} does not exist", u64::from(position.line) + 1);
        let line = self.line(at).ok_or_else(outside)?;
        let place = self.place_before(at, line, wanted);
        if place.units < wanted && place.bytes < line.len() {
            return Err(format!("a position in line {} is within a character", at + 1));
        }
        Ok(self.starts[at] + place.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::PositionEncoding::{Utf8, Utf16, Utf32};
    use super::*;

    const TEXT: &str = "道友 = \"😀e\u{301}\"\r\nb\rc\n";

    #[test]
    fn characters_are_counted_as_each_side_does() {
        for (line, character, utf8, utf16, utf32) in
            [(1, 1, 0, 0, 0), (1, 3, 6, 2, 2), (1, 8, 14, 8, 7), (1, 11, 18, 11, 10), (2, 2, 1, 1, 1), (3, 1, 0, 0, 0)]
        {
            for (encoding, units) in [(Utf8, utf8), (Utf16, utf16), (Utf32, utf32)] {
                let lines = PositionIndex::new(TEXT, encoding);
                let position = lines.to_server(line, character).unwrap();
                assert_eq!(position, Position::new(line - 1, units), "{line}:{character} {encoding:?}");
                assert_eq!(lines.to_model(position), (line, character as usize), "{position:?}");
                let offset = lines.offset(position).unwrap();
                let before = TEXT[..offset].rsplit(['\n', '\r']).next().unwrap();
                assert_eq!(before.chars().count() + 1, character as usize, "{position:?}");
            }
        }
    }

    #[test]
    fn places_that_do_not_exist_are_named() {
        for (text, line, character, expected) in [
            (TEXT, 0, 1, "the file has 3 lines"),
            (TEXT, 4, 1, "the file has 3 lines"),
            (TEXT, 1, 0, "it has 10 characters"),
            (TEXT, 1, 12, "it has 10 characters"),
            (TEXT, u32::MAX, u32::MAX, "no line"),
            ("a", 2, 1, "the file has 1 lines"),
            ("", 1, 2, "it has 0 characters"),
        ] {
            let error = PositionIndex::new(text, Utf16).to_server(line, character).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(PositionIndex::new("", Utf8).to_server(1, 1), Ok(Position::new(0, 0)));
    }

    #[test]
    fn offsets_are_within_the_text() {
        for (text, line, character, expected) in [
            ("ab\ncd", 0, 99, Ok(2)),
            ("ab\ncd", 1, 2, Ok(5)),
            ("ab\ncd", 2, 0, Ok(5)),
            ("ab\ncd", 2, 1, Err("line 3 does not exist")),
            ("ab\ncd", u32::MAX, 0, Err("does not exist")),
            ("😀", 0, 1, Err("within a character")),
            ("😀", 0, 2, Ok(4)),
            ("", 0, 0, Ok(0)),
        ] {
            let found = PositionIndex::new(text, Utf16).offset(Position::new(line, character));
            match (found, expected) {
                (Ok(offset), Ok(expected)) => assert_eq!(offset, expected, "{text:?} {line}:{character}"),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (found, expected) => panic!("{text:?} {line}:{character}: {found:?} {expected:?}"),
            }
        }
    }

    #[test]
    fn places_in_a_long_line_are_found_from_the_nearest_checkpoint() {
        let text = "道😀a".repeat(5_000);
        let index = PositionIndex::new(&text, Utf16);
        for (units, character, offset) in [
            (0, 1, 0),
            (4, 4, 8),
            (4_096, 3_073, 8_192),
            (4_099, 3_075, 8_199),
            (19_999, 15_000, 39_999),
            (99_999, 15_001, 40_000),
        ] {
            let position = Position::new(0, units);
            assert_eq!((index.to_model(position), index.offset(position)), ((1, character), Ok(offset)), "{units}");
        }
        assert!(index.offset(Position::new(0, 4_098)).is_err());
    }
}
