//! Log lines on stderr: text for people, JSON for programs.

use std::io::{self, IsTerminal};

use anyhow::{Context, anyhow};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::config::{LogConfig, LogFormat};

/// Starts the log of this process. An error when the level is not understood, which a loaded configuration rules out, or
/// when there is a log already.
pub fn start(config: &LogConfig) -> anyhow::Result<()> {
    let filter = LogConfig::filter(&config.level).map_err(|wrong| anyhow!("log level: {wrong}"))?;
    let registry = tracing_subscriber::registry().with(filter);
    match config.format {
        LogFormat::Json => registry.with(fmt::layer().json().flatten_event(true).with_writer(io::stderr)).try_init(),
        LogFormat::Text => {
            let colours = colours(io::stderr().is_terminal(), std::env::var("NO_COLOR").ok().as_deref());
            registry.with(fmt::layer().with_ansi(colours).with_writer(io::stderr)).try_init()
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
