//! Keeps conversations short: the older part becomes a summary, and what matters of it is remembered. It never delays a reply: a
//! worker looks for what is due, a model writes the summary, and one commit puts it in the place of the messages.

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
