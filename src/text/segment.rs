//! Splits text into search terms. A word of a script with spaces is a term, in lower case, without accents, and stemmed if it
//! is English. In a script without spaces, each character and each pair of neighbours is a term.

use std::collections::HashSet;
use std::sync::LazyLock;

use daoyou_channels::text::beginning;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};

use super::script::is_unspaced;
use super::stem::stem;

/// The version of the terms. An index of another version is rebuilt.
pub const SEGMENT_VERSION: u32 = 1;

/// The beginning of a text that is segmented, in bytes.
const TEXT_LIMIT: usize = 64 * 1024;

/// The longest term of a word, in bytes. Longer words are cut.
const WORD_LIMIT: usize = 64;

/// The parts of a query that count: its beginning and its end, each with this many bytes.
const QUERY_LIMIT: usize = 2_048;

/// The maximum number of terms of a query. If there are more, the first and the last ones count.
const QUERY_TERMS: usize = 64;

/// The weights of a single character, and of a pair with one of [`WEAK_CHARS`]. Any other pair has weight 1.
const CHAR_WEIGHT: f64 = 0.3;
const WEAK_PAIR_WEIGHT: f64 = 0.25;

/// A term of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchTerm {
    pub text: String,
    /// The weight relative to another term that is equally rare.
    pub weight: f64,
}

/// Returns the terms of a text in order, with repetitions.
pub fn index_terms(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    visit_terms(text, |_| true, |term| terms.push(term.to_owned()));
    terms
}

/// Calls `visit` with each of [`index_terms`] whose text before stemming passes `may_match`. Returns the number of all terms.
/// Terms that do not pass are not built.
pub fn visit_terms(text: &str, may_match: impl Fn(&str) -> bool, mut visit: impl FnMut(&str)) -> usize {
    let mut count = 0;
    for token in tokens(&fold(beginning(text, TEXT_LIMIT))) {
        match token {
            TextRun::Word(word) => {
                count += 1;
                if may_match(word) {
                    visit(&stem(word));
                }
            }
            TextRun::Unspaced(run) => {
                for (at, c) in run.char_indices() {
                    count += 1;
                    let term = &run[at..at + c.len_utf8()];
                    if may_match(term) {
                        visit(term);
                    }
                }
                for (pair, _, _) in pairs(run) {
                    count += 1;
                    if may_match(pair) {
                        visit(pair);
                    }
                }
            }
        }
    }
    count
}

/// The first two bytes of the terms of a query. By them, most words of a text can be excluded before stemming.
pub struct TermPrefixes([bool; Self::ALL]);

impl TermPrefixes {
    const ALL: usize = 32 * 32;

    pub fn of(terms: &[SearchTerm]) -> Self {
        let mut known = [false; Self::ALL];
        for term in terms {
            let at = Self::slot(term.text.as_bytes());
            match term.text.len() {
                // The unstemmed word may have been longer.
                0 | 1 => known[at..at + 32].fill(true),
                _ => known[at] = true,
            }
        }
        Self(known)
    }

    /// Returns true if the stem of this word may be one of the terms.
    pub fn may_match(&self, word: &str) -> bool {
        self.0[Self::slot(word.as_bytes())]
    }

    /// Returns the position of a word's first two bytes. Stemming keeps these bytes, except that it turns a final y into an i.
    fn slot(word: &[u8]) -> usize {
        let low = |at: usize| match word.get(at) {
            Some(b'y') => b'i' & 31,
            Some(byte) => byte & 31,
            None => 0,
        };
        usize::from(low(0)) * 32 + usize::from(low(1))
    }
}

/// Returns the terms of a query, each once. Stop words count only if there are no other terms.
pub fn query_terms(text: &str) -> Vec<SearchTerm> {
    let tail = text.len().saturating_sub(QUERY_LIMIT).max(beginning(text, QUERY_LIMIT).len());
    let ends = [beginning(text, QUERY_LIMIT), &text[text.ceil_char_boundary(tail)..]];
    let terms = |keeps_stop_words: bool| {
        let mut seen = HashSet::new();
        let found = ends.iter().flat_map(|end| weighted_terms(end, keeps_stop_words));
        found.filter(|term| seen.insert(term.text.clone())).collect::<Vec<_>>()
    };
    let mut found = terms(false);
    if found.is_empty() {
        found = terms(true);
    }
    if found.len() > QUERY_TERMS {
        found.drain(QUERY_TERMS / 2..found.len() - QUERY_TERMS / 2);
    }
    found
}

/// Returns a text in folded form without greetings, thanks and the like; `None` if only stop words are left.
pub fn without_fillers(text: &str) -> Option<String> {
    let folded = fold(text);
    let mut left = String::with_capacity(folded.len());
    let mut last = "";
    for clause in folded.split_inclusive(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '\u{2019}')) {
        let end = clause.trim_end_matches(|c: char| !c.is_alphanumeric());
        let is_filler = if end.chars().any(is_unspaced) {
            is_unspaced_filler(end)
        } else {
            FILLERS.contains(end) || (last == "good" && TIMES_OF_DAY.contains(&end))
        };
        last = end;
        left.push_str(if is_filler { " " } else { clause });
    }
    (!weighted_terms(&left, false).is_empty()).then_some(left)
}

/// Returns true for an English stop word in lower case, which says nothing about the subject of a query.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(word)
}

/// Returns true for a particle or pronoun of a script without spaces.
pub fn is_weak_char(c: char) -> bool {
    WEAK_CHARS.contains(&c)
}

/// Returns true if a clause consists of fillers.
fn is_unspaced_filler(clause: &str) -> bool {
    let mut left = clause.to_owned();
    for phrase in UNSPACED_FILLERS.split(' ') {
        left = left.replace(phrase, "");
    }
    left.chars().all(|c| WEAK_CHARS.contains(&c) || !is_unspaced(c))
}

/// Returns the byte offset of the first of these terms in a text.
pub fn first_match(text: &str, terms: &[SearchTerm]) -> Option<usize> {
    let text = beginning(text, TEXT_LIMIT);
    let is_term = |piece: &str| terms.iter().any(|asked| asked.text == piece);
    let is_asked = |piece: &str| index_terms(piece).iter().any(|term| is_term(term));
    let mut begins = text.char_indices().map(|(at, _)| at).peekable();
    while let Some(at) = begins.next() {
        let first = text[at..].chars().next()?;
        if is_unspaced(first) {
            let pair = text[at..].char_indices().nth(2).map_or(text.len(), |(end, _)| at + end);
            if is_asked(&text[at..at + first.len_utf8()]) || is_term(&fold(&text[at..pair])) {
                return Some(at);
            }
        } else if first.is_alphanumeric() {
            let end =
                text[at..].find(|c: char| !c.is_alphanumeric() || is_unspaced(c)).map_or(text.len(), |end| at + end);
            if is_asked(&text[at..end]) {
                return Some(at);
            }
            while begins.peek().is_some_and(|next| *next < end) {
                begins.next();
            }
        }
    }
    None
}

enum TextRun<'a> {
    Word(&'a str),
    /// A run of characters of a script without spaces.
    Unspaced(&'a str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentClass {
    Word,
    Unspaced,
    Apostrophe,
    Other,
}

/// Returns a text in lower case and compatibility form (NFKC), without accents.
fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let composed = ComposingNormalizerBorrowed::new_nfkc().normalize(text);
    let decomposing = DecomposingNormalizerBorrowed::new_nfd();
    let mut folded = String::with_capacity(composed.len());
    let mut buffer = [0; 4];
    for c in composed.chars().flat_map(char::to_lowercase) {
        match c {
            // Latin, Greek and Cyrillic letters with accents.
            '\u{c0}'..='\u{24f}' | '\u{370}'..='\u{45f}' | '\u{1e00}'..='\u{1fff}' => {
                let plain = decomposing.normalize(c.encode_utf8(&mut buffer));
                folded.extend(plain.chars().filter(|c| !is_optional_sign(*c)));
            }
            c if is_optional_sign(c) => {}
            c => folded.push(c),
        }
    }
    folded
}

/// Returns true for an optional mark: accents, vowel points, joiners.
fn is_optional_sign(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{591}'..='\u{5c7}' | '\u{610}'..='\u{61a}' | '\u{640}' | '\u{64b}'..='\u{65f}'
        | '\u{670}' | '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

fn class(c: char) -> SegmentClass {
    match c {
        '\'' | '\u{2019}' => SegmentClass::Apostrophe,
        c if c.is_ascii_alphanumeric() => SegmentClass::Word,
        c if c.is_ascii() => SegmentClass::Other,
        c if is_unspaced(c) => SegmentClass::Unspaced,
        c if c.is_alphanumeric() => SegmentClass::Word,
        // Signs of Indian scripts occur within words, except that these two end sentences.
        '\u{964}' | '\u{965}' => SegmentClass::Other,
        '\u{900}'..='\u{dff}' => SegmentClass::Word,
        _ => SegmentClass::Other,
    }
}

/// English endings after an apostrophe, which are not terms.
const AFTER_APOSTROPHE: [&str; 7] = ["s", "t", "re", "ve", "ll", "d", "m"];

fn tokens(folded: &str) -> Vec<TextRun<'_>> {
    let mut tokens = Vec::new();
    let (mut from, mut open, mut behind_apostrophe) = (0, SegmentClass::Other, false);
    for (at, c) in folded.char_indices().map(|(at, c)| (at, class(c))).chain([(folded.len(), SegmentClass::Other)]) {
        if c == open && c != SegmentClass::Apostrophe {
            continue;
        }
        let text = &folded[from..at];
        match open {
            SegmentClass::Word if behind_apostrophe && AFTER_APOSTROPHE.contains(&text) => {}
            SegmentClass::Word => tokens.push(TextRun::Word(beginning(text, WORD_LIMIT))),
            SegmentClass::Unspaced => tokens.push(TextRun::Unspaced(text)),
            SegmentClass::Apostrophe | SegmentClass::Other => {}
        }
        behind_apostrophe = c == SegmentClass::Word && open == SegmentClass::Apostrophe && from > 0;
        (from, open) = (at, c);
    }
    tokens
}

/// Returns each pair of neighbours.
fn pairs(run: &str) -> impl Iterator<Item = (&str, char, char)> {
    let seconds = run.char_indices().skip(1);
    run.char_indices().zip(seconds).map(|((at, a), (next, b))| (&run[at..next + b.len_utf8()], a, b))
}

fn weighted_terms(text: &str, keeps_stop_words: bool) -> Vec<SearchTerm> {
    let mut terms = Vec::new();
    let mut push = |text: String, weight| terms.push(SearchTerm { text, weight });
    for token in tokens(&fold(text)) {
        match token {
            TextRun::Word(word) if keeps_stop_words || !STOP_WORDS.contains(word) => push(stem(word), 1.0),
            TextRun::Word(_) => {}
            TextRun::Unspaced(run) if run.chars().nth(1).is_none() => {
                if keeps_stop_words || !run.contains(WEAK_CHARS) {
                    push(run.to_owned(), 1.0);
                }
            }
            TextRun::Unspaced(run) => {
                for (pair, a, b) in pairs(run) {
                    match (WEAK_CHARS.contains(&a), WEAK_CHARS.contains(&b)) {
                        (true, true) if !keeps_stop_words => {}
                        (false, false) => push(pair.to_owned(), 1.0),
                        _ => push(pair.to_owned(), WEAK_PAIR_WEIGHT),
                    }
                }
                for c in run.chars().filter(|c| keeps_stop_words || !WEAK_CHARS.contains(c)) {
                    push(c.to_string(), CHAR_WEIGHT);
                }
            }
        }
    }
    terms
}

/// Particles and pronouns of scripts without spaces.
const WEAK_CHARS: &[char] = &[
    '的', '了', '吗', '呢', '吧', '啊', '呀', '么', '嘛', '我', '你', '您', '他', '她', '它', '们', '是', '谁', '什',
    '哪', '怎', '这', '那', '就', '也', '很', '在', '有', '和', '与', '个', '请', '嗎', '麼', '們', '這', '個', '誰',
    'の', 'は', 'が', 'を', 'に', 'で', 'と', 'も', 'か', 'へ', 'ね', 'よ',
];

/// English words of greetings, thanks and assent.
static FILLERS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "\
    alright bye cheers cool fine good goodbye great haha hello hey hi hiya hmm lol nice nope oh ok okay perfect pls \
    sorry sure thank thanks thx tks well wow yeah yep yes yo you're yup"
        .split(' ')
        .collect()
});
const TIMES_OF_DAY: [&str; 5] = ["afternoon", "day", "evening", "morning", "night"];

/// Chinese phrases of greetings, thanks and assent, the longer ones first.
const UNSPACED_FILLERS: &str = "\
    不好意思 早上好 上午好 中午好 下午好 晚上好 没关系 不客气 不用谢 辛苦了 知道了 明白了 没问题 对不起 谢谢 多谢 感谢 \
    你好 您好 大家好 好的 好吧 是的 对的 可以 收到 明白 没事 再见 拜拜 晚安 早安 在吗 在么 哈哈 呵呵 继续 厉害 不错 \
    真棒 太好 嗯 哦 噢 好 对 行 早";

/// English stop words, which say nothing about the subject of a query.
static STOP_WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "\
    a about after again all also am an and any are aren as at be because been before being both but by can cannot \
    could couldn did didn do does doesn doing don done during each ever every few for from further get got had hadn \
    has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just let \
    ll may me might more most much must my myself no nor not now of off on once only or other ought our ours ourselves \
    out over own please re same shall she should shouldn so some such tell than that the their theirs them themselves \
    then there these they this those through to too under until up us ve very was wasn we were weren what when where \
    which while who whom whose why will with won would wouldn you your yours yourself yourselves"
        .split(' ')
        .collect()
});

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
