//! Text helpers that everybody shares: lines and sentences, scripts, stems, terms to search by, times in words.

mod line;
mod normalize;
mod script;
mod segment;
mod stem;
pub mod time;

pub use line::{is_invisible, is_sentence_mark, one_line, sentences, truncate};
pub use normalize::{comparison_key, narrow};
pub use script::{is_cjk, is_han, is_han_or_kana, is_unspaced};
pub use segment::{
    SEGMENT_VERSION, SearchTerm, TermPrefixes, first_match, index_terms, query_terms, visit_terms, without_fillers,
};
pub use stem::stem;
