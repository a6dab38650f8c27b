//! Log lines on stderr, or in a file where stderr is the screen that somebody chats at: text for people, JSON for
//! programs.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;

use crate::config::{LogConfig, LogFormat};

/// Starts the log of this process, on stderr or at the end of `file`. An error when the level is not understood, which a
/// loaded configuration rules out, when the file cannot be written, or when there is a log already.
pub fn start(config: &LogConfig, file: Option<&Path>) -> anyhow::Result<()> {
    let filter = LogConfig::filter(&config.level).map_err(|wrong| anyhow!("log level: {wrong}"))?;
    let registry = tracing_subscriber::registry().with(filter);
    let (writer, terminal) = match file {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.with_context(|| format!("the log file {} cannot be opened", path.display()))?;
            (BoxMakeWriter::new(Mutex::new(file)), false)
        }
        None => (BoxMakeWriter::new(io::stderr), io::stderr().is_terminal()),
    };
    match config.format {
        LogFormat::Json => registry.with(fmt::layer().json().flatten_event(true).with_writer(writer)).try_init(),
        LogFormat::Text => {
            let colours = colours(terminal, std::env::var("NO_COLOR").ok().as_deref());
            registry.with(fmt::layer().with_ansi(colours).with_writer(writer)).try_init()
        }
    }
    .context("the log cannot be started")
}

/// Colours are for terminals, and not where they are not wanted: <https://no-color.org>.
fn colours(terminal: bool, no_color: Option<&str>) -> bool {
    terminal && no_color.is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::colours;

    #[test]
    fn colours_are_for_terminals() {
        for (terminal, no_color, expected) in
            [(true, None, true), (true, Some(""), true), (true, Some("1"), false), (false, None, false)]
        {
            assert_eq!(colours(terminal, no_color), expected, "{terminal} {no_color:?}");
        }
    }
}
