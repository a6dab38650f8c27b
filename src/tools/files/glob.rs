//! The tool `glob`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use globset::{GlobBuilder, GlobMatcher};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::{ReadContext, ReadTool, ShownFiles};
use super::scope::ReadScope;
use crate::guard::{EntryKind, Jail, JailError, Taint, Walk, WalkSelection, WalkStop, WalkedEntry};
use crate::text::one_line;
use crate::tools::{OutputLimit, Tool, ToolDefinition, ToolResult};

/// The maximum number of paths that are shown.
const MAX_SHOWN: usize = 200;
/// The longest accepted pattern, in bytes.
const MAX_PATTERN: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
struct GlobArgs {
    /// Such as src/**/*.rs.
    pattern: String,
    path: Option<String>,
}

/// Returns the tool `glob`, which finds files by their paths.
pub fn glob(scope: ReadScope, timeout: Duration) -> Arc<dyn Tool> {
    let definition = ToolDefinition {
        output_limit: OutputLimit { chars: 16_000, lines: MAX_SHOWN + 2 },
        ..ToolDefinition::reading::<GlobArgs>("glob", "Find files by name, newest first.")
    };
    Arc::new(ReadTool::new(definition, scope, timeout, ShownFiles::Below, find))
}

/// A pattern, split into a leading folder without wildcards and the rest.
struct PathPattern {
    /// The folder before the first wildcard, relative to the searched folder.
    folder: String,
    matcher: GlobMatcher,
    /// For a pattern without a folder: the same pattern at any depth.
    anywhere: Option<GlobMatcher>,
    /// The maximum depth of a match; `None` for any depth.
    depth: Option<usize>,
    /// True if hidden folders are entered, because the pattern names one.
    enters_hidden: bool,
    /// True if only folders match.
    wants_folders: bool,
}

impl PathPattern {
    fn new(pattern: &str) -> Result<Self, String> {
        if pattern.trim().is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        if pattern.len() > MAX_PATTERN {
            return Err(format!("the pattern has more than {MAX_PATTERN} bytes"));
        }
        if pattern.contains('\0') {
            return Err("the pattern holds a NUL".to_owned());
        }
        let plain = pattern.trim_start_matches("./").trim_end_matches('/');
        if plain.starts_with('/') || plain.starts_with('~') || plain.split('/').any(|part| part == "..") {
            return Err(format!(
                "pattern {pattern:?}: relative to path, so without / or ~ at its start and without .."
            ));
        }
        let is_plain = |part: &&str| !part.contains(['*', '?', '[', ']', '{', '}', '\\']);
        let parts: Vec<&str> = plain.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let fixed = parts.iter().take(parts.len().saturating_sub(1)).take_while(|part| is_plain(part)).count();
        let (folder, rest) = parts.split_at(fixed);
        let rest_pattern = rest.join("/");
        let has_folders = parts.len() > 1;
        let matcher = compile(&rest_pattern)?;
        let anywhere = (!has_folders).then(|| compile(&format!("**/{rest_pattern}"))).transpose()?;
        let is_any_depth = !has_folders || rest_pattern.contains("**") || rest_pattern.contains('{');
        Ok(Self {
            folder: folder.join("/"),
            matcher,
            anywhere,
            depth: (!is_any_depth).then_some(rest.len()),
            enters_hidden: rest.iter().rev().skip(1).any(|part| part.starts_with('.')),
            wants_folders: pattern.ends_with('/'),
        })
    }

    fn selection(&self, path: &Path, kind: EntryKind) -> WalkSelection {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        match kind {
            EntryKind::Folder if self.depth.is_some_and(|depth| path.iter().count() > depth) => WalkSelection::Never,
            EntryKind::Folder if is_hidden && self.enters_hidden && !path.ends_with(".git") => WalkSelection::Always,
            EntryKind::Folder => WalkSelection::Usual,
            EntryKind::File if self.wants_folders || !self.is_match(path) => WalkSelection::Never,
            // `*` matches no hidden file, but `.*` does.
            EntryKind::File if is_hidden && self.names_hidden() => WalkSelection::Always,
            EntryKind::File => WalkSelection::Usual,
        }
    }

    fn names_hidden(&self) -> bool {
        let pattern = self.matcher.glob().glob();
        pattern.rsplit('/').next().is_some_and(|name| name.starts_with('.'))
    }

    fn is_match(&self, path: &Path) -> bool {
        self.matcher.is_match(path) || self.anywhere.as_ref().is_some_and(|anywhere| anywhere.is_match(path))
    }
}

/// Compiles a glob whose `*` and `?` do not match `/`.
///
/// # Errors
/// States what is wrong with the glob.
pub(super) fn compile(pattern: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| one_line(&error.to_string()))
}

/// A path with the time of its last change, and the source of its name if others may have chosen the name.
type DatedPath = (SystemTime, Reverse<String>, Option<String>);

/// The newest matching paths, and the total number of matches.
#[derive(Default)]
struct NewestPaths {
    total: usize,
    /// The newest paths, with the oldest of them on top of the heap.
    newest: BinaryHeap<Reverse<DatedPath>>,
}

impl NewestPaths {
    fn add(&mut self, modified: SystemTime, shown: String, source: Option<String>) {
        self.total += 1;
        self.newest.push(Reverse((modified, Reverse(shown), source)));
        if self.newest.len() > MAX_SHOWN {
            self.newest.pop();
        }
    }

    /// Returns the paths, the newest first, and the sources of their names.
    fn into_lines(self) -> (Vec<String>, Taint) {
        let paths = self.newest.into_sorted_vec().into_iter();
        let (lines, sources): (_, Vec<_>) = paths.map(|Reverse((_, Reverse(shown), source))| (shown, source)).unzip();
        (lines, sources.into_iter().flatten().collect())
    }
}

/// The matches of a walk. If the pattern names no folder, files and folders directly in the searched folder are kept apart from
/// deeper ones.
#[derive(Default)]
struct GlobMatches {
    files: NewestPaths,
    folders: NewestPaths,
    deeper: NewestPaths,
}

fn find(jail: &Jail, args: &GlobArgs, context: &ReadContext) -> Result<ToolResult, String> {
    let ReadContext { stop, foreign, .. } = context;
    let path = args.path.as_deref().unwrap_or(".");
    // Models may prefix the pattern with the whole path of the workspace.
    let root = format!("{}/", jail.root().display());
    let pattern = args.pattern.strip_prefix(&root).filter(|_| args.path.is_none()).unwrap_or(&args.pattern);
    let pattern = PathPattern::new(pattern)?;
    let first = Walk::new(jail, path, stop).map_err(|error| error.to_string())?;
    let found = Mutex::new(GlobMatches::default());
    let below = format!("{path}/{}", pattern.folder);
    let walk = match pattern.folder.as_str() {
        "" => Ok(first),
        _ => Walk::new(jail, &below, stop),
    };
    let mut left_out = Vec::new();
    match walk {
        Ok(walk) => {
            let select = |path: &Path, kind| pattern.selection(path, kind);
            let collect = |entry: &WalkedEntry<'_>| {
                let path = entry.path();
                let is_file = entry.kind == EntryKind::File;
                let is_direct = pattern.matcher.is_match(&path);
                if !is_direct && !is_file {
                    return;
                }
                let modified = entry.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let source = entry.workspace_path().and_then(|path| foreign.name_source(&path));
                let (shown, mut found) = (entry.shown(), found.lock());
                match (is_file, is_direct) {
                    (true, true) => found.files.add(modified, shown, source),
                    (true, false) => found.deeper.add(modified, shown, source),
                    (false, _) => found.folders.add(modified, format!("{shown}/"), source),
                }
            };
            walk.run(&select, || collect);
            left_out.extend(walk.skipped.list().into_iter().filter(|(_, what)| *what != "special"));
        }
        Err(JailError::Missing(_) | JailError::NotFolder(_)) => {}
        Err(error) => return Err(error.to_string()),
    }
    let GlobMatches { files, folders, deeper } = found.into_inner();
    let mut note = None;
    let shown = if files.total > 0 {
        files
    } else if folders.total > 0 {
        folders
    } else {
        note = (deeper.total > 0).then(|| format!("[none directly there; these match **/{}]", args.pattern));
        deeper
    };
    let more = shown.total.saturating_sub(MAX_SHOWN);
    let (mut lines, sources) = shown.into_lines();
    if lines.is_empty() {
        lines.push("No file matches.".to_owned());
    }
    lines.extend(note);
    if more > 0 {
        lines.push(format!("[{more} more, not shown: narrow the pattern]"));
    }
    lines.extend(match stop.reason() {
        Some(WalkStop::TooMany) => Some("[too many files, so not all were seen: name a folder]".to_owned()),
        Some(WalkStop::Cancelled) => Some("[cancelled before all were seen]".to_owned()),
        Some(WalkStop::Deadline | WalkStop::Enough) => Some("[stopped before all were seen: name a folder]".to_owned()),
        None => None,
    });
    let left_out: Vec<_> = left_out.iter().map(|(count, what)| format!("{count} {what}")).collect();
    if !left_out.is_empty() {
        lines.push(format!("[skipped: {}]", left_out.join(", ")));
    }
    let mut result = ToolResult::ok(lines.join("\n"));
    result.add_sources(sources);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::tools::testing::ToolFixture;
    use crate::tools::{PrivateFolders, ToolsConfig};

    fn fixture() -> ToolFixture {
        let fixture = ToolFixture::with_private(&ToolsConfig::default(), PrivateFolders::new(&["memory"]));
        let files = [
            "top.rs", "src/a.rs", "src/b.txt", "src/deep/c.rs", "src/deep/er/d.rs", "tests/e.rs", ".github/ci.yml",
            ".env", "target/out.rs", "src/x [1].md", ".git/config", "memory/m.rs", ".daoyou/s.rs",
        ];
        for (age, file) in files.iter().enumerate() {
            fs::create_dir_all(fixture.path(file).parent().unwrap()).unwrap();
            fs::write(fixture.path(file), file).unwrap();
            let modified = SystemTime::now() - Duration::from_secs(60 * age as u64 + 60);
            fs::File::options().write(true).open(fixture.path(file)).unwrap().set_modified(modified).unwrap();
        }
        fs::write(fixture.path(".gitignore"), "target/\n").unwrap();
        symlink("../..", fixture.path("src/out")).unwrap();
        fixture
    }

    #[tokio::test]
    async fn paths_match_by_the_rules_of_shells() {
        let fixture = fixture();
        let root = fixture.path("").canonicalize().unwrap().display().to_string();
        let root = root.trim_end_matches('/').to_owned();
        for (pattern, path, expected) in [
            ("**/*.rs", None, "top.rs src/a.rs src/deep/c.rs src/deep/er/d.rs tests/e.rs memory/m.rs"),
            ("*.rs", None, "top.rs"),
            ("*.rs", Some("src"), "src/a.rs"),
            ("./src/*.{rs,txt}", None, "src/a.rs src/b.txt"),
            ("{src,tests}/**/*.rs", None, "src/a.rs src/deep/c.rs src/deep/er/d.rs tests/e.rs"),
            ("src/*/c.rs", None, "src/deep/c.rs"),
            ("src/deep/c.rs", None, "src/deep/c.rs"),
            ("d.rs", None, "src/deep/er/d.rs|[none directly there; these match **/d.rs]"),
            (".github/*.yml", None, ".github/ci.yml"),
            ("**/.github/*", None, ".github/ci.yml"),
            (".e*", None, ".env"),
            ("*env", None, "No file matches."),
            ("target/*", None, "target/out.rs"),
            ("**/out.rs", None, "No file matches."),
            ("src/d*", None, "src/deep/"),
            ("src/*/", None, "src/deep/"),
            ("src/x \\[1\\].md", None, "src/x [1].md"),
            ("none/*.rs", None, "No file matches."),
            ("top.rs/*", None, "No file matches."),
            ("**/.git/*", None, "No file matches."),
            (&format!("{root}/src/*.txt"), None, "src/b.txt"),
        ] {
            let arguments = json!({ "pattern": pattern, "path": path });
            let rendered = fixture.rendered("glob", arguments).await;
            let expected = match expected.split_once('|') {
                Some((path, note)) => format!("{path}\n{note}"),
                None if expected.ends_with('.') || pattern.contains(' ') => expected.to_owned(),
                None => expected.replace(' ', "\n"),
            };
            assert_eq!(rendered, expected, "{pattern} {path:?}");
        }
    }

    #[tokio::test]
    async fn faults_are_one_clear_error() {
        let fixture = fixture();
        let long = "a".repeat(2_000);
        for (pattern, path, expected) in [
            ("a[", ".", "error parsing glob 'a[': unclosed character class"),
            ("", ".", "the pattern is empty"),
            ("../*", ".", "relative to path"),
            ("a/../../*", ".", "relative to path"),
            ("/etc/*", ".", "relative to path"),
            ("~/*", ".", "relative to path"),
            (&long, ".", "more than 1000 bytes"),
            ("*", "none", "none: no such file or folder"),
            ("*", "top.rs", "top.rs: is not a folder"),
            ("*", "../", "outside the workspace"),
            ("*", "src/out", "outside the workspace"),
            ("out/*", "src", "outside the workspace"),
            ("*", ".daoyou", "off limits"),
            (".daoyou/*", ".", "off limits"),
        ] {
            let rendered = fixture.rendered("glob", json!({ "pattern": pattern, "path": path })).await;
            let first = rendered.lines().next().unwrap_or_default();
            assert!(first.starts_with("Error: ") && first.contains(expected), "{pattern:?} {path}: {rendered}");
        }
    }

    #[tokio::test]
    async fn only_the_newest_paths_are_shown() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        for number in 0..MAX_SHOWN + 50 {
            fs::write(fixture.path(&format!("{number}.txt")), "").unwrap();
        }
        let old = SystemTime::now() - Duration::from_secs(3_600);
        fs::File::options().write(true).open(fixture.path("7.txt")).unwrap().set_modified(old).unwrap();
        let rendered = fixture.rendered("find_files", json!({ "pattern": "*.txt" })).await;
        assert_eq!(rendered.lines().count(), MAX_SHOWN + 1);
        assert!(
            rendered.ends_with("[50 more, not shown: narrow the pattern]") && !rendered.contains("\n7.txt"),
            "{rendered}"
        );
    }
}
