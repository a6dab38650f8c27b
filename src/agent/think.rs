//! Think blocks: what some models write between `<think>` and `</think>` before they answer. It is shown as thinking
//! and is no part of the reply. A block opens only at the start of a line, so that an answer may speak of the tags.

const TAGS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// A piece of a streamed answer, told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Thought(String),
}

/// Tells thinking and answer apart while they arrive; a tag may be cut anywhere.
#[derive(Debug)]
pub struct ThinkFilter {
    held: String,
    closing: Option<&'static str>,
    at_line_start: bool,
    /// A block has just ended: the line breaks that follow belong to it.
    after_block: bool,
}

impl Default for ThinkFilter {
    fn default() -> Self {
        Self { held: String::new(), closing: None, at_line_start: true, after_block: false }
    }
}

impl ThinkFilter {
    /// Takes the next piece of the answer; what may still become a tag is held back.
    pub fn push(&mut self, delta: &str) -> Vec<Piece> {
        self.held.push_str(delta);
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// The answer is complete: what was held back is no tag.
    pub fn finish(&mut self) -> Vec<Piece> {
        let held = std::mem::take(&mut self.held);
        let mut pieces = Vec::new();
        self.emit(&mut pieces, &held);
        *self = Self::default();
        pieces
    }

    /// Emits up to and including the next tag; answers whether there may be more to do.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        if let Some(closing) = self.closing {
            return match self.held.find(closing) {
                Some(at) => {
                    let rest = self.held.split_off(at + closing.len());
                    let thought = std::mem::replace(&mut self.held, rest);
                    self.emit(pieces, &thought[..at]);
                    self.closing = None;
                    self.at_line_start = true;
                    self.after_block = true;
                    true
                }
                None => {
                    self.release(pieces, |held| partial_tag(held, &[closing]));
                    false
                }
            };
        }
        if self.after_block {
            let skipped = self.held.len() - self.held.trim_start_matches(['\n', '\r']).len();
            self.held.drain(..skipped);
            if self.held.is_empty() {
                return false;
            }
            self.after_block = false;
        }
        let opening = self.find_opening();
        match opening {
            Some((at, tag, closing)) => {
                let rest = self.held.split_off(at + tag.len());
                let text = std::mem::replace(&mut self.held, rest);
                self.emit(pieces, &text[..at]);
                self.closing = Some(closing);
                true
            }
            None => {
                self.release(pieces, |held| partial_tag(held, &TAGS.map(|(open, _)| open)));
                false
            }
        }
    }

    fn find_opening(&self) -> Option<(usize, &'static str, &'static str)> {
        TAGS.iter()
            .flat_map(|(open, close)| self.held.match_indices(open).map(move |(at, _)| (at, *open, *close)))
            .filter(|(at, ..)| self.is_line_start(*at))
            .min_by_key(|(at, ..)| *at)
    }

    fn is_line_start(&self, at: usize) -> bool {
        let before = self.held[..at].trim_end_matches([' ', '\t']);
        before.ends_with('\n') || (before.is_empty() && self.at_line_start)
    }

    /// Emits what is held but for a tail that may be the beginning of a tag.
    fn release(&mut self, pieces: &mut Vec<Piece>, tail: impl Fn(&str) -> usize) {
        let keep = tail(&self.held);
        let rest = self.held.split_off(self.held.len() - keep);
        let out = std::mem::replace(&mut self.held, rest);
        self.emit(pieces, &out);
    }

    fn emit(&mut self, pieces: &mut Vec<Piece>, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.closing.is_some() {
            pieces.push(Piece::Thought(text.to_owned()));
        } else {
            self.at_line_start = match text.trim_end_matches([' ', '\t']) {
                "" => self.at_line_start,
                line => line.ends_with('\n'),
            };
            pieces.push(Piece::Text(text.to_owned()));
        }
    }
}

/// The answer without its think blocks, trimmed.
pub fn strip(text: &str) -> String {
    let mut filter = ThinkFilter::default();
    let mut pieces = filter.push(text);
    pieces.extend(filter.finish());
    let mut answer = String::with_capacity(text.len());
    for piece in pieces {
        if let Piece::Text(text) = piece {
            answer.push_str(&text);
        }
    }
    answer.trim().to_owned()
}

/// The length of the longest tail that is the beginning of one of `tags`.
fn partial_tag(held: &str, tags: &[&str]) -> usize {
    let longest = tags.iter().map(|tag| tag.len()).max().unwrap_or_default();
    (1..longest.min(held.len() + 1))
        .rev()
        .find(|length| {
            let at = held.len() - length;
            held.is_char_boundary(at) && tags.iter().any(|tag| tag.starts_with(&held[at..]))
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_are_stripped() {
        for (text, answer) in [
            ("plain", "plain"),
            ("<think>hm</think>answer", "answer"),
            ("<thinking>hm</thinking>\n\nanswer", "answer"),
            ("a\n<think>x</think>\nb", "a\nb"),
            ("<think>never closed", ""),
            ("use the <think> tag", "use the <think> tag"),
            ("<think></think>", ""),
            ("a < b and <thin", "a < b and <thin"),
            ("  <think>x</think>你好", "你好"),
        ] {
            assert_eq!(strip(text), answer, "{text:?}");
        }
    }

    #[test]
    fn a_line_break_that_comes_late_still_belongs_to_the_block() {
        let mut filter = ThinkFilter::default();
        let mut pieces = Vec::new();
        for delta in ["a\n<think>", "x</think>", "\n", "b\n", "c"] {
            pieces.extend(filter.push(delta));
        }
        let text: String = pieces.iter().map(|piece| if let Piece::Text(text) = piece { text } else { "" }).collect();
        assert_eq!(text, "a\nb\nc");
    }

    proptest! {
        #[test]
        fn any_split_tells_the_same_apart(
            parts in prop::collection::vec(prop::sample::select(vec!["<think>", "</think>", "<thinking>", "</thinking>", "\n", "a ", "<", "思"]), 0..12),
            size in 1usize..5,
        ) {
            let text = parts.concat();
            let mut filter = ThinkFilter::default();
            let mut pieces = Vec::new();
            for chunk in text.chars().collect::<Vec<_>>().chunks(size) {
                pieces.extend(filter.push(&chunk.iter().collect::<String>()));
            }
            pieces.extend(filter.finish());
            let streamed: String = pieces.into_iter().filter_map(|piece| match piece {
                Piece::Text(text) => Some(text),
                Piece::Thought(_) => None,
            }).collect();
            prop_assert_eq!(streamed.trim(), strip(&text));
        }
    }
}
