//! The tool `repo_structure`: the tree of folders and files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::guard::{EntryKind, Jail, Walk, WalkSelection, WalkStop, WalkedEntry, quote_controls};
use crate::text::plural;
use crate::tools::files::{
    ReadContext, ReadScope, ReadTool, ShownFiles, foreign_folder_of, real_workspace_path, skip_note,
};
use crate::tools::{OutputLimit, Tool, ToolDefinition, ToolResult};

const DEFAULT_DEPTH: usize = 3;
/// The maximum number of lines of a tree, and of entries of one folder in it.
const MAX_LINES: usize = 400;
const MAX_OF_FOLDER: usize = 60;
/// The maximum number of folders and files that are in memory.
const MAX_ENTRIES: usize = 200_000;

#[derive(Deserialize, JsonSchema)]
struct RepoStructureArgs {
    /// Default: the workspace.
    path: Option<String>,
    #[schemars(range(min = 1, max = 20))]
    max_depth: Option<u32>,
}

/// Returns the tool `repo_structure`, which shows the tree below a folder.
pub fn repo_structure(scope: ReadScope, timeout: Duration) -> Arc<dyn Tool> {
    let definition = ToolDefinition {
        output_limit: OutputLimit { chars: 16_000, lines: MAX_LINES + 10 },
        ..ToolDefinition::reading::<RepoStructureArgs>("repo_structure", "Show the tree of folders and files.")
    };
    Arc::new(ReadTool::new(definition, scope, timeout, ShownFiles::InFolder, structure))
}

/// The content of a folder.
#[derive(Debug, Default)]
struct FolderTree {
    folders: BTreeMap<String, FolderTree>,
    files: Vec<String>,
}

/// The numbers of folders and files below a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EntryCounts {
    folders: usize,
    files: usize,
}

/// What a walk has found so far.
#[derive(Default)]
struct WalkedTree {
    tree: FolderTree,
    /// The folders of the workspace that hold found entries with foreign content.
    foreign_folders: BTreeSet<&'static str>,
    /// The number of entries, also of those that are not in the tree.
    count: usize,
}

/// Draws the tree. What others wrote into `mail/` and `scratch/` is left out, unless the call names a folder in them.
fn structure(jail: &Jail, args: &RepoStructureArgs, context: &ReadContext) -> Result<ToolResult, String> {
    let ReadContext { stop, foreign, .. } = context;
    let path = args.path.as_deref().unwrap_or(".");
    let wanted = args.max_depth.map_or(DEFAULT_DEPTH, |depth| depth as usize);
    let is_named = real_workspace_path(jail, path).is_some_and(|path| foreign_folder_of(&path).is_some());
    let found = Mutex::new(WalkedTree::default());
    let walk = Walk::new(jail, path, stop).map_err(|error| error.to_string())?;
    let collect = |entry: &WalkedEntry<'_>| {
        // The sender's own files are not foreign.
        let inside = entry.workspace_path().filter(|path| foreign.name_source(path).is_some());
        let foreign_in = inside.and_then(|path| foreign_folder_of(&path));
        let names = (is_named || foreign_in.is_none()).then(|| shown_names(&entry.path()));
        let mut found = found.lock();
        if found.count >= MAX_ENTRIES {
            return stop.stop(WalkStop::TooMany);
        }
        found.count += 1;
        found.foreign_folders.extend(foreign_in);
        if let Some(names) = names {
            found.tree.add(names, entry.kind);
        }
    };
    walk.run(&|_, _| WalkSelection::Usual, || collect);
    let WalkedTree { mut tree, foreign_folders, .. } = found.into_inner();
    tree.sort();
    let (lines, depth) = draw_within(&tree, wanted, MAX_LINES);
    let all = tree.count();
    let mut text = lines.join("\n");
    if all == EntryCounts::default() {
        text.push_str("(the folder is empty)");
    }
    if depth < wanted && lines.iter().any(|line| line.ends_with(')')) {
        text.push_str(&format!("\n[shown to depth {depth}, as more is too long: name a folder]"));
    }
    if let Some(note) = context.stop_note() {
        text = format!("{text}\n{note}");
    }
    let skipped = skip_note(&walk.skipped.list());
    text = format!("{text}\n[{}{skipped}]", all.describe());
    if is_named {
        let mut result = ToolResult::ok(text);
        result.add_sources(foreign_folders.into_iter().map(|folder| format!("file:{folder}")).collect());
        return Ok(result);
    }
    if !foreign_folders.is_empty() {
        let folders: Vec<_> = foreign_folders.into_iter().map(|folder| format!("{folder}/")).collect();
        text = format!("{text}\n[not shown: what is in {}; name the folder]", folders.join(", "));
    }
    Ok(ToolResult::ok(text))
}

/// Draws a tree to the greatest depth, up to `wanted`, at which it has at most `most` lines. Returns the lines and that depth.
fn draw_within(tree: &FolderTree, wanted: usize, most: usize) -> (Vec<String>, usize) {
    let mut depth = wanted.max(1);
    loop {
        let mut lines = Vec::new();
        tree.draw(depth, 0, &mut lines);
        if lines.len() <= most || depth == 1 {
            return (lines, depth);
        }
        depth -= 1;
    }
}

impl EntryCounts {
    fn describe(self) -> String {
        format!("{}, {}", plural(self.folders, "folder"), plural(self.files, "file"))
    }
}

/// Returns the names of a path's folders and of the entry itself, as the tree shows them.
fn shown_names(path: &Path) -> Vec<String> {
    path.iter().map(|name| quote_controls(&name.to_string_lossy())).collect()
}

impl FolderTree {
    /// Adds an entry, and the folders that hold it.
    fn add(&mut self, names: Vec<String>, kind: EntryKind) {
        let mut folder = self;
        let mut names = names.into_iter().peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() && kind == EntryKind::File {
                return folder.files.push(name);
            }
            folder = folder.folders.entry(name).or_default();
        }
    }

    fn sort(&mut self) {
        self.files.sort_unstable();
        self.folders.values_mut().for_each(Self::sort);
    }

    fn count(&self) -> EntryCounts {
        let own = EntryCounts { folders: self.folders.len(), files: self.files.len() };
        self.folders
            .values()
            .map(Self::count)
            .fold(own, |sum, more| EntryCounts { folders: sum.folders + more.folders, files: sum.files + more.files })
    }

    /// Adds the lines of the tree to `lines`, `depth` folders deep.
    fn draw(&self, depth: usize, level: usize, lines: &mut Vec<String>) {
        let indent = "  ".repeat(level);
        for (name, folder) in self.folders.iter().take(MAX_OF_FOLDER) {
            let is_last = depth <= 1;
            let below = folder.count();
            if is_last && below != EntryCounts::default() {
                lines.push(format!("{indent}{name}/ ({})", below.describe()));
            } else {
                lines.push(format!("{indent}{name}/"));
                folder.draw(depth.saturating_sub(1), level + 1, lines);
            }
        }
        let room = MAX_OF_FOLDER.saturating_sub(self.folders.len()).max(MAX_OF_FOLDER / 2);
        lines.extend(self.files.iter().take(room).map(|name| format!("{indent}{name}")));
        let left = EntryCounts {
            folders: self.folders.len().saturating_sub(MAX_OF_FOLDER),
            files: self.files.len().saturating_sub(room),
        };
        if left != EntryCounts::default() {
            lines.push(format!("{indent}[{} more]", left.describe()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> FolderTree {
        let mut tree = FolderTree::default();
        for path in paths {
            let kind = if path.ends_with('/') { EntryKind::Folder } else { EntryKind::File };
            tree.add(shown_names(Path::new(path)), kind);
        }
        tree.sort();
        tree
    }

    #[test]
    fn folders_come_first_and_deeper_ones_are_counted() {
        let tree = tree(&["z.txt", "src/", "src/b.rs", "src/a/", "src/a/x.rs", "src/a/y.rs", "empty/", "a\nb", "A.md"]);
        for (depth, most, expected) in [
            (3, 99, "empty/\nsrc/\n  a/\n    x.rs\n    y.rs\n  b.rs\n\"a\\nb\"\nA.md\nz.txt"),
            (2, 99, "empty/\nsrc/\n  a/ (0 folders, 2 files)\n  b.rs\n\"a\\nb\"\nA.md\nz.txt"),
            (3, 8, "empty/\nsrc/\n  a/ (0 folders, 2 files)\n  b.rs\n\"a\\nb\"\nA.md\nz.txt"),
            (1, 1, "empty/\nsrc/ (1 folder, 3 files)\n\"a\\nb\"\nA.md\nz.txt"),
        ] {
            assert_eq!(draw_within(&tree, depth, most).0.join("\n"), expected, "{depth} {most}");
        }
        assert_eq!(tree.count(), EntryCounts { folders: 3, files: 6 });
    }

    #[test]
    fn a_folder_with_many_entries_is_cut() {
        let paths: Vec<_> = (0..100).flat_map(|number| [format!("d{number:03}/"), format!("f{number:03}")]).collect();
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        let lines = draw_within(&tree(&paths), 3, MAX_LINES).0;
        assert_eq!(lines.len(), 91);
        assert_eq!(lines[90], "[40 folders, 70 files more]");
    }
}
