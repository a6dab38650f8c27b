//! Checks of the word index, and of MEMORY.md in the workspace.

use std::path::Path;

use daoyou_channels::Finding;

use super::check::{DoctorCheck, Repair};
use crate::guard::{Jail, JailError};
use crate::memory::{Identities, MEMORY_FILE, MEMORY_FILE_LIMIT};
use crate::store::inspection::DatabaseInspection;

/// Checks the word index; a store of another format has none.
pub fn index(inspection: &DatabaseInspection, runs: bool, identities: &Identities) -> Option<DoctorCheck> {
    const NAME: &str = "index";
    let state = inspection.index?;
    if !inspection.index_faults.is_empty() {
        let words = inspection.index_faults.join("; ").replace('\n', " ");
        let mend = if runs { "stop the gateway, then daoyou doctor --fix" } else { "daoyou doctor --fix" };
        let message = format!("it is damaged: searches are incomplete: {words}");
        return Some(DoctorCheck::with(Finding::fail(NAME, message, mend), Repair::RebuildIndex(identities.clone())));
    }
    let messages = state.messages;
    let message = match (state.needs_rebuild, state.behind) {
        (true, _) if runs => format!("it is being rebuilt; {messages} messages so far"),
        (true, _) => "the next start builds it".to_owned(),
        (false, 0) => format!("{messages} messages can be found"),
        (false, behind) => format!("{messages} messages can be found, {behind} are to come"),
    };
    Some(Finding::ok(NAME, message).into())
}

/// Checks that MEMORY.md can be read as the gateway reads it.
pub fn memory_file(workspace: &Path) -> Option<Finding> {
    const NAME: &str = "memory";
    let jail = Jail::open_strict(workspace, Vec::new(), MEMORY_FILE_LIMIT).ok()?;
    let path = workspace.join(MEMORY_FILE);
    let shown = path.display();
    let wrong = |reason: String, mend: String| Some(Finding::warn(NAME, format!("{shown}: {reason}"), mend));
    match jail.read(MEMORY_FILE) {
        Ok(opened) if std::str::from_utf8(&opened.bytes).is_err() => {
            wrong("it is not text in UTF-8, so nothing is taken from it".to_owned(), format!("save {shown} as UTF-8"))
        }
        Ok(_) => Some(Finding::ok(NAME, shown.to_string())),
        // The gateway creates the file when it has something to write.
        Err(JailError::Missing(_)) => None,
        Err(error) => {
            let mend = format!(
                "make it a plain file of at most {MEMORY_FILE_LIMIT} bytes that its owner may read and write: ls -l {shown}"
            );
            wrong(format!("it cannot be read: {error}"), mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use daoyou_channels::Severity;
    use serde_json::json;

    use super::*;
    use crate::home::Home;
    use crate::memory::{self, MemoryConfig, MemoryKind, MemoryOrigin, MemoryOwner, NewMemoryEntry};
    use crate::store::inspection::{DatabaseIntegrity, inspect};
    use crate::store::search_index::{SearchCorpus, find};
    use crate::store::{Connection, write_alone};

    /// Asserts that a damaged index does not make the database file unsound, and that `--fix` rebuilds the index.
    #[test]
    fn a_damaged_index_is_rebuilt_and_the_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let new = NewMemoryEntry {
            owner: MemoryOwner::gateway(),
            kind: MemoryKind::Fact,
            name: String::new(),
            text: "the bicycle is red".to_owned(),
            detail: json!({}),
            origin: MemoryOrigin::Command,
            source: None,
            confidence: 1.0,
        };
        let work = |connection: &Connection| memory::remember(connection, &new, &MemoryConfig::default());
        write_alone(&home.database(), work).unwrap();
        let inspect_file = || inspect(&home.database(), Duration::from_secs(60)).unwrap();
        let check = |inspection: &DatabaseInspection| index(inspection, false, &Identities::default()).unwrap();
        let sound = check(&inspect_file());
        assert!(sound.finding.state == Severity::Ok && sound.fix.is_none(), "{sound:?}");

        let damage = "DELETE FROM memory_words_data WHERE id > 10";
        write_alone(&home.database(), |connection| Ok(connection.execute(damage, [])?)).unwrap();
        let damaged = inspect_file();
        assert!(matches!(damaged.soundness, DatabaseIntegrity::Sound { .. }), "{damaged:?}");
        let check_of_damaged = check(&damaged);
        assert_eq!(check_of_damaged.finding.state, Severity::Fail, "{damaged:?}");
        assert_eq!(check_of_damaged.resolve(&home, true).state, Severity::Ok);
        assert_eq!(inspect_file().index_faults, Vec::<String>::new());
        let found =
            write_alone(&home.database(), |connection| find(connection, SearchCorpus::Memories, "red", 10)).unwrap();
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn an_unreadable_memory_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path();
        std::fs::create_dir(workspace.join("memory")).unwrap();
        assert_eq!(memory_file(workspace), None);
        for (bytes, state) in [(b"- a fact\n".as_slice(), Severity::Ok), (b"\xff\xfe", Severity::Warn)] {
            std::fs::write(workspace.join(MEMORY_FILE), bytes).unwrap();
            assert_eq!(memory_file(workspace).unwrap().state, state);
        }
        std::fs::remove_file(workspace.join(MEMORY_FILE)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", workspace.join(MEMORY_FILE)).unwrap();
        let found = memory_file(workspace).unwrap();
        assert!(found.state == Severity::Warn && found.message.contains("cannot be read"), "{found:?}");
    }
}
