//! The commands' access to the trash of the workspace. It needs no store, and is safe while a gateway is running: moving a file is
//! one step of the file system.

use std::io::ErrorKind;

use anyhow::Context;
use serde_json::{Value, json};

use super::runtime::unopened;
use crate::config::Config;
use crate::guard::{Jail, protected_paths};
use crate::home::Home;
use crate::tools::Trash;

/// Returns the entries as a JSON array, the newest first.
///
/// # Errors
/// The workspace cannot be read.
pub fn list_trash(home: &Home, config: &Config) -> anyhow::Result<Value> {
    match open(home, config)? {
        Some(trash) => Ok(serde_json::to_value(trash.list()?)?),
        None => Ok(json!([])),
    }
}

/// Moves an entry back, or to the path `to` of the workspace. Returns its record with the path under `restored`.
///
/// # Errors
/// There is no such entry, or its place is occupied.
pub fn restore_trash(home: &Home, config: &Config, id: &str, to: Option<&str>) -> anyhow::Result<Value> {
    let workspace = home.workspace(&config.agent.workspace);
    let trash = Trash::open(&workspace).with_context(|| unopened(&workspace))?;
    let protected = protected_paths(home.dir());
    let jail =
        Jail::open_strict(&workspace, protected, config.tools.max_file_size.0).with_context(|| unopened(&workspace))?;
    let (record, path) = trash.restore(&jail, id, to)?;
    let mut answer = serde_json::to_value(record)?;
    answer["restored"] = path.into();
    Ok(answer)
}

/// Removes all entries for good. Returns their number under `removed`.
///
/// # Errors
/// An entry cannot be removed.
pub fn empty_trash(home: &Home, config: &Config) -> anyhow::Result<Value> {
    let removed = open(home, config)?.map_or(Ok(0), |trash| trash.empty())?;
    Ok(json!({ "removed": removed }))
}

/// Opens the trash; `None` if there is no workspace yet.
fn open(home: &Home, config: &Config) -> anyhow::Result<Option<Trash>> {
    let workspace = home.workspace(&config.agent.workspace);
    match Trash::open(&workspace) {
        Ok(trash) => Ok(Some(trash)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| unopened(&workspace)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_without_a_workspace_has_an_empty_trash() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let config = Config::default();
        assert_eq!(list_trash(&home, &config).unwrap(), json!([]));
        assert_eq!(empty_trash(&home, &config).unwrap(), json!({ "removed": 0 }));
        let error = format!("{:#}", restore_trash(&home, &config, "019a2b3c", None).unwrap_err());
        assert!(error.contains("cannot be opened"), "{error}");
        std::fs::create_dir(home.workspace("")).unwrap();
        let error = format!("{:#}", restore_trash(&home, &config, "019a2b3c", None).unwrap_err());
        assert!(error.contains("no entry 019a2b3c"), "{error}");
        assert!(!home.workspace("").join(".daoyou").exists(), "reading creates nothing");
    }
}
