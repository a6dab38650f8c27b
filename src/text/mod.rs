//! Shared text helpers: lines and sentences, scripts, stems, search terms, similar names, time expressions. They import
//! nothing but each other.

mod bounded_template;
mod line;
pub mod nearest;
mod normalize;
mod pattern;
mod script;
mod segment;
mod stem;
mod surrogates;
pub mod think;
pub mod time_expression;
pub mod visible;

pub use bounded_template::{BoundedTemplate, TemplatePurpose};
pub use daoyou_channels::text::{
    Language, error_chain, format_size, innermost_cause, is_invisible, one_line, truncate,
};
pub use line::{
    is_hidden, is_sentence_mark, minute_in_zone, plain_line, plural, sentences, shell_quote, shell_word,
    without_line_numbers,
};
pub use normalize::{comparison_key, narrow};
pub(crate) use pattern::pattern;
pub use script::{is_cjk, is_han, is_han_or_kana, is_unspaced, language_of};
pub use segment::{
    SEGMENT_VERSION, SearchTerm, TermPrefixes, first_match, index_terms, is_stop_word, is_weak_char, query_terms,
    visit_terms, without_fillers,
};
pub use stem::stem;
pub use surrogates::{SurrogateJoiner, without_lone_surrogates};
