//! Keeps conversations short: a summary replaces the older part of a conversation, and important facts become memories. Replies
//! are never delayed: a worker finds conversations that are due, a model writes the summary, and one commit replaces the
//! messages.

mod worker;

mod part;
mod transcript;

mod answer;
mod evidence;
mod extract;
mod summarizer;

mod commit;

pub use summarizer::Summarizer;
pub use worker::Consolidator;
