//! What outlasts a conversation: whose it is, what is kept of it, and how it is found again. It only stores and finds: what
//! is worth keeping of a conversation is the agent's to say.

mod config;

mod book;
mod claims;
mod desk;
mod entry;
mod forgetting;
mod owner;
mod wording;

mod segment;
mod stem;
mod written;

mod indexer;
mod matching;
mod reading;
mod recall;
mod search;
mod snapshot;
mod tools;
pub mod words;

pub use book::{Plan, Remembered, carry_out, list, plan, remember, remember_instead};
pub use config::{EmbeddingsConfig, MemoryConfig};
pub use desk::{Desk, Terms};
pub use entry::{Entry, Kind, NewEntry, Origin, Source};
pub use forgetting::{Forgotten, drop_prompts, forget};
pub use indexer::Indexer;
pub use owner::{Identities, ON_BEHALF_OF, Owner, metadata_on_behalf, sender_of};
pub use recall::{Ask, Found, Hit, recall};
pub use search::{Line, search};
pub use snapshot::snapshot;
pub use tools::tools;
pub use wording::{Unfit, fit};
pub use written::{FORGOTTEN, RECALLED, RUNTIME_CONTEXT, said, written};
