//! What outlasts a conversation: whose it is, what is kept of it, and how it is found again. It only stores and finds: what
//! is worth keeping of a conversation is the agent's to say.

mod config;

mod book;
mod desk;
mod entry;
mod owner;

mod segment;
mod stem;
mod written;

mod indexer;
mod matching;
mod reading;
mod recall;
pub mod words;

pub use book::{Forgotten, Remembered, forget, list, remember};
pub use config::{EmbeddingsConfig, MemoryConfig};
pub use desk::{Desk, Terms};
pub use entry::{Entry, Kind, NewEntry, Origin, Source};
pub use indexer::Indexer;
pub use owner::{Identities, Owner};
pub use recall::{Ask, Found, Hit, recall};
pub use written::{FORGOTTEN, RECALLED, RUNTIME_CONTEXT, said, written};
