//! The tool `list_dir`.

use async_trait::async_trait;
use cap_std::fs::{DirEntry, FileType};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::scope::{ReadScope, run_on_jail};
use crate::chat::ToolSpec;
use crate::guard::{Jail, quote_controls};
use crate::tools::{OutputLimit, ReplayPolicy, Tool, ToolAccess, ToolContext, ToolOutcome, tool_spec};

/// The entries that are shown, and that are read to sort them.
const MAX_SHOWN: usize = 500;
const MAX_SORTED: usize = 50_000;

#[derive(Deserialize, JsonSchema)]
struct ListDirArgs {
    /// Default: the workspace.
    path: Option<String>,
}

/// Lists one folder, sorted by name.
pub struct ListDir {
    spec: ToolSpec,
    scope: ReadScope,
}

impl ListDir {
    pub fn new(scope: ReadScope) -> Self {
        Self {
            spec: tool_spec::<ListDirArgs>("list_dir", "List a folder: folders end with /, files show their size."),
            scope,
        }
    }
}

#[async_trait]
impl Tool for ListDir {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Idempotent
    }

    fn access(&self) -> ToolAccess {
        ToolAccess::Reads
    }

    /// An untrusted sender sees the sender's own files, and public ones.
    fn allows_untrusted(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.scope.allows_untrusted(arguments, context)
    }

    fn output_limit(&self) -> OutputLimit {
        OutputLimit { chars: 16_000, lines: MAX_SHOWN + 2 }
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        run_on_jail(self.scope.for_turn(context), arguments, |jail, args: ListDirArgs| {
            list(jail, args.path.as_deref().unwrap_or("."))
        })
        .await
    }
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
