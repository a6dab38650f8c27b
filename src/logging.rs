//! Log lines on stderr, or in a file where stderr is the screen that somebody chats at: text for people, JSON for
//! programs.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,daoyou::llm=debug`.
    pub level: String,
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

impl LogConfig {
    /// Reads a level, or directives such as `info,daoyou::llm=debug`. The error says what is not understood.
    pub fn filter(level: &str) -> Result<EnvFilter, String> {
        for directive in level.split(',').map(str::trim) {
            // The parser takes a misspelled level for the name of a module, which would silence everything else.
            let named = directive.contains(['=', ':', '[']);
            if directive.is_empty() || (!named && directive.parse::<LevelFilter>().is_err()) {
                return Err(format!("{directive:?} is no level"));
            }
        }
        EnvFilter::builder().parse(level).map_err(|error| format!("{level:?} is not understood: {error}"))
    }

    /// What [`Self::filter`] takes, in words.
    pub const LEVELS: &str = "\"error\", \"warn\", \"info\", \"debug\", \"trace\", \"off\", or directives such as \"info,daoyou::llm=debug\"";
}

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
    use super::*;

    #[test]
    fn colours_are_for_terminals() {
        for (terminal, no_color, expected) in
            [(true, None, true), (true, Some(""), true), (true, Some("1"), false), (false, None, false)]
        {
            assert_eq!(colours(terminal, no_color), expected, "{terminal} {no_color:?}");
        }
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        for (level, good) in [
            ("info", true),
            ("WARN", true),
            ("off", true),
            ("info,daoyou::llm=debug", true),
            ("daoyou=trace, warn", true),
            ("verbose", false),
            ("", false),
            ("info,daoyou=loud", false),
            ("info,,debug", false),
        ] {
            assert_eq!(LogConfig::filter(level).is_ok(), good, "{level:?}");
        }
    }
}
