//! Reads input files.

use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};

/// Reads at most `limit` bytes from a file, or from standard input for `-`; `what` names the content in errors.
///
/// # Errors
/// The file cannot be read, is too large, or is not UTF-8.
pub fn read_text(file: &Path, limit: u64, what: &str) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let is_stdin = file.as_os_str() == "-";
    let shown = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
    let read = if is_stdin {
        io::stdin().lock().take(limit + 1).read_to_end(&mut text)
    } else {
        let open = std::fs::File::open(file).with_context(|| format!("{shown} cannot be opened"))?;
        open.take(limit + 1).read_to_end(&mut text)
    };
    read.with_context(|| format!("{shown} cannot be read"))?;
    if text.len() as u64 > limit {
        bail!("{shown} has more than {limit} bytes, too many for a {what}");
    }
    String::from_utf8(text).with_context(|| format!("{shown} is not text in UTF-8"))
}
