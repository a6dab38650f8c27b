//! What a mail's writer says, apart from what is quoted below it: `lines` says of each line what it is, `cut` decides what
//! goes, `phrases` knows the words that programs put there.

mod cut;
mod lines;
mod phrases;

pub use cut::{Cut, cut};
pub use phrases::{is_answering_subject, is_forwarding_subject};

#[cfg(test)]
mod tests;
