//! What outlasts a conversation: whose it is, what is kept of it, and how it is found again. It only stores and finds: what
//! is worth keeping of a conversation is the agent's to say.

mod config;

mod book;
mod desk;
mod entry;
mod owner;

mod recall;
pub mod vectors;
pub mod words;

pub use book::{Forgotten, Remembered, forget, list, remember};
pub use config::{EmbeddingsConfig, MemoryConfig};
pub use desk::{Desk, Terms};
pub use entry::{Entry, Kind, NewEntry, Origin, Source};
pub use owner::{Identities, Owner};
pub use recall::{Ask, Found, Hit, recall};
