//! Think blocks, which some models write between `<think>` and `</think>` before the answer. They are shown as
//! thinking and are not part of the reply. A block opens only at the start of a line, so that an answer may mention
//! the tags. Some templates open the block themselves, so that an answer contains only the closing tag.

const TAGS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// A classified piece of a streamed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThinkPiece {
    Text(String),
    Thought(String),
}

/// A filter that separates thinking from the answer in a stream, even if a tag is split.
#[derive(Debug)]
pub struct ThinkFilter {
    held: String,
    closing: Option<&'static str>,
    at_line_start: bool,
    /// A block has just ended, and the following line breaks belong to it.
    after_block: bool,
}

impl Default for ThinkFilter {
    fn default() -> Self {
        Self { held: String::new(), closing: None, at_line_start: true, after_block: false }
    }
}

impl ThinkFilter {
    /// Takes the next delta, and returns the pieces that are certain. Text that may become a tag is held back.
    pub fn push(&mut self, delta: &str) -> Vec<ThinkPiece> {
        self.held.push_str(delta);
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// Ends the answer, and returns the text that was held back, since it is not a tag.
    pub fn finish(&mut self) -> Vec<ThinkPiece> {
        let held = std::mem::take(&mut self.held);
        let mut pieces = Vec::new();
        self.emit(&mut pieces, &held);
        *self = Self::default();
        pieces
    }

    /// Emits the text up to and including the next tag. Returns true if there may be more to do.
    fn step(&mut self, pieces: &mut Vec<ThinkPiece>) -> bool {
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
        match self.find_opening() {
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

    /// Emits the held text, except for an end that may be the beginning of a tag.
    fn release(&mut self, pieces: &mut Vec<ThinkPiece>, tail: impl Fn(&str) -> usize) {
        let keep = tail(&self.held);
        let rest = self.held.split_off(self.held.len() - keep);
        let out = std::mem::replace(&mut self.held, rest);
        self.emit(pieces, &out);
    }

    fn emit(&mut self, pieces: &mut Vec<ThinkPiece>, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.closing.is_some() {
            pieces.push(ThinkPiece::Thought(text.to_owned()));
        } else {
            self.at_line_start = match text.trim_end_matches([' ', '\t']) {
                "" => self.at_line_start,
                line => line.ends_with('\n'),
            };
            pieces.push(ThinkPiece::Text(text.to_owned()));
        }
    }
}

/// Returns the answer without its think blocks, trimmed.
pub fn strip(text: &str) -> String {
    without_blocks(after_unopened_block(text).unwrap_or(text))
}

fn without_blocks(text: &str) -> String {
    let mut filter = ThinkFilter::default();
    let mut pieces = filter.push(text);
    pieces.extend(filter.finish());
    let answer = pieces.into_iter().filter_map(|piece| match piece {
        ThinkPiece::Text(text) => Some(text),
        ThinkPiece::Thought(_) => None,
    });
    answer.collect::<String>().trim().to_owned()
}

/// Returns the part after the first closing tag, if no opening tag precedes it: the text before it is thinking. A tag inside a line, in
/// quotation marks or in a code block is a mention: the templates of models write the tag first or last on its line.
pub fn after_unopened_block(text: &str) -> Option<&str> {
    let closing = |tag: &'static str| text.find(tag).map(|at| (at, at + tag.len()));
    let (at, end) = TAGS.iter().filter_map(|(_, close)| closing(close)).min()?;
    let before = &text[..at];
    let is_opened = TAGS.iter().any(|(open, _)| before.contains(open));
    let blank = [' ', '\t', '\r'];
    let (line_before, line_after) = (before.trim_end_matches(blank), text[end..].trim_start_matches(blank));
    let starts_line = line_before.is_empty() || line_before.ends_with('\n');
    let ends_line = line_after.is_empty() || line_after.starts_with('\n');
    let is_quoted = before.ends_with(['`', '"', '\'', '“', '‘', '「']);
    let is_in_code = before.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1;
    let is_mention = is_quoted || is_in_code || !(starts_line || ends_line);
    (!is_opened && !is_mention).then(|| &text[end..])
}

/// Returns the length of the longest end of `held` that is the beginning of one of `tags`.
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
    fn think_blocks_are_stripped() {
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
            ("Okay, the user greets me.\n</think>\n\nHello!", "Hello!"),
            ("hm</thinking>\nanswer", "answer"),
            ("hm\n</thinking>answer", "answer"),
            ("The closing tag **</think>** ends it (</think>).", "The closing tag **</think>** ends it (</think>)."),
            ("Like this:\n```\n</think>\n```", "Like this:\n```\n</think>\n```"),
            ("</think>\nanswer", "answer"),
            ("only thinking\n</think>", ""),
            ("hm\n</think>\n<think>more</think>\nanswer", "answer"),
            ("write `</think>` at the end", "write `</think>` at the end"),
            ("between <think> and </think>", "between <think> and </think>"),
            ("<think>a</think>\nb </think> c", "b </think> c"),
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
        let text: String =
            pieces.iter().map(|piece| if let ThinkPiece::Text(text) = piece { text } else { "" }).collect();
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
                ThinkPiece::Text(text) => Some(text),
                ThinkPiece::Thought(_) => None,
            }).collect();
            prop_assert_eq!(streamed.trim(), without_blocks(&text));
        }
    }
}
