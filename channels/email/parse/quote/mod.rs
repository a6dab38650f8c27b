//! Separates a mail's own text from quoted history: `line_kinds` classifies lines, `strip` decides what is removed,
//! `phrases` has the words that mail programs write.

mod line_kinds;
mod phrases;
mod strip;

pub use phrases::{is_forwarding_subject, is_reply_subject};
pub use strip::{StrippedText, strip_quotes};

#[cfg(test)]
mod tests;
