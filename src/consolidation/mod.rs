//! Keeps conversations short: a summary replaces the older part, and what matters of it is remembered. Replies are never
//! delayed: a worker finds what is due, a model writes the summary, and one commit puts it in the place of the messages.

mod worker;

mod part;
mod transcript;

mod answer;
mod evidence;
mod extract;
mod summarizer;

mod commit;
mod running;

pub use summarizer::{Summarizer, SummarizerSettings};
pub use worker::Consolidator;
