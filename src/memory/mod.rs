//! Long-term memory: owners, the rules of remembering and forgetting, search by words and by vectors, tools, MEMORY.md and
//! HISTORY.md. This module stores and finds memories; the agent decides what to remember of a conversation.

mod config;
mod entry;
mod message_text;
mod owner;
mod owner_migration;
mod query;
mod requests;
pub mod session_file;
mod validation;

mod answer_audience;
mod contradictions;
mod forgetting;
mod mentions;
mod prompt_memory;
mod remember;
mod retention;
pub mod rule_extraction;

mod bm25;
mod indexer;
mod message_search;
mod passage_index;
mod recall;
mod snapshot;
mod term_query;
pub mod vectors;
pub mod word_index;

mod files;
mod service;
#[cfg(test)]
pub(crate) mod testing;
mod tools;

pub use answer_audience::AnsweredTurn;
pub use config::{EmbeddingsConfig, MemoryConfig};
pub use entry::{MemoryEntry, MemoryKind, MemoryOrigin, MemorySource, NewMemoryEntry};
pub use files::{MEMORY_FILE, MEMORY_FILE_LIMIT, MemoryFileState, MemoryFileWriter};
pub use forgetting::{ForgetOutcome, drop_prompt_snapshots, forget};
pub use indexer::{MessageIndexer, rebuild_index};
pub use message_search::{HistoryHit, search_messages};
pub use message_text::{FORGOTTEN, RECALLED, RUNTIME_CONTEXT, found_in_memory, spoken_text, without_memory, written};
pub use owner::{
    Identities, MemoryOwner, all_owners, origin_on_behalf, owner_label, parse_owner, sender_of, token_of_session,
};
pub use prompt_memory::redact_ended_turn;
pub use query::{HitLocation, RecallHit, RecallQuery, RelevanceQuery};
pub use recall::{RecallWeights, recall, recall_weighted};
pub use remember::{
    RememberOutcome, RememberPlan, apply_plan, current_entry, list, plan, remember, remember_replacing,
};
pub use requests::{EntryRequest, ExportedMemory, MemoryError, MemorySelection, parse_since};
pub use retention::{prune_orphaned_summaries, prune_sessions, sweep_snapshots};
pub use service::{MemoryService, MemorySettings};
pub use snapshot::{prompt_snapshot, recent_tasks};
pub use tools::{tool_names, tools};
pub use validation::{InvalidEntry, validate_entry};
