//! Separates a mail's own text from quoted history: `line_kinds` classifies lines, `strip` decides what to remove, and
//! `phrases` has the phrases of mail programs.

mod line_kinds;
mod phrases;
mod strip;

pub use strip::{StrippedText, strip_quotes};

#[cfg(test)]
mod tests;
