//! What outlasts a conversation: whose it is, what is kept of it, and how it is found again. It only stores and finds: what
//! is worth keeping of a conversation is the agent's to say.

mod config;

mod adoption;
mod book;
mod claims;
mod desk;
mod entry;
mod files;
mod forgetting;
mod given;
pub mod learned;
mod owner;
mod telling;
mod wording;

mod written;

mod indexer;
mod matching;
mod passages;
mod reading;
mod recall;
mod search;
mod snapshot;
mod tools;
pub mod vectors;
pub mod words;

mod asked;
mod retention;
pub mod session_file;
mod whose;

pub use asked::{AskedEntry, ExportedMemory, MemoryError, Selection, since};
pub use book::{Plan, Remembered, carry_out, list, newest, plan, remember, remember_instead};
pub use config::{EmbeddingsConfig, MemoryConfig};
pub use desk::{Desk, Terms};
pub use entry::{Entry, Kind, NewEntry, Origin, Source};
pub use files::{FOLDER, Files, Keeper};
pub use forgetting::{Forgotten, drop_prompts, forget};
pub use given::strike_ended;
pub use indexer::Indexer;
pub use owner::{Identities, Owner, is_by_person, origin_on_behalf, sender_of};
pub use passages::Fitting;
pub use recall::{Ask, Found, Hit, Weights, recall, recall_weighted};
pub use retention::{prune_gone_sessions, prune_sessions, sweep_snapshots};
pub use search::{Line, search};
pub use snapshot::snapshot;
pub use tools::{tool_names, tools};
pub use whose::{Whose, called, owner_called};
pub use wording::{Unfit, fit};
pub use written::{FORGOTTEN, RECALLED, RUNTIME_CONTEXT, found_in_memory, said, without_memory, written};
