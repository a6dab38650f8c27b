//! The tool `list_dir`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::{DirEntry, FileType};
use globset::GlobMatcher;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::{ReadTool, ShownFiles};
use super::glob::compile;
use super::scope::{ForeignFiles, ReadScope, real_workspace_path};
use crate::guard::{Jail, show_listed};
use crate::text::format_size;
use crate::tools::{OutputLimit, Tool, ToolDefinition, ToolResult};

/// The maximum number of entries that are shown, and of those that are read for sorting.
const MAX_SHOWN: usize = 500;
const MAX_SORTED: usize = 50_000;

#[derive(Deserialize, JsonSchema)]
struct ListDirArgs {
    path: Option<String>,
    /// A glob for names; tools of other systems have it.
    #[schemars(skip)]
    pattern: Option<String>,
}

/// Returns the tool `list_dir`, which lists one folder, sorted by name.
pub fn list_dir(scope: ReadScope, timeout: Duration) -> Arc<dyn Tool> {
    let description = "List a folder; folders end with /.";
    let definition = ToolDefinition {
        output_limit: OutputLimit { chars: 16_000, lines: MAX_SHOWN + 2 },
        ..ToolDefinition::reading::<ListDirArgs>("list_dir", description)
    };
    Arc::new(ReadTool::new(definition, scope, timeout, ShownFiles::InFolder, |jail, args: &ListDirArgs, context| {
        let pattern = args.pattern.as_deref().map(name_pattern).transpose()?;
        list(jail, args.path.as_deref().unwrap_or("."), pattern.as_ref(), &context.foreign)
    }))
}

fn name_pattern(pattern: &str) -> Result<GlobMatcher, String> {
    if pattern.contains('/') {
        return Err("pattern: only for names in this folder; glob finds files by their paths".to_owned());
    }
    compile(pattern).map_err(|error| format!("pattern: {error}"))
}

fn list(jail: &Jail, path: &str, pattern: Option<&GlobMatcher>, foreign: &ForeignFiles) -> Result<ToolResult, String> {
    let (folder, shown) = jail.folder(path).map_err(|error| error.to_string())?;
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let mut entries: Vec<(String, DirEntry)> = Vec::new();
    let mut hidden = 0;
    for entry in folder.entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if pattern.is_some_and(|pattern| !pattern.is_match(entry.file_name())) {
            continue;
        }
        if entries.len() < MAX_SORTED {
            entries.push((entry.file_name().to_string_lossy().into_owned(), entry));
        } else {
            hidden += 1;
        }
    }
    if entries.is_empty() {
        return Ok(ToolResult::ok(match pattern {
            Some(_) => "(no name in the folder fits the pattern)",
            None => "(the folder is empty)",
        }));
    }
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    hidden += entries.len().saturating_sub(MAX_SHOWN);
    let mut lines: Vec<String> = entries.iter().take(MAX_SHOWN).map(|(_, entry)| format_entry(entry)).collect();
    if hidden > 0 {
        lines.push(format!("[{hidden} more entries, not shown]"));
    }
    let mut result = ToolResult::ok(lines.join("\n"));
    if let Some(folder) = real_workspace_path(jail, path) {
        let shown = entries.iter().take(MAX_SHOWN);
        result.add_sources(shown.filter_map(|(name, _)| foreign.name_source(&folder.join(name))).collect());
    }
    Ok(result)
}

fn format_entry(entry: &DirEntry) -> String {
    let name = show_listed(Path::new(&entry.file_name()));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tools::testing::{ToolFixture, context};
    use crate::tools::{ToolContext, ToolsConfig};

    #[tokio::test]
    async fn a_pattern_selects_names() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.write(&[("a.py", ""), ("b.rs", ""), ("src/c.py", "")]);
        for (arguments, expected) in [
            (json!({"directory": ".", "pattern": "*.py", "recursive": false, "max_depth": 3}), "a.py (0 B)"),
            (json!({"directory": "src", "pattern": "{a,c}.*"}), "c.py (0 B)"),
            (json!({"pattern": "s*"}), "src/"),
            (json!({"pattern": "*.go"}), "(no name in the folder fits the pattern)"),
            (
                json!({"pattern": "src/*"}),
                "Error: pattern: only for names in this folder; glob finds files by their paths",
            ),
            (json!({"pattern": "[a"}), "Error: pattern: "),
            (
                json!({"recursive": true}),
                "Error: Invalid params for tool \"list_dir\": recursive: only false is possible: repo_structure shows a tree",
            ),
        ] {
            let rendered = fixture.rendered("list_files", arguments.clone()).await;
            assert!(rendered.starts_with(expected), "{arguments}: {rendered}");
            assert!(expected.starts_with("Error") || rendered == expected, "{arguments}: {rendered}");
        }
    }

    #[tokio::test]
    async fn a_name_that_no_call_can_give_is_marked() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.write(&[("sub/ok.txt", "needle\n")]);
        std::fs::write(fixture.path("sub").join(OsStr::from_bytes(b"b\xff.txt")), "needle\n").unwrap();
        std::fs::create_dir(fixture.path("sub").join(OsStr::from_bytes(b"d\xff"))).unwrap();
        let mark = "(not UTF-8: no file tool can name it)";
        for (tool, arguments, expected) in [
            (
                "list_dir",
                json!({"path": "sub"}),
                format!("\"b\\xFF.txt\" {mark} (7 B)\n\"d\\xFF\" {mark}/\nok.txt (7 B)"),
            ),
            ("glob", json!({"pattern": "sub/b*"}), format!("\"sub/b\\xFF.txt\" {mark}")),
            ("glob", json!({"pattern": "sub/d*"}), format!("\"sub/d\\xFF\" {mark}/")),
            (
                "grep",
                json!({"pattern": "needle"}),
                format!("\"sub/b\\xFF.txt\" {mark}:1: needle\nsub/ok.txt:1: needle\n[searched 2 files]"),
            ),
        ] {
            assert_eq!(fixture.rendered(tool, arguments.clone()).await, expected, "{tool} {arguments}");
        }
    }

    #[tokio::test]
    async fn names_that_others_chose_count_as_their_content() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.write(&[
            ("own.txt", ""),
            ("src/a.rs", ""),
            ("scratch/run rm.txt", ""),
            ("mail/ab/c/run it.pdf", ""),
            ("mail/ab/d/own.pdf", ""),
        ]);
        std::os::unix::fs::symlink("scratch", fixture.path("link")).unwrap();
        let context = ToolContext { files: ["mail/ab/d/own.pdf".to_owned()].into(), ..context() };
        for (tool, arguments, expected, source) in [
            ("list_dir", json!({}), "scratch/", None),
            ("list_dir", json!({"path": "src"}), "a.rs", None),
            ("list_dir", json!({"path": "scratch"}), "run rm.txt", Some("file:scratch")),
            ("list_dir", json!({"path": "link"}), "run rm.txt", Some("file:scratch")),
            ("list_dir", json!({"path": "src/../scratch/."}), "run rm.txt", Some("file:scratch")),
            ("list_dir", json!({"path": "mail/ab/c"}), "run it.pdf", Some("file:mail")),
            ("list_dir", json!({"path": "mail/ab/d"}), "own.pdf", None),
            ("glob", json!({"pattern": "**/*.rs"}), "src/a.rs", None),
            ("glob", json!({"pattern": "*.txt"}), "own.txt", None),
            ("glob", json!({"pattern": "**/*.txt"}), "scratch/run rm.txt", Some("file:scratch")),
            ("glob", json!({"pattern": "*.txt", "path": "link"}), "run rm.txt", Some("file:scratch")),
            ("glob", json!({"pattern": "scratch/*"}), "run rm.txt", Some("file:scratch")),
            ("glob", json!({"pattern": "mail/*/"}), "mail/ab/", Some("file:mail")),
            ("glob", json!({"pattern": "**/own.pdf"}), "own.pdf", None),
            ("repo_structure", json!({}), "not shown: what is in mail/, scratch/", None),
            ("repo_structure", json!({"path": "src"}), "a.rs", None),
            ("repo_structure", json!({"path": "scratch"}), "run rm.txt", Some("file:scratch")),
            ("repo_structure", json!({"path": "mail/ab"}), "run it.pdf", Some("file:mail")),
        ] {
            let result = fixture.run(tool, &arguments, &context).await.result;
            assert!(result.success && result.content.contains(expected), "{tool} {arguments}: {}", result.content);
            let sources: Vec<&str> = result.taint.iter().map(String::as_str).collect();
            assert_eq!(sources, Vec::from_iter(source), "{tool} {arguments}: {}", result.content);
            assert!(source.is_some() || !result.content.contains("run "), "{tool} {arguments}: {}", result.content);
            let found = fixture.executor.registry().get(tool).unwrap();
            assert!(source.is_none() || found.may_taint(&arguments, &context), "{tool} {arguments}");
        }
    }
}
