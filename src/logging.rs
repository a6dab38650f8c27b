//! The log: on stderr, or in a file if stderr is the terminal of a chat; as text for people or as JSON for programs.

mod file;
mod recent;

use std::fmt::Debug;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use daoyou_channels::clean::{escape_json, escape_newlines};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, JsonFields, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Registry, reload};

use file::LogFile;
pub use file::open_file;
pub use recent::RecentLog;
use smart_default::SmartDefault;

/// The log file, in the home, of a process that chats on its terminal.
pub const FILE_NAME: &str = "daoyou.log";

/// The target of the MCP library's log lines. They are off: they contain whole messages of servers, and addresses with keys, and
/// daoyou logs each fault itself.
const MCP_LIBRARY: &str = "rmcp";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `[log]`.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,daoyou::llm=debug`.
    #[default = "info"]
    pub level: String,
    pub format: LogFormat,
}

impl LogConfig {
    /// Parses a level, or directives such as `info,daoyou::llm=debug`. The error names the invalid part.
    ///
    /// # Errors
    /// A directive is not a level, or the whole is not understood; the text quotes the invalid part.
    pub fn filter(level: &str) -> Result<EnvFilter, String> {
        for directive in level.split(',').map(str::trim) {
            // The parser takes a misspelled level for a module name, which would silence everything else.
            let named = directive.contains(['=', ':', '[']);
            if directive.is_empty() || (!named && directive.parse::<LevelFilter>().is_err()) {
                return Err(format!("{directive:?} is not a level"));
            }
        }
        let quiet = if level.eq_ignore_ascii_case("off") || level.contains(MCP_LIBRARY) {
            String::new()
        } else {
            format!(",{MCP_LIBRARY}=off")
        };
        EnvFilter::builder()
            .parse(format!("{level}{quiet}"))
            .map_err(|error| format!("{level:?} is not understood: {error}"))
    }

    /// A description of the values that [`Self::filter`] accepts.
    pub const LEVELS: &str = "\"error\", \"warn\", \"info\", \"debug\", \"trace\", \"off\", or directives such as \"info,daoyou::llm=debug\"";
}

/// A handle that changes the level of the log.
#[derive(Clone, Debug)]
pub struct LogLevel(reload::Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Replaces the level.
    ///
    /// # Errors
    /// The level is invalid; this cannot happen with a loaded configuration.
    pub fn set(&self, level: &str) -> anyhow::Result<()> {
        let filter = LogConfig::filter(level).map_err(|wrong| anyhow!("log level: {wrong}"))?;
        self.0.reload(filter).context("the log is gone")
    }
}

/// Starts the log of this process, on stderr or at the end of `file`.
///
/// # Errors
/// The level is invalid, which cannot happen with a loaded configuration; the file cannot be written; or the log has already
/// started.
pub fn start(config: &LogConfig, file: Option<&Path>) -> anyhow::Result<LogLevel> {
    let filter = LogConfig::filter(&config.level).map_err(|wrong| anyhow!("log level: {wrong}"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter).with(recent::RecentLayer);
    let (writer, terminal, journal) = match file {
        Some(path) => {
            let file = LogFile::open(path);
            let file = file.with_context(|| format!("the log file {} cannot be opened", path.display()))?;
            (BoxMakeWriter::new(Mutex::new(file)), false, false)
        }
        None => (BoxMakeWriter::new(io::stderr), io::stderr().is_terminal(), is_journal(io::stderr())),
    };
    let fields = format::debug_fn(write_field).delimited(" ");
    let plain = fmt::layer().with_writer(writer).fmt_fields(fields);
    // JSON does not escape all characters that control a terminal.
    let json = MapFormat(fmt::format().json().flatten_event(true), |text, _| escape_json(text).into_owned());
    let layer = match (config.format, journal) {
        (LogFormat::Json, false) => plain.fmt_fields(JsonFields::new()).event_format(json).boxed(),
        (LogFormat::Json, true) => {
            plain.fmt_fields(JsonFields::new()).event_format(MapFormat(json, add_priority)).boxed()
        }
        (LogFormat::Text, false) => {
            plain.with_ansi(uses_colors(terminal, std::env::var("NO_COLOR").ok().as_deref())).boxed()
        }
        (LogFormat::Text, true) => {
            let format = MapFormat(fmt::format().without_time().with_ansi(false), add_priority);
            plain.with_ansi(false).event_format(format).boxed()
        }
    };
    registry.with(layer).try_init().context("the log cannot be started")?;
    Ok(LogLevel(handle))
}

/// Returns true if `stream` is the systemd journal. systemd sets `JOURNAL_STREAM` to DEVICE:INODE (systemd.exec(5)). A child
/// inherits the variable, possibly with another output, so the stream itself is compared.
pub fn is_journal(stream: impl AsFd) -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(stream).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Returns the prefix of the line that reports the error with which this process ends.
pub fn error_prefix() -> &'static str {
    if is_journal(io::stderr()) { priority(Level::ERROR) } else { "" }
}

/// Writes a field of an event or span as text on one line. A logged value may come from an untrusted source, and must neither
/// control a terminal nor look like a separate log line.
fn write_field(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = escape_newlines(&format!("{value:?}"));
    match field.name() {
        "message" => to.write_str(&text),
        name => write!(to, "{}={text}", name.strip_prefix("r#").unwrap_or(name)),
    }
}

/// A log format that passes the text and the level of each event through a function.
struct MapFormat<F>(F, fn(&str, Level) -> String);

impl<S, N, F> FormatEvent<S, N> for MapFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        to.write_str(&(self.1)(&text, *event.metadata().level()))
    }
}

/// Prefixes each line of an event with its priority, as the journal expects (sd-daemon(3)). The journal adds the time.
fn add_priority(text: &str, level: Level) -> String {
    text.lines().map(|line| format!("{}{line}\n", priority(level))).collect()
}

/// Returns the syslog(3) priority of a level in the form of sd-daemon(3).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// Returns true if the output is a terminal and `NO_COLOR` is not set: <https://no-color.org>.
fn uses_colors(terminal: bool, no_color: Option<&str>) -> bool {
    terminal && no_color.is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_used_on_terminals_only() {
        for (terminal, no_color, expected) in
            [(true, None, true), (true, Some(""), true), (true, Some("1"), false), (false, None, false)]
        {
            assert_eq!(uses_colors(terminal, no_color), expected, "{terminal} {no_color:?}");
        }
    }

    #[test]
    fn off_also_means_the_mcp_library() {
        for (level, expected) in [("off", false), ("OFF", false), ("warn", true), ("rmcp=debug", false)] {
            let filter = LogConfig::filter(level).unwrap().to_string();
            assert_eq!(filter.contains("rmcp=off"), expected, "{level}: {filter}");
        }
    }

    #[test]
    fn an_invalid_level_is_rejected() {
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
