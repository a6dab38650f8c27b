//! The texts of memories and messages that get embeddings.

use crate::memory::entry::entry_text;
use crate::memory::message_text::spoken_text;
use crate::store::search_index::SearchCorpus;
use crate::store::vectors::UnembeddedText;
use crate::text::is_cjk;

/// The maximum number of characters of a text that are embedded: for English text, about the limit of the smaller
/// models.
pub(super) const MAX_CHARS: usize = 2_000;

/// The maximum number of characters that are embedded of a text that the model has rejected as a whole.
pub(super) const RETRY_CHARS: usize = 400;

/// Unrelated texts, by [`class`]. They show how similar a model finds unrelated texts.
pub(super) const UNRELATED: [[&str; 8]; 4] = [
    [
        "good morning", "what next?", "one more time", "tell me more", "are you there?", "that is funny", "go on",
        "any news?",
    ],
    [
        "Please water our tomatoes every second evening.",
        "The train leaves at seven from platform nine.",
        "My laptop's battery must be replaced soon.",
        "Who won yesterday's football match?",
        "Quarterly taxes are due within ten days.",
        "How do I sort a list of numbers in Python?",
        "Her uncle repairs old violins in Cremona.",
        "The lake was frozen when we went skating.",
    ],
    ["早上好", "下一步呢", "再来一次", "多说一点", "你在吗", "真有意思", "接着说", "有消息吗"],
    [
        "明天下午三点提醒我给妈妈打电话。",
        "我的猫最喜欢睡在窗台上。",
        "这道菜盐放得太多了。",
        "地铁末班车晚上十一点半发车。",
        "请帮我把这段话翻译成法语。",
        "他叔叔在苏州开了一家书店。",
        "这台打印机经常卡纸，需要维修。",
        "昨天的足球比赛谁赢了？",
    ],
];

/// Returns the class of [`UNRELATED`] that a text resembles, by its language and length.
pub(super) fn class(text: &str) -> usize {
    let letters = text.chars().filter(|char| char.is_alphanumeric()).count();
    let wide = text.chars().filter(|c| is_cjk(*c)).count();
    usize::from(wide * 2 > letters) * 2 + usize::from(is_meaningful(text))
}

/// Returns the positions of a class in the flattened [`UNRELATED`].
pub(super) fn texts_of(class: usize) -> std::ops::Range<usize> {
    class * UNRELATED[0].len()..(class + 1) * UNRELATED[0].len()
}

/// Returns the positions of the complete sentences in the language of a class, as [`texts_of`] does.
pub(super) fn sentences_of(class: usize) -> std::ops::Range<usize> {
    texts_of(class | 1)
}

/// The fewest words or characters of a message that means something by itself, unlike "yes", "go on" or 好的.
const MIN_WORDS: usize = 5;
const MIN_CHARS: usize = 8;

/// Returns the text of a memory or message that is embedded; `None` for a message that means nothing by itself.
pub(super) fn text_to_embed(corpus: SearchCorpus, row: &UnembeddedText) -> Option<String> {
    let text = match corpus {
        SearchCorpus::Messages => spoken_text(&row.text).filter(|text| is_meaningful(text))?,
        SearchCorpus::Memories => entry_text(row.kind.parse().ok(), &row.name, &row.text),
    };
    Some(first_chars(text.trim(), MAX_CHARS).to_owned())
}

/// Returns the first characters of a text.
pub(super) fn first_chars(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(at, _)| &text[..at])
}

fn is_meaningful(text: &str) -> bool {
    text.split_whitespace().take(MIN_WORDS).count() == MIN_WORDS
        || text.chars().filter(|c| is_cjk(*c)).take(MIN_CHARS).count() == MIN_CHARS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_with_a_meaning_of_their_own_are_embedded() {
        let body = |text: &str| serde_json::json!({"role": "user", "content": text}).to_string();
        let spoken = "I parked my bike behind the library\n\n[Runtime Context]\nCurrent Time: now";
        for (corpus, kind, name, text, expected) in [
            (SearchCorpus::Memories, "fact", "", "Tea is green.".to_owned(), Some("Tea is green.")),
            (SearchCorpus::Memories, "preference", "tea", "green".to_owned(), Some("tea: green")),
            (SearchCorpus::Memories, "case", "Tea is cold", "a\nb".to_owned(), Some("Tea is cold\na\nb")),
            (SearchCorpus::Memories, "summary", "cli:direct", " About tea. ".to_owned(), Some("About tea.")),
            (SearchCorpus::Messages, "user", "", body(spoken), Some("I parked my bike behind the library")),
            (SearchCorpus::Messages, "user", "", body("yes, go on"), None),
            (SearchCorpus::Messages, "user", "", body("好的"), None),
            (SearchCorpus::Messages, "user", "", body("我把车停在图书馆后面了"), Some("我把车停在图书馆后面了")),
            (SearchCorpus::Messages, "user", "", body("[forgotten]"), None),
        ] {
            let row = UnembeddedText { id: 1, kind: kind.to_owned(), name: name.to_owned(), text };
            assert_eq!(text_to_embed(corpus, &row).as_deref(), expected, "{row:?}");
        }
        assert_eq!((first_chars("中文字", 2), first_chars("ab", 2)), ("中文", "ab"));
    }
}
