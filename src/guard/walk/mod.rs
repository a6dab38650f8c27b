//! Walks a folder of the path jail: names and files without links, hidden ones and those that `.gitignore` names.
//!
//! The walker of the `ignore` crate opens paths, which may lead elsewhere a moment after they were checked. This walk opens
//! each entry relative to the open folder above it, and takes only the matchers from that crate.

mod ignore_rules;
mod queue;
mod walker;

pub use walker::{EntryKind, SkipCounts, StopSignal, Verdict, Walk, WalkStop, WalkVisitor, WalkedEntry};
