//! The tool `repo_map`: a map of the most important definitions of a code base, within a number of tokens.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::cache::{CacheUpdate, CodeCache, ContentKey, KnownFile, SourceStamp};
use super::graph::{GraphFile, RankedDefinition, rank_definitions};
use super::parser::{ParseFailure, SkipReason, SourceParser};
use super::scan::{ScanResult, ScannedFile, SourceFile, SourceScope, source_text};
use super::tags::{FileTags, extract_tags};
use crate::guard::{Jail, StopSignal, quote_controls};
use crate::llm::estimate_tokens;
use crate::text::truncate;
use crate::tools::files::{CACHED, ReadContext, ReadScope, ReadTool, ShownFiles, files_word, skip_note};
use crate::tools::{OutputLimit, Tool, ToolDefinition, ToolResult};

/// The size of a map if the call does not set one, in tokens.
const DEFAULT_TOKENS: usize = 2_000;
/// The minimum number of tokens that a definition takes.
const LEAST_TOKENS: usize = 3;
/// The maximum number of files under discussion, and of mentioned names, that count.
const MAX_HINTS: usize = 200;
/// The maximum number of other file kinds, and of unknown files, that a note names.
const NAMED_KINDS: usize = 5;
const NAMED_CHARS: usize = 100;
/// The maximum number of maps that are built at the same time, each with several threads.
const AT_ONCE: usize = 2;

#[derive(Deserialize, JsonSchema)]
struct RepoMapArgs {
    /// Default: the workspace.
    path: Option<String>,
    /// Under discussion.
    #[serde(default)]
    files: Option<Vec<String>>,
    /// Names of interest.
    #[serde(default)]
    idents: Option<Vec<String>>,
    #[schemars(range(min = 100, max = 10000))]
    max_tokens: Option<u32>,
}

/// Returns the tool `repo_map`.
pub fn repo_map(scope: ReadScope, cache: CodeCache, timeout: Duration) -> Arc<dyn Tool> {
    let definition = ToolDefinition {
        output_limit: OutputLimit { chars: 40_000, lines: 5_000 },
        cache_ttl: Some(CACHED),
        ..ToolDefinition::reading::<RepoMapArgs>("repo_map", "Map the main definitions of a code base.")
    };
    let map = move |jail: &Jail, args: &RepoMapArgs, context: &ReadContext| map(jail, args, &cache, context);
    Arc::new(ReadTool::new(definition, scope, timeout, ShownFiles::Below, map).at_once(AT_ONCE))
}

/// A file of the map.
type MappedFile = ScannedFile<ReadTags>;

/// The tags of a file, and where they come from.
struct ReadTags {
    tags: FileTags,
    /// The entry to add to the cache; `None` if the cache already knows the file.
    news: Option<(SourceStamp, ContentKey)>,
    /// True if the file was parsed for this map.
    is_parsed: bool,
}

fn map(jail: &Jail, args: &RepoMapArgs, cache: &CodeCache, context: &ReadContext) -> Result<ToolResult, String> {
    let ReadContext { stop, foreign, .. } = context;
    let path = args.path.as_deref().unwrap_or(".");
    let scope = SourceScope::open(jail, path, stop)?;
    let known = cache.files_below(scope.real());
    let mut scan = scope.scan(stop, &|_, _| true, &|parser, file| read_file(parser, file, cache, &known, stop))?;
    let parsed = scan.items.iter().filter(|file| file.value.is_parsed).count();
    remember(cache, &scan.items, known, stop.reason().is_none());
    let deep = scan.items.iter().filter(|file| file.value.tags.is_too_deep).count();
    if deep > 0 {
        scan.skipped.insert(0, (deep, "nested too deeply"));
    }
    let discussed = DiscussedFiles::find(args.files.as_deref().unwrap_or_default(), path, &scan.items);
    let idents = args.idents.iter().flatten().take(MAX_HINTS).map(String::as_str).collect();
    let graph: Vec<_> = scan
        .items
        .iter()
        .enumerate()
        .map(|(index, file)| GraphFile {
            tags: &file.value.tags,
            language: file.language,
            is_discussed: discussed.files.contains(&index),
            is_test: is_test(&file.shown),
        })
        .collect();
    let ranked = rank_definitions(&graph, &idents);
    let notes = notes(&scan, &discussed.unknown, context);
    let budget = args.max_tokens.map_or(DEFAULT_TOKENS, |tokens| tokens as usize);
    let (content, shown) = fit(&scan.items, &discussed.files, &ranked, &notes, budget);
    let mut result = ToolResult::ok(content);
    result.is_partial = stop.reason().is_some();
    for (key, number) in [("files", scan.items.len()), ("parsed", parsed), ("from_cache", scan.items.len() - parsed)] {
        result.metadata.insert(key.to_owned(), number.into());
    }
    let paths = shown.iter().filter_map(|index| scan.items[*index].path.as_deref());
    result.add_sources(paths.filter_map(|path| foreign.source(path)).collect());
    Ok(result)
}

/// Returns the tags of a file: from the cache if it knows the file or its content, otherwise by parsing the file.
fn read_file(
    parser: &mut SourceParser,
    file: &mut SourceFile,
    cache: &CodeCache,
    known: &HashMap<PathBuf, KnownFile>,
    stop: &StopSignal,
) -> Result<Option<ReadTags>, SkipReason> {
    let stamp = file.metadata().map(|metadata| SourceStamp::of(&metadata)).ok_or(SkipReason::Unreadable)?;
    if let Some(known) = known.get(&file.real).filter(|known| known.stamp == stamp)
        && let Some(tags) = cache.tags(&known.content)
    {
        return Ok(Some(ReadTags { tags, news: None, is_parsed: false }));
    }
    let source = file.read()?;
    let content = ContentKey::of(file.language, &source);
    let news = Some((stamp, content));
    if let Some(tags) = cache.tags(&content) {
        return Ok(Some(ReadTags { tags, news, is_parsed: false }));
    }
    let tags = match extract_tags(parser, file.language, source_text(&source)?.as_bytes(), stop) {
        Ok(tags) => tags,
        // The next parse would fail in the same way, so the cache may hold this result.
        Err(ParseFailure::TooDeep) => FileTags { is_too_deep: true, ..FileTags::default() },
        Err(failure) => return Err(failure.into()),
    };
    Ok(Some(ReadTags { tags, news, is_parsed: true }))
}

/// Adds the read files to the cache. If all files were read, also removes the entries of files that are gone.
fn remember(cache: &CodeCache, files: &[MappedFile], mut known: HashMap<PathBuf, KnownFile>, is_whole: bool) {
    let mut update = CacheUpdate::default();
    let mut used = HashMap::new();
    for file in files {
        let entry = known.remove_entry(&file.real);
        if let Some((stamp, content)) = file.value.news {
            update.files.push((file.real.clone(), stamp, content));
            if file.value.is_parsed {
                update.parses.push((content, file.value.tags.clone()));
            }
        } else {
            used.extend(entry);
        }
    }
    if is_whole {
        // The other files are ignored, or hidden from this call.
        let is_gone = |path: &PathBuf| path.symlink_metadata().is_err();
        update.gone = known.into_keys().filter(is_gone).collect();
    }
    cache.update(&update, &used);
}

/// The files under discussion.
struct DiscussedFiles {
    /// The indexes of the files.
    files: BTreeSet<usize>,
    /// The names that match no file.
    unknown: Vec<String>,
}

impl DiscussedFiles {
    /// Finds the files that a model calls `names`: by their paths from the workspace or from the mapped folder.
    fn find(names: &[String], folder: &str, files: &[MappedFile]) -> Self {
        let mut by_path: HashMap<PathBuf, usize> = HashMap::new();
        for (index, file) in files.iter().enumerate() {
            by_path.insert(plain(Path::new(&file.shown)), index);
            by_path.insert(file.real.clone(), index);
        }
        let mut found = Self { files: BTreeSet::new(), unknown: Vec::new() };
        for name in names.iter().take(MAX_HINTS) {
            let paths = [plain(Path::new(name)), plain(&Path::new(folder).join(name))];
            match paths.iter().find_map(|path| by_path.get(path)) {
                Some(index) => drop(found.files.insert(*index)),
                None => found.unknown.push(name.clone()),
            }
        }
        found
    }
}

/// Returns true for a test file, by the naming conventions of the languages' tools.
fn is_test(shown: &str) -> bool {
    let (folder, name) = shown.rsplit_once('/').unwrap_or(("", shown));
    let (stem, endings) = name.split_once('.').unwrap_or((name, ""));
    let is_of_tests = |word: &str| matches!(word, "test" | "tests" | "__tests__" | "spec" | "testdata");
    folder.split('/').any(is_of_tests)
        || endings.split('.').any(is_of_tests)
        || matches!(stem, "test" | "tests" | "conftest")
        || stem.starts_with("test_")
        || ["_test", "_tests", "Test", "Tests"].iter().any(|end| stem.ends_with(end))
}

/// Returns a path without `.`.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// Returns the last lines of the map, which state what is not in it.
fn notes(scan: &ScanResult<ReadTags>, unknown: &[String], context: &ReadContext) -> Vec<String> {
    let mut notes = Vec::new();
    if !unknown.is_empty() {
        let names: Vec<_> = unknown.iter().take(NAMED_KINDS).map(|name| quote_controls(name)).collect();
        let more = if unknown.len() > NAMED_KINDS { ", …" } else { "" };
        let names = truncate(&names.join(", "), NAMED_CHARS);
        notes.push(format!("[under discussion, but no source file here: {names}{more}]"));
    }
    notes.extend(context.stop_note());
    let count = scan.items.len();
    let mut last = format!("[{count} source {}", files_word(count));
    let others: usize = scan.others.values().sum();
    if others > 0 {
        let mut kinds: Vec<_> = scan.others.iter().filter(|(ending, _)| !ending.is_empty()).collect();
        kinds.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let named: Vec<_> = kinds.iter().take(NAMED_KINDS).map(|(ending, count)| format!("{count} {ending}")).collect();
        let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
        let _ = write!(last, "; {others} {} of other kinds{named}", files_word(others));
    }
    last.push_str(&skip_note(&scan.skipped));
    last.push(']');
    notes.push(last);
    notes
}

/// Returns the map with as many definitions as fit into `budget` tokens, and the indexes of the files in it.
fn fit(
    files: &[MappedFile],
    discussed: &BTreeSet<usize>,
    ranked: &[RankedDefinition],
    notes: &[String],
    budget: usize,
) -> (String, Vec<usize>) {
    let fits = |text: &str| estimate_tokens(text) <= budget;
    let draw = |count: usize, notes: &[String]| render(files, discussed, &ranked[..count], notes);
    let (mut least, mut most) = (0, ranked.len().min(budget / LEAST_TOKENS));
    while least < most {
        let middle = (least + most).div_ceil(2);
        if fits(&draw(middle, notes).0) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    let mut best = draw(least, notes);
    // The tokens of a longer text are estimated from samples, so that a shorter text may seem longer.
    while !fits(&best.0) && least > 0 {
        least -= 1;
        best = draw(least, notes);
    }
    if fits(&best.0) {
        return best;
    }
    // Even the names of the files under discussion, or the notes, do not fit.
    let bare = render(files, &BTreeSet::new(), &[], notes);
    if fits(&bare.0) { bare } else { render(files, &BTreeSet::new(), &[], &[]) }
}

/// Returns a map of these definitions, and the indexes of the files in it. The most important file comes first, with its
/// definitions by line.
fn render(
    files: &[MappedFile],
    discussed: &BTreeSet<usize>,
    ranked: &[RankedDefinition],
    notes: &[String],
) -> (String, Vec<usize>) {
    let mut order = Vec::new();
    let mut chosen: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for RankedDefinition { file, definition, .. } in ranked {
        chosen.entry(*file).or_insert_with(|| {
            order.push(*file);
            Vec::new()
        });
        chosen.entry(*file).or_default().push(*definition);
    }
    order.extend(discussed.iter().filter(|file| !chosen.contains_key(file)));
    let mut text = format!("# Code map (top {} files)\n", order.len());
    for file in &order {
        let ScannedFile { shown, value: ReadTags { tags, .. }, .. } = &files[*file];
        let _ = writeln!(text, "\n{shown}:");
        let mut of_file = chosen.remove(file).unwrap_or_default();
        of_file.sort_unstable();
        for definition in of_file.iter().filter_map(|index| tags.definitions.get(*index)) {
            let _ = writeln!(text, "  {} {} (line {})", definition.kind, definition.name, definition.line);
        }
    }
    if !notes.is_empty() {
        text.push('\n');
        text.push_str(&notes.join("\n"));
    }
    (text.trim_end().to_owned(), order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tests_are_known_by_their_names() {
        for (path, expected) in [
            ("tests/a.rs", true),
            ("a/testdata/b.go", true),
            ("src/tests.rs", true),
            ("test.js", true),
            ("a.spec.ts", true),
            ("a_test.go", true),
            ("test_a.py", true),
            ("conftest.py", true),
            ("StackTests.java", true),
            ("src/testing.rs", false),
            ("src/latest.rs", false),
            ("contest.py", false),
            ("specs.rs", false),
            ("src/spec.rs", false),
            ("openapi/spec.go", false),
            ("spec/a.rb", true),
        ] {
            assert_eq!(is_test(path), expected, "{path}");
        }
    }
}
