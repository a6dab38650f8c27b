//! What people say in the bench: no sentence twice, the same sentences each time.

/// Words that there are; how often each comes follows Zipf's law, as in any language.
pub const VOCABULARY: u64 = 6_000;
/// Words of a sentence.
pub const WORDS: usize = 12;

/// One who talks.
pub struct Talk {
    dice: u64,
}

impl Default for Talk {
    fn default() -> Self {
        Self { dice: 0x9e37_79b9_7f4a_7c15 }
    }
}

impl Talk {
    pub fn sentence(&mut self) -> String {
        let words: Vec<String> = (0..WORDS).map(|_| spelled(self.word())).collect();
        words.join(" ")
    }

    /// A word; the one of the least number comes most often.
    fn word(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let part = (self.dice >> 11) as f64 / (1_u64 << 53) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the vocabulary")]
        let word = (VOCABULARY as f64).powf(part) as u64;
        word
    }
}

/// A word as one could say it, each number another one.
fn spelled(mut number: u64) -> String {
    const SYLLABLES: [&str; 16] =
        ["ba", "do", "ki", "lu", "me", "na", "po", "ra", "su", "ti", "vo", "wa", "xe", "zo", "fu", "ga"];
    let mut word = String::from("k");
    while number > 0 {
        word += SYLLABLES[usize::try_from(number % 16).unwrap_or(0)];
        number /= 16;
    }
    word + "x"
}
