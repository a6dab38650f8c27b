//! The tool `list_dir`.

use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::{DirEntry, FileType};
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::ReadTool;
use super::scope::ReadScope;
use crate::guard::{Jail, quote_controls};
use crate::tools::{OutputLimit, Tool, ToolDefinition};

/// The maximum number of entries that are shown, and of those that are read for sorting.
const MAX_SHOWN: usize = 500;
const MAX_SORTED: usize = 50_000;

#[derive(Deserialize, JsonSchema)]
struct ListDirArgs {
    /// Default: the workspace.
    path: Option<String>,
}

/// Returns the tool `list_dir`, which lists one folder, sorted by name.
pub fn list_dir(scope: ReadScope, timeout: Duration) -> Arc<dyn Tool> {
    let description = "List a folder: folders end with /, files show their size.";
    let definition = ToolDefinition {
        output_limit: OutputLimit { chars: 16_000, lines: MAX_SHOWN + 2 },
        ..ToolDefinition::reading::<ListDirArgs>("list_dir", description)
    };
    Arc::new(ReadTool::new(definition, scope, timeout, |jail, args: ListDirArgs, _| {
        list(jail, args.path.as_deref().unwrap_or("."))
    }))
}

fn list(jail: &Jail, path: &str) -> Result<String, String> {
    let (folder, shown) = jail.folder(path).map_err(|error| error.to_string())?;
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let mut entries: Vec<(String, DirEntry)> = Vec::new();
    let mut hidden = 0;
    for entry in folder.entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entries.len() < MAX_SORTED {
            entries.push((entry.file_name().to_string_lossy().into_owned(), entry));
        } else {
            hidden += 1;
        }
    }
    if entries.is_empty() {
        return Ok("(the folder is empty)".to_owned());
    }
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    hidden += entries.len().saturating_sub(MAX_SHOWN);
    let mut lines: Vec<String> =
        entries.iter().take(MAX_SHOWN).map(|(name, entry)| format_entry(name, entry)).collect();
    if hidden > 0 {
        lines.push(format!("[{hidden} more entries, not shown]"));
    }
    Ok(lines.join("\n"))
}

fn format_entry(name: &str, entry: &DirEntry) -> String {
    let name = quote_controls(name);
    let kind = entry.file_type().ok();
    let is = |wanted: fn(&FileType) -> bool| kind.as_ref().is_some_and(wanted);
    if is(FileType::is_dir) {
        return format!("{name}/");
    }
    if is(FileType::is_symlink) {
        return format!("{name} (link)");
    }
    match entry.metadata() {
        Ok(metadata) if is(FileType::is_file) => format!("{name} ({})", format_size(metadata.len())),
        _ => format!("{name} (special)"),
    }
}

fn format_size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} KB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
