//! Helpers of the tests of this module.

use std::path::Path;

use daoyou_channels::cli::Language;
use jiff::tz::TimeZone;

use super::{Identities, MemoryConfig, MemoryEntry, MemoryKind, MemoryOrigin, MemoryOwner, MemorySettings};
use crate::store::memories::NewMemory;

/// Returns the default settings in English and UTC.
pub(super) fn settings(workspace: &Path) -> MemorySettings {
    MemorySettings {
        config: MemoryConfig::default(),
        identities: Identities::default(),
        language: Language::En,
        zone: TimeZone::UTC,
        workspace: workspace.to_owned(),
    }
}

/// Returns a memory of the gateway's owner.
pub(crate) fn entry(id: i64, kind: MemoryKind, name: &str, text: &str) -> MemoryEntry {
    MemoryEntry {
        id,
        owner: MemoryOwner::gateway(),
        kind,
        name: name.to_owned(),
        text: text.to_owned(),
        detail: serde_json::json!({}),
        origin: MemoryOrigin::Stated,
        source: None,
        confidence: 1.0,
        created_at: 0,
        used_at: None,
        uses: 0,
        replaced_by: None,
    }
}

/// Returns a certain memory without a source.
pub(super) fn row<'a>(owner: &'a str, kind: &'a str, name: &'a str, text: &'a str) -> NewMemory<'a> {
    let (detail, origin, session, seq, turn, confidence) = ("{}", "told", None, None, None, 1.0);
    NewMemory { owner, kind, name, text, detail, origin, session, seq, turn, confidence }
}
