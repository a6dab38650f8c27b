//! The index by which what was said and remembered is found, and the notes in the workspace.

use std::path::Path;

use daoyou_channels::Finding;

use super::check::{Check, Fix};
use crate::guard::{Jail, JailError};
use crate::memory::Identities;
use crate::store::checkup::Checkup;

/// Where facts stand that people may change, within the workspace.
const NOTES: &str = "memory/MEMORY.md";
/// The largest that is read, in bytes.
const NOTES_LIMIT: u64 = 4_000_000;

/// Whether the index holds together; nothing of a store of another format.
pub fn index(checkup: &Checkup, runs: bool, identities: &Identities) -> Option<Check> {
    const NAME: &str = "index";
    let state = checkup.index?;
    if !checkup.index_faults.is_empty() {
        let words = checkup.index_faults.join("; ").replace('\n', " ");
        let mend = if runs { "stop the gateway, then daoyou doctor --fix" } else { "daoyou doctor --fix" };
        let message = format!("it is damaged, so not all that was said is found: {words}");
        return Some(Check::with(Finding::fail(NAME, message, mend), Fix::RebuildIndex(identities.clone())));
    }
    let messages = state.messages;
    let message = match (state.is_made_anew, state.behind) {
        (true, _) if runs => format!("it is made anew; {messages} messages so far"),
        (true, _) => "the next start makes it".to_owned(),
        (false, 0) => format!("{messages} messages can be found"),
        (false, behind) => format!("{messages} messages can be found, {behind} are to come"),
    };
    Some(Finding::ok(NAME, message).into())
}

/// Whether MEMORY.md can be read, as the gateway reads it.
pub fn notes(workspace: &Path) -> Option<Finding> {
    const NAME: &str = "memory";
    let jail = Jail::of_gateway(workspace, NOTES_LIMIT).ok()?;
    let path = workspace.join(NOTES);
    let shown = path.display();
    let wrong = |reason: String, mend: String| Some(Finding::warn(NAME, format!("{shown}: {reason}"), mend));
    match jail.read(NOTES) {
        Ok(opened) if std::str::from_utf8(&opened.bytes).is_err() => {
            wrong("it is no text in UTF-8, so nothing is taken from it".to_owned(), format!("save {shown} as UTF-8"))
        }
        Ok(_) => Some(Finding::ok(NAME, shown.to_string())),
        // It is made when there is something to write.
        Err(JailError::Missing(_)) => None,
        Err(error) => {
            let mend = format!(
                "make it a plain file of at most {NOTES_LIMIT} bytes that its owner may read and write: ls -l {shown}"
            );
            wrong(format!("it cannot be read: {error}"), mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use daoyou_channels::Verdict;
    use serde_json::json;

    use super::*;
    use crate::home::Home;
    use crate::memory::{self, MemoryConfig, MemoryKind, MemoryOrigin, NewMemoryEntry, Owner};
    use crate::store::checkup::{Soundness, examine};
    use crate::store::words::{Shelf, find};
    use crate::store::{Connection, write_alone};

    /// The file is sound though its index is not, and `--fix` makes that anew.
    #[test]
    fn a_damaged_index_is_no_damaged_file_and_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let new = NewMemoryEntry {
            owner: Owner::gateway(),
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
        let look = || examine(&home.database(), Duration::from_secs(60)).unwrap();
        let check = |checkup: &Checkup| index(checkup, false, &Identities::default()).unwrap();
        let sound = check(&look());
        assert!(sound.finding.state == Verdict::Ok && sound.fix.is_none(), "{sound:?}");

        let damage = "DELETE FROM memory_words_data WHERE id > 10";
        write_alone(&home.database(), |connection| Ok(connection.execute(damage, [])?)).unwrap();
        let damaged = look();
        assert!(matches!(damaged.soundness, Soundness::Sound { .. }), "{damaged:?}");
        let check_of_damaged = check(&damaged);
        assert_eq!(check_of_damaged.finding.state, Verdict::Fail, "{damaged:?}");
        assert_eq!(check_of_damaged.settle(&home, true).state, Verdict::Ok);
        assert_eq!(look().index_faults, Vec::<String>::new());
        let found = write_alone(&home.database(), |connection| find(connection, Shelf::Memories, "red", 10)).unwrap();
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn notes_that_cannot_be_read_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path();
        std::fs::create_dir(workspace.join("memory")).unwrap();
        assert_eq!(notes(workspace), None);
        for (bytes, state) in [(b"- a fact\n".as_slice(), Verdict::Ok), (b"\xff\xfe", Verdict::Warn)] {
            std::fs::write(workspace.join(NOTES), bytes).unwrap();
            assert_eq!(notes(workspace).unwrap().state, state);
        }
        std::fs::remove_file(workspace.join(NOTES)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", workspace.join(NOTES)).unwrap();
        let found = notes(workspace).unwrap();
        assert!(found.state == Verdict::Warn && found.message.contains("cannot be read"), "{found:?}");
    }
}
