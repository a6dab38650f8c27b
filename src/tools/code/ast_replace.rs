//! The tool `ast_grep_replace`, which replaces code by a pattern in all files below a folder. It changes all files or none.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use ast_grep_core::replacer::TemplateFix;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::ast_grep::{CodePattern, MAX_MATCHES, MatchEdits, apply};
use super::parser::{MAX_SOURCE, ParseFailure, SourceParser};
use super::scan::{ScanResult, SkipReason, SourceScope};
use crate::guard::{FileContent, Jail, JailWriter, StopSignal, WalkStop};
use crate::tools::encoding::TextEncoding;
use crate::tools::files::{
    DiffLimits, FileDiff, ForeignFiles, PatchPlan, PlannedFile, ReadContext, ReadScope, TextFile, WriteScope,
    files_word, render_diffs, run_on_jail, search_limit, skip_note, write_plan,
};
use crate::tools::{OutputLimit, ReplayPolicy, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult};

/// The maximum number of files of one call, and their maximum total size in bytes, old and new together.
const MAX_FILES: usize = 500;
const MAX_BYTES: usize = 64_000_000;

#[derive(Deserialize, JsonSchema)]
struct AstGrepReplaceArgs {
    /// Code, such as f($A, $$$B).
    pattern: String,
    /// Code, such as g($A).
    rewrite: String,
    lang: String,
    path: Option<String>,
    /// Default: true, only shows the changes.
    dry_run: Option<bool>,
}

/// The tool `ast_grep_replace`.
pub struct AstGrepReplace {
    definition: ToolDefinition,
    files: WriteScope,
    scope: ReadScope,
    limit: Duration,
}

impl AstGrepReplace {
    /// Creates the tool. `timeout` is the time limit of a call. `scope` is what a dry run may read.
    pub fn new(files: WriteScope, scope: ReadScope, timeout: Duration) -> Self {
        let (name, description) = ("ast_grep_replace", "Replace code by its syntax.");
        let definition = ToolDefinition {
            output_limit: OutputLimit { chars: 16_000, lines: DiffLimits::FILES.lines + 20 },
            // Text from a file or page must not determine which files are changed.
            literal_arguments: &["path", "dry_run"],
            ..ToolDefinition::changing::<AstGrepReplaceArgs>(name, description, ReplayPolicy::Once)
        };
        Self { definition, files, scope, limit: search_limit(timeout) }
    }
}

/// Returns true if the call only shows what it would change.
fn is_dry(arguments: &Value) -> bool {
    arguments["dry_run"].as_bool().unwrap_or(true)
}

#[async_trait]
impl Tool for AstGrepReplace {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let args: AstGrepReplaceArgs = serde_json::from_value(arguments.clone()).map_err(|error| error.to_string())?;
        CodePattern::new(&args.pattern, &args.lang)?.rewrite(&args.rewrite).map(|_| ())
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        self.scope.may_hold_foreign(arguments, context)
    }

    fn is_restricted(&self, arguments: &Value, context: &ToolContext) -> bool {
        !is_dry(arguments) && self.files.is_path_restricted(arguments, context)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let bounds = ReadContext::new(self.limit, context.cancel.clone(), ForeignFiles::of(context));
        let jail = if is_dry(&arguments) { self.scope.for_turn(context) } else { self.files.for_turn(context) };
        run_on_jail(jail, arguments, move |jail, args: AstGrepReplaceArgs| replace(jail, &args, &bounds)).await
    }
}

/// The content of a file before and after the change.
struct ChangedFile {
    path: Option<PathBuf>,
    shown: String,
    /// The path to pass to the jail.
    real: PathBuf,
    encoding: TextEncoding,
    old: Vec<u8>,
    new: Vec<u8>,
    places: usize,
    /// The number of matches inside the replaced ones that `new` still has.
    nested: usize,
}

impl ChangedFile {
    fn change(&self) -> FileDiff<'_> {
        let text = |bytes| -> Cow<'_, str> { self.encoding.decode_lossy(bytes) };
        FileDiff { shown: Some(&self.shown), old: text(&self.old), new: text(&self.new) }
    }
}

/// The pattern and the replacement of a call.
struct Rewrite {
    pattern: CodePattern,
    fix: TemplateFix,
}

/// A file after the change.
struct RewrittenFile {
    encoding: TextEncoding,
    /// An error if the file's encoding lacks a character of the new text.
    new: Result<Vec<u8>, String>,
    places: usize,
    nested: usize,
}

impl Rewrite {
    /// Returns a file after the change; `None` if nothing changes.
    fn apply(
        &self,
        parser: &mut SourceParser,
        opened: &FileContent,
        stop: &StopSignal,
    ) -> Result<Option<RewrittenFile>, SkipReason> {
        let file = TextFile::decode(opened).map_err(|_| match TextEncoding::detect(&opened.bytes, true) {
            Some(_) => SkipReason::InvalidBytes,
            None => SkipReason::Binary,
        })?;
        let MatchEdits { edits, nested } = self.pattern.edits(parser, &file.text, &self.fix, stop)?;
        if edits.len() > MAX_MATCHES {
            stop.stop(WalkStop::Enough);
            return Err(SkipReason::Stopped);
        }
        let changed = apply(&file.text, &edits);
        if changed == file.text {
            return Ok(None);
        }
        // The rewrite may leave out the code with the inner matches.
        let nested = match nested {
            0 => 0,
            _ => match self.pattern.find(parser, &changed, stop) {
                Ok(left) => nested.min(left.len()),
                Err(ParseFailure::Stopped) => return Err(SkipReason::Stopped),
                // The new text can be slow to search, and the change is still the right one.
                Err(ParseFailure::TooSlow | ParseFailure::TooDeep) => nested,
            },
        };
        let (encoding, new) = (file.encoding, file.encode(&changed));
        Ok(Some(RewrittenFile { encoding, new, places: edits.len(), nested }))
    }
}

fn replace(jail: &Jail, args: &AstGrepReplaceArgs, context: &ReadContext) -> Result<ToolResult, String> {
    let ReadContext { stop, foreign, .. } = context;
    let is_dry = args.dry_run.unwrap_or(true);
    let pattern = CodePattern::new(&args.pattern, &args.lang)?;
    let rewrite = Rewrite { fix: pattern.rewrite(&args.rewrite)?, pattern };
    let scan = find_changes(jail, args.path.as_deref().unwrap_or("."), &rewrite, stop)?;
    let (places, files) = (scan.items.iter().map(|file| file.places).sum::<usize>(), scan.items.len());
    if stop.reason() == Some(WalkStop::Enough) {
        return Err(format!(
            "more than {MAX_FILES} files, {MAX_MATCHES} places of a file, or {} MB would change; nothing was changed. Name a \
             smaller folder or a narrower pattern",
            MAX_BYTES / 1_000_000
        ));
    }
    if !is_dry && let Some(note) = context.stop_note() {
        return Err(format!("{note}; nothing was changed"));
    }
    if !is_dry && !scan.items.is_empty() {
        write(&scan.items, &rewrite, &jail.writer(), stop)?;
    }
    let mut lines = Vec::new();
    let skipped = skip_note(&scan.skipped);
    let read = scan.read;
    if scan.items.is_empty() {
        lines.push("No match; nothing was changed.".to_owned());
    } else {
        let verb = if is_dry { "Would change" } else { "Changed" };
        lines.push(format!(
            "{verb} {places} {} in {files} {}",
            if places == 1 { "place" } else { "places" },
            files_word(files)
        ));
        lines.extend(render_diffs(scan.items.iter().map(ChangedFile::change), DiffLimits::FILES));
    }
    let nested: usize = scan.items.iter().map(|file| file.nested).sum();
    if nested > 0 {
        let matches = if nested == 1 { "match" } else { "matches" };
        lines.push(format!(
            "[not replaced: {nested} {matches} inside replaced ones; a second call replaces them, and also new code that matches]"
        ));
    }
    lines.extend(context.stop_note());
    lines.push(format!("[searched {read} {} {}{skipped}]", rewrite.pattern.language().name(), files_word(read)));
    if is_dry && !scan.items.is_empty() {
        lines.push("[nothing was changed yet: repeat it with dry_run=false]".to_owned());
    }
    let mut result = ToolResult::ok(lines.join("\n"));
    result.add_sources(scan.items.iter().filter_map(|file| foreign.source(file.path.as_deref()?)).collect());
    Ok(result)
}

/// Returns the files that would change, sorted by path.
fn find_changes(
    jail: &Jail,
    path: &str,
    rewrite: &Rewrite,
    stop: &StopSignal,
) -> Result<ScanResult<ChangedFile>, String> {
    let count = parking_lot::Mutex::new((0, 0));
    let fault = parking_lot::Mutex::new(None);
    let wants = |of, path: &std::path::Path| rewrite.pattern.language().searches(of, path);
    let mut scan = SourceScope::open(jail, path, stop)?.scan(stop, &wants, &|parser, file| {
        let opened = FileContent { bytes: file.read()?, shown: file.shown.clone() };
        let Some(rewritten) = rewrite.apply(parser, &opened, stop)? else { return Ok(None) };
        let RewrittenFile { encoding, new, places, nested } = rewritten;
        let new = match new {
            Ok(new) => new,
            Err(error) => {
                *fault.lock() = Some(error);
                stop.stop(WalkStop::Enough);
                return Ok(None);
            }
        };
        let mut sum = count.lock();
        *sum = (sum.0 + 1, sum.1 + opened.bytes.len() + new.len());
        if sum.0 > MAX_FILES || sum.1 > MAX_BYTES {
            stop.stop(WalkStop::Enough);
            return Ok(None);
        }
        let (path, shown, real) = (file.path.clone(), file.shown.clone(), file.real.clone());
        Ok(Some(ChangedFile { path, shown, real, encoding, old: opened.bytes, new, places, nested }))
    })?;
    if let Some(error) = fault.into_inner() {
        return Err(error);
    }
    scan.items.sort_unstable_by(|one, other| one.shown.cmp(&other.shown));
    Ok(scan)
}

/// Writes the files, all or none, unless one has changed since it was read.
fn write(files: &[ChangedFile], rewrite: &Rewrite, writer: &JailWriter<'_>, stop: &StopSignal) -> Result<(), String> {
    let mut plan = PatchPlan::default();
    let mut parser = SourceParser::new();
    for file in files {
        let shown = &file.shown;
        let path = file.real.to_str().ok_or_else(|| format!("{shown}: its name is not UTF-8; nothing was changed"))?;
        let opened = writer.read(path).map_err(|error| format!("{error}; nothing was changed"))?;
        let new = if opened.bytes == file.old {
            file.new.clone()
        } else if opened.bytes.len() as u64 > MAX_SOURCE {
            return Err(format!("{shown}: was changed meanwhile; nothing was changed here. Try again"));
        } else {
            match rewrite.apply(&mut parser, &opened, stop) {
                Ok(Some(RewrittenFile { new: Ok(new), .. })) => new,
                Ok(_) | Err(_) => {
                    return Err(format!("{shown}: was changed meanwhile; nothing was changed here. Try again"));
                }
            }
        };
        plan.files.insert(path.to_owned(), PlannedFile { old: Some(opened.bytes), new: Some(new), mode: None });
    }
    write_plan(&plan, writer, &|_| Err("nothing is to be removed".to_owned()))
}
