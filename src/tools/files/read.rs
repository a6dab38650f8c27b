//! The tool `read_file`.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::page::{PageLimit, page};
use super::scope::{ReadScope, run_on_jail};
use crate::chat::ToolSpec;
use crate::guard::Jail;
use crate::tools::{OutputLimit, ReplayPolicy, Tool, ToolAccess, ToolContext, ToolOutcome, tool_spec};

/// The default page.
const DEFAULT_PAGE: PageLimit = PageLimit { lines: 200, chars: 5_000 };
/// The largest page, for calls with a `limit`.
const LARGE_PAGE: PageLimit = PageLimit { lines: 1_000, chars: 11_600 };
/// The size of the notes around a page.
const NOTES: OutputLimit = OutputLimit { chars: 400, lines: 4 };
/// How many bytes from the start are searched for a NUL, which marks a binary file.
const BINARY_CHECK_BYTES: usize = 8_192;

#[derive(Deserialize, JsonSchema)]
struct ReadFileArgs {
    path: String,
    /// First line, from 1.
    #[schemars(range(min = 1))]
    offset: Option<u32>,
    /// Lines, default 200, at most 1000.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// Reads a text file by pages of whole lines.
pub struct ReadFile {
    spec: ToolSpec,
    scope: ReadScope,
}

impl ReadFile {
    pub fn new(scope: ReadScope) -> Self {
        Self { spec: tool_spec::<ReadFileArgs>("read_file", "Read a text file, a page of lines at a time."), scope }
    }
}

#[async_trait]
impl Tool for ReadFile {
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
        OutputLimit { chars: LARGE_PAGE.chars + NOTES.chars, lines: LARGE_PAGE.lines + NOTES.lines }
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let source = self.scope.sources(&arguments, context);
        let jail = self.scope.for_turn(context);
        let mut outcome = run_on_jail(jail, arguments, |jail, args: ReadFileArgs| read(jail, &args)).await;
        outcome.result.add_sources(source);
        outcome
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        !self.scope.sources(arguments, context).is_empty()
    }
}

fn read(jail: &Jail, args: &ReadFileArgs) -> Result<String, String> {
    let opened = jail.read(&args.path).map_err(|error| error.to_string())?;
    let size = opened.bytes.len();
    if opened.bytes.iter().take(BINARY_CHECK_BYTES).any(|byte| *byte == 0) {
        return Err(format!("{}: a binary file of {size} bytes, not text", opened.shown));
    }
    let limit = match args.limit {
        None => DEFAULT_PAGE,
        Some(lines) => PageLimit { lines: (lines as usize).clamp(1, LARGE_PAGE.lines), ..LARGE_PAGE },
    };
    let offset = args.offset.unwrap_or(1) as usize;
    match String::from_utf8(opened.bytes) {
        Ok(text) => page(&text, offset, limit),
        Err(error) => {
            let shown = page(&String::from_utf8_lossy(error.as_bytes()), offset, limit)?;
            let gap = if shown.ends_with('\n') { "" } else { "\n" };
            Ok(format!("{shown}{gap}[not UTF-8: what could not be read is shown as \u{fffd}]"))
        }
    }
}
