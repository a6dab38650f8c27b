//! Generates sentences for the benchmark. No sentence repeats, and each run generates the same ones.

use super::support::spelled;

/// The size of the vocabulary. Word frequencies follow Zipf's law, as in any language.
pub const VOCABULARY: u64 = 6_000;
/// The number of words in a sentence.
pub const WORDS: usize = 12;

/// A generator of sentences.
pub struct SentenceGenerator {
    state: u64,
}

impl Default for SentenceGenerator {
    fn default() -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15 }
    }
}

impl SentenceGenerator {
    pub fn sentence(&mut self) -> String {
        let words: Vec<String> = (0..WORDS).map(|_| spelled(self.word())).collect();
        words.join(" ")
    }

    /// Returns a word. Lower numbers are more frequent.
    fn word(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let part = (self.state >> 11) as f64 / (1_u64 << 53) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the vocabulary")]
        let word = (VOCABULARY as f64).powf(part) as usize;
        word
    }
}
