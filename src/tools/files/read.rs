//! `read_file`.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::page::{PageLimit, page};
use super::{Rooms, on_disk};
use crate::chat::ToolSpec;
use crate::guard::Jail;
use crate::tools::{Access, OutputLimit, Replay, Tool, ToolContext, ToolOutcome, tool_spec};

/// A page when the call names no `limit`.
const PAGE: PageLimit = PageLimit { lines: 200, chars: 5_000 };
/// A page when it does: at most this.
const LARGE_PAGE: PageLimit = PageLimit { lines: 1_000, chars: 20_000 };
/// Notes that stand beside a page.
const NOTES: OutputLimit = OutputLimit { chars: 400, lines: 4 };
/// Where a NUL marks a file that is no text, in bytes from its start.
const LOOK_BYTES: usize = 8_192;

#[derive(Deserialize, JsonSchema)]
struct Args {
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
    rooms: Rooms,
}

impl ReadFile {
    pub fn new(rooms: Rooms) -> Self {
        Self { spec: tool_spec::<Args>("read_file", "Read a text file, a page of lines at a time."), rooms }
    }
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["read", "cat", "view", "view_file", "open_file", "get_file"]
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
        OutputLimit { chars: LARGE_PAGE.chars + NOTES.chars, lines: LARGE_PAGE.lines + NOTES.lines }
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        on_disk(self.rooms.of(context), arguments, |jail, args: Args| read(jail, &args)).await
    }
}

fn read(jail: &Jail, args: &Args) -> Result<String, String> {
    let opened = jail.read(&args.path).map_err(|error| error.to_string())?;
    let size = opened.bytes.len();
    if opened.bytes.iter().take(LOOK_BYTES).any(|byte| *byte == 0) {
        return Err(format!("{}: a binary file of {size} bytes, not text", opened.shown));
    }
    let limit = match args.limit {
        None => PAGE,
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
