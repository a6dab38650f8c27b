//! The tool `ast_grep_replace`, which replaces code by a pattern in all files below a folder. It changes all files or none.

use std::borrow::Cow;
use std::time::Duration;

use ast_grep_core::replacer::TemplateFix;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::ast_grep::{CodePattern, MAX_MATCHES, MatchEdits, apply};
use super::parser::{MAX_SOURCE, ParseFailure, SkipReason, SourceParser};
use super::scan::{ScanResult, ScannedFile, SourceScope};
use crate::guard::{FileContent, Jail, JailWriter, StopSignal, WalkStop};
use crate::text::plural;
use crate::tools::encoding::TextEncoding;
use crate::tools::files::{
    DIFFS_OF_MANY_FILES, FileDiff, PatchPlan, PlannedFile, ReadContext, ReadScope, TextFile, WriteScope, files_word,
    render_diffs, run_on_jail, search_limit, skip_note, write_plan,
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
            output_limit: OutputLimit { chars: 16_000, lines: DIFFS_OF_MANY_FILES.lines + 20 },
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
        let path = arguments["path"].as_str();
        !is_dry(arguments) && (path.is_none() || self.files.is_restricted(path, context))
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let bounds = ReadContext::new(self.limit, context);
        let jail = if is_dry(&arguments) { self.scope.for_turn(context) } else { self.files.for_turn(context) };
        run_on_jail(jail, arguments, move |jail, args: AstGrepReplaceArgs| replace(jail, &args, &bounds)).await
    }
}

/// The content of a file before and after the change.
struct ChangedFile {
    encoding: TextEncoding,
    old: Vec<u8>,
    new: Vec<u8>,
    places: usize,
    /// The number of matches inside the replaced ones that `new` still has.
    nested: usize,
}

impl ScannedFile<ChangedFile> {
    fn change(&self) -> FileDiff<'_> {
        let text = |bytes| -> Cow<'_, str> { self.value.encoding.decode_lossy(bytes) };
        FileDiff { shown: Some(self.shown.as_str().into()), old: text(&self.value.old), new: text(&self.value.new) }
    }
}

/// The pattern and the replacement of a call.
struct Rewrite {
    pattern: CodePattern,
    fix: TemplateFix,
}

/// The reason why a file was not rewritten.
enum RewriteFailure {
    Skipped(SkipReason),
    /// The file's encoding lacks a character of the new text. The text is for the model.
    Unencodable(String),
}

impl From<ParseFailure> for RewriteFailure {
    fn from(failure: ParseFailure) -> Self {
        Self::Skipped(failure.into())
    }
}

impl Rewrite {
    /// Returns a file with its change; `None` if nothing changes.
    fn apply(
        &self,
        parser: &mut SourceParser,
        opened: FileContent,
        stop: &StopSignal,
    ) -> Result<Option<ChangedFile>, RewriteFailure> {
        let file = TextFile::decode(&opened).map_err(|_| match TextEncoding::detect(&opened.bytes, true) {
            Some(_) => SkipReason::InvalidBytes,
            None => SkipReason::Binary,
        });
        let file = file.map_err(RewriteFailure::Skipped)?;
        let MatchEdits { edits, nested } = self.pattern.edits(parser, &file.text, &self.fix, stop)?;
        if edits.len() > MAX_MATCHES {
            stop.stop(WalkStop::Enough);
            return Err(RewriteFailure::Skipped(SkipReason::Stopped));
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
                Err(ParseFailure::Stopped) => return Err(RewriteFailure::Skipped(SkipReason::Stopped)),
                // The new text can be slow to search, and the change is still the right one.
                Err(ParseFailure::TooSlow | ParseFailure::TooDeep) => nested,
            },
        };
        let new = file.encode(&changed).map_err(RewriteFailure::Unencodable)?;
        let encoding = file.encoding;
        Ok(Some(ChangedFile { encoding, old: opened.bytes, new, places: edits.len(), nested }))
    }
}

fn replace(jail: &Jail, args: &AstGrepReplaceArgs, context: &ReadContext) -> Result<ToolResult, String> {
    let ReadContext { stop, foreign, .. } = context;
    let is_dry = args.dry_run.unwrap_or(true);
    let pattern = CodePattern::new(&args.pattern, &args.lang)?;
    let rewrite = Rewrite { fix: pattern.rewrite(&args.rewrite)?, pattern };
    let scan = find_changes(jail, args.path.as_deref().unwrap_or("."), &rewrite, stop)?;
    let (places, files) = (scan.items.iter().map(|file| file.value.places).sum::<usize>(), scan.items.len());
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
        lines.push(format!("{verb} {} in {}", plural(places, "place"), plural(files, "file")));
        lines.extend(render_diffs(scan.items.iter().map(ScannedFile::change), DIFFS_OF_MANY_FILES));
    }
    let nested: usize = scan.items.iter().map(|file| file.value.nested).sum();
    if nested > 0 {
        let matches = if nested == 1 { "match" } else { "matches" };
        lines.push(format!(
            "[not replaced: {nested} {matches} inside replaced ones; a second call replaces them, and also new code that matches]"
        ));
    }
    lines.extend(context.stop_note());
    lines.push(format!("[searched {read} {} {}{skipped}]", rewrite.pattern.language.name(), files_word(read)));
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
    let wants = |of, path: &std::path::Path| rewrite.pattern.language.searches(of, path);
    let scan = SourceScope::open(jail, path, stop)?.scan(stop, &wants, &|parser, file| {
        let opened = FileContent { bytes: file.read()?, shown: file.shown.clone() };
        let changed = match rewrite.apply(parser, opened, stop) {
            Ok(Some(changed)) => changed,
            Ok(None) => return Ok(None),
            Err(RewriteFailure::Skipped(reason)) => return Err(reason),
            Err(RewriteFailure::Unencodable(error)) => {
                *fault.lock() = Some(error);
                stop.stop(WalkStop::Enough);
                return Ok(None);
            }
        };
        let mut sum = count.lock();
        *sum = (sum.0 + 1, sum.1 + changed.old.len() + changed.new.len());
        if sum.0 > MAX_FILES || sum.1 > MAX_BYTES {
            stop.stop(WalkStop::Enough);
            return Ok(None);
        }
        Ok(Some(changed))
    })?;
    match fault.into_inner() {
        Some(error) => Err(error),
        None => Ok(scan),
    }
}

/// Writes the files, all or none, unless one has changed since it was read.
fn write(
    files: &[ScannedFile<ChangedFile>],
    rewrite: &Rewrite,
    writer: &JailWriter<'_>,
    stop: &StopSignal,
) -> Result<(), String> {
    let mut plan = PatchPlan::default();
    let mut parser = SourceParser::new();
    for file in files {
        let shown = &file.shown;
        let path = file.real.to_str().ok_or_else(|| format!("{shown}: its name is not UTF-8; nothing was changed"))?;
        let opened = writer.read(path).map_err(|error| format!("{error}; nothing was changed"))?;
        let (old, new) = if opened.bytes == file.value.old {
            (opened.bytes, file.value.new.clone())
        } else if opened.bytes.len() as u64 <= MAX_SOURCE
            && let Ok(Some(changed)) = rewrite.apply(&mut parser, opened, stop)
        {
            (changed.old, changed.new)
        } else {
            return Err(format!("{shown}: was changed meanwhile; nothing was changed here. Try again"));
        };
        plan.files.insert(path.to_owned(), PlannedFile { old: Some(old), new: Some(new), mode: None });
    }
    write_plan(&plan, writer, &|_| Err("nothing is to be removed".to_owned()))
}
