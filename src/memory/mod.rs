//! What outlasts a conversation: whose it is, what is kept of it, and how it is found again. It only stores and finds: what
//! is worth keeping of a conversation is the agent's to say.

mod config;

mod book;
mod claims;
mod desk;
mod entry;
mod files;
mod forgetting;
pub mod learned;
mod owner;
mod wording;

mod recall;
mod tools;
pub mod words;

pub use book::{Plan, Remembered, carry_out, list, plan, remember, remember_instead};
pub use config::{EmbeddingsConfig, MemoryConfig};
pub use desk::{Desk, Terms};
pub use entry::{Entry, Kind, NewEntry, Origin, Source};
pub use files::{Files, Keeper};
pub use forgetting::{Forgotten, drop_prompts, forget};
pub use owner::{Identities, Owner};
pub use recall::{Ask, Found, Hit, recall};
pub use tools::tools;
pub use wording::{Unfit, fit};
