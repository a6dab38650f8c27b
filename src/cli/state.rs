//! `daoyou status`, `daoyou logs` and `daoyou doctor`.

use clap::Args;

use super::output::Output;

/// `daoyou status`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct StatusArgs {
    /// Remove the notice about lost messages
    #[arg(long)]
    pub acknowledge: bool,
    /// Exit with 1 unless a gateway runs and takes messages, for health checks; prints why
    #[arg(long, conflicts_with_all = ["acknowledge", "json"])]
    pub ready: bool,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou logs`.
#[derive(Clone, Copy, Debug, Args)]
pub struct LogsArgs {
    /// Follow the log until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// How many of the last lines to show
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub lines: u32,
    /// Only lines of this level, or a more severe one
    #[arg(long, value_name = "LEVEL")]
    pub level: Option<ShownLevel>,
    #[command(flatten)]
    pub output: Output,
}

/// A level of the log, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum ShownLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl ShownLevel {
    /// Returns the level of this name.
    pub fn parse(name: &str) -> Option<Self> {
        clap::ValueEnum::from_str(name, true).ok()
    }
}

/// `daoyou doctor`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DoctorArgs {
    /// Repair what is safe to repair: permissions, a stale socket, a missing token or workspace, leftover files
    #[arg(long)]
    pub fix: bool,
    #[command(flatten)]
    pub output: Output,
}
