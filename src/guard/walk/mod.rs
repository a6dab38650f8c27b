//! Walks a folder of the path jail, and skips links, hidden entries and entries that `.gitignore` names.
//!
//! The walker of the `ignore` crate opens paths, which may lead elsewhere a moment after they were checked. This walk opens each
//! entry relative to the open folder above it, and takes only the matchers from that crate.

mod ignore_rules;
mod queue;
mod walker;

pub use walker::{EntryKind, SkipCounts, StopSignal, Walk, WalkSelection, WalkStop, WalkedEntry};
