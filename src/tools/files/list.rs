//! `list_dir`.

use async_trait::async_trait;
use cap_std::fs::{DirEntry, FileType};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Rooms, on_disk};
use crate::chat::ToolSpec;
use crate::guard::Jail;
use crate::tools::{Access, OutputLimit, Replay, Tool, ToolContext, ToolOutcome, tool_spec};

/// Entries that are shown, and that are looked at to sort them.
const SHOWN: usize = 500;
const LOOKED_AT: usize = 50_000;

#[derive(Deserialize, JsonSchema)]
struct Args {
    /// Default: the workspace.
    path: Option<String>,
}

/// Lists one folder, sorted by name.
pub struct ListDir {
    spec: ToolSpec,
    rooms: Rooms,
}

impl ListDir {
    pub fn new(rooms: Rooms) -> Self {
        Self { spec: tool_spec::<Args>("list_dir", "List a folder: folders end with /, files show their size."), rooms }
    }
}

#[async_trait]
impl Tool for ListDir {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["ls", "list_files", "list_directory", "list"]
    }

    fn replay(&self) -> Replay {
        Replay::Idempotent
    }

    fn access(&self) -> Access {
        Access::Reads
    }

    /// A stranger is shown what he sent himself, and what is open to all.
    fn serves_strangers(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.rooms.show_strangers(arguments, context)
    }

    fn output_limit(&self) -> OutputLimit {
        OutputLimit { chars: 16_000, lines: SHOWN + 2 }
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        on_disk(self.rooms.of(context), arguments, |jail, args: Args| list(jail, args.path.as_deref().unwrap_or(".")))
            .await
    }
}

fn list(jail: &Jail, path: &str) -> Result<String, String> {
    let (folder, shown) = jail.folder(path).map_err(|error| error.to_string())?;
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let mut entries: Vec<(String, DirEntry)> = Vec::new();
    let mut left = 0;
    for entry in folder.entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entries.len() < LOOKED_AT {
            entries.push((entry.file_name().to_string_lossy().into_owned(), entry));
        } else {
            left += 1;
        }
    }
    if entries.is_empty() {
        return Ok("(the folder is empty)".to_owned());
    }
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    left += entries.len().saturating_sub(SHOWN);
    let mut lines: Vec<String> = entries.iter().take(SHOWN).map(|(name, entry)| line(name, entry)).collect();
    if left > 0 {
        lines.push(format!("[{left} more entries, not shown]"));
    }
    Ok(lines.join("\n"))
}

fn line(name: &str, entry: &DirEntry) -> String {
    // A line break in a name would look like a further entry.
    let name = if name.chars().any(char::is_control) { format!("{name:?}") } else { name.to_owned() };
    let kind = entry.file_type().ok();
    let is = |wanted: fn(&FileType) -> bool| kind.as_ref().is_some_and(wanted);
    if is(FileType::is_dir) {
        return format!("{name}/");
    }
    if is(FileType::is_symlink) {
        return format!("{name} (link)");
    }
    match entry.metadata() {
        Ok(metadata) if is(FileType::is_file) => format!("{name} ({})", size(metadata.len())),
        _ => format!("{name} (special)"),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} KB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
