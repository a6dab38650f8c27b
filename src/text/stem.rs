//! Stems English words by M. F. Porter's algorithm ("An algorithm for suffix stripping", 1980), exactly as SQLite's `porter`
//! does. This is own code, since `rust-stemmers` has only Porter's later algorithm, whose stems differ from those in existing
//! indexes.

/// Returns the stem of a word of lower-case ASCII letters. Any other word stays as it is.
pub fn stem(word: &str) -> String {
    /// The longest word that is stemmed; longer words are not English.
    const LONGEST: usize = 64;
    if !(3..=LONGEST).contains(&word.len()) || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut word = PorterWord(word.as_bytes().to_vec());
    word.strip_plural();
    word.strip_past();
    if word.ends("y") && word.has_vowel(word.0.len() - 1) {
        word.swap_last(b'i');
    }
    word.replace_ending(&STEP_2);
    word.replace_ending(&STEP_3);
    word.step_4();
    word.step_5();
    String::from_utf8(word.0).unwrap_or_default()
}

const STEP_2: [(&str, &str); 20] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("logi", "log"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
];

const STEP_3: [(&str, &str); 7] =
    [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];

const STEP_4: [&str; 18] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism", "ate", "iti", "ous",
    "ive", "ize",
];

struct PorterWord(Vec<u8>);

impl PorterWord {
    fn ends(&self, suffix: &str) -> bool {
        // Most comparisons already differ in the last letter.
        self.0.last() == suffix.as_bytes().last() && self.0.ends_with(suffix.as_bytes())
    }

    fn is_consonant(&self, at: usize) -> bool {
        match self.0[at] {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => at == 0 || !self.is_consonant(at - 1),
            _ => true,
        }
    }

    /// Returns Porter's measure of the first `length` letters: how often a consonant follows a vowel.
    fn measure(&self, length: usize) -> usize {
        (1..length).filter(|at| self.is_consonant(*at) && !self.is_consonant(*at - 1)).count()
    }

    fn has_vowel(&self, length: usize) -> bool {
        (0..length).any(|at| !self.is_consonant(at))
    }

    fn ends_in_double_consonant(&self) -> bool {
        let length = self.0.len();
        length >= 2 && self.0[length - 1] == self.0[length - 2] && self.is_consonant(length - 1)
    }

    /// Returns true if the first `length` letters end in consonant, vowel, consonant, and the last is not w, x or y.
    fn ends_in_short_syllable(&self, length: usize) -> bool {
        length >= 3
            && self.is_consonant(length - 1)
            && !self.is_consonant(length - 2)
            && self.is_consonant(length - 3)
            && !matches!(self.0[length - 1], b'w' | b'x' | b'y')
    }

    fn cut(&mut self, length: usize) {
        self.0.truncate(self.0.len() - length);
    }

    fn swap_last(&mut self, letter: u8) {
        self.cut(1);
        self.0.push(letter);
    }

    fn strip_plural(&mut self) {
        if self.ends("sses") || self.ends("ies") {
            self.cut(2);
        } else if self.ends("s") && !self.ends("ss") {
            self.cut(1);
        }
    }

    fn strip_past(&mut self) {
        if self.ends("eed") {
            if self.measure(self.0.len() - 3) > 0 {
                self.cut(1);
            }
            return;
        }
        let Some(suffix) = ["ed", "ing"].into_iter().find(|suffix| self.ends(suffix)) else { return };
        if !self.has_vowel(self.0.len() - suffix.len()) {
            return;
        }
        self.cut(suffix.len());
        if self.ends("at") || self.ends("bl") || self.ends("iz") {
            self.0.push(b'e');
        } else if self.ends_in_double_consonant() && !matches!(self.0.last(), Some(b'l' | b's' | b'z')) {
            self.cut(1);
        } else if self.measure(self.0.len()) == 1 && self.ends_in_short_syllable(self.0.len()) {
            self.0.push(b'e');
        }
    }

    /// Replaces the first of these endings that matches, if the measure of the stem before it is not zero.
    fn replace_ending(&mut self, endings: &[(&str, &str)]) {
        if let Some((old, new)) = endings.iter().find(|(old, _)| self.ends(old))
            && self.measure(self.0.len() - old.len()) > 0
        {
            self.cut(old.len());
            self.0.extend_from_slice(new.as_bytes());
        }
    }

    fn step_4(&mut self) {
        let is_ion = self.ends("ion") && self.0.len() >= 4 && matches!(self.0[self.0.len() - 4], b's' | b't');
        let length = match STEP_4.iter().find(|suffix| self.ends(suffix)) {
            Some(suffix) => suffix.len(),
            None if is_ion => 3,
            None => return,
        };
        if self.measure(self.0.len() - length) > 1 {
            self.cut(length);
        }
    }

    fn step_5(&mut self) {
        if self.ends("e") {
            let before = self.0.len() - 1;
            let measure = self.measure(before);
            if measure > 1 || (measure == 1 && !self.ends_in_short_syllable(before)) {
                self.cut(1);
            }
        }
        if self.ends("ll") && self.measure(self.0.len() - 1) > 1 {
            self.cut(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_follow_porter() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("cats", "cat"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("sing", "sing"),
            ("motoring", "motor"),
            ("conflated", "conflat"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("filing", "file"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("vietnamization", "vietnam"),
            ("operator", "oper"),
            ("hopefulness", "hope"),
            ("electrical", "electr"),
            ("adjustment", "adjust"),
            ("replacement", "replac"),
            ("adoption", "adopt"),
            ("controll", "control"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("go", "go"),
            ("v2", "v2"),
            ("é", "é"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn stems_equal_those_of_sqlite() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE VIRTUAL TABLE t USING fts5(w, tokenize = 'porter ascii');
                 CREATE VIRTUAL TABLE v USING fts5vocab(t, instance);",
            )
            .unwrap();
        let text = include_str!("../memory/recall.rs").to_ascii_lowercase();
        let words: Vec<_> = text.split(|c: char| !c.is_ascii_lowercase()).filter(|word| word.len() > 2).collect();
        for (id, word) in (1_i64..).zip(&words) {
            connection.execute("INSERT INTO t (rowid, w) VALUES (?, ?)", rusqlite::params![id, word]).unwrap();
        }
        let mut statement = connection.prepare("SELECT doc, term FROM v ORDER BY doc").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get::<_, usize>(0)?, row.get::<_, String>(1)?))).unwrap();
        let mut seen = 0;
        for row in rows {
            let (doc, term) = row.unwrap();
            assert_eq!(stem(words[doc - 1]), term, "{}", words[doc - 1]);
            seen += 1;
        }
        assert_eq!(seen, words.len());
    }
}
