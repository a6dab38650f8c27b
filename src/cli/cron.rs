//! `daoyou cron`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::output::Output;
use super::sessions::session_key;
use super::tools::model_name;

#[derive(Clone, Debug, Subcommand)]
pub enum CronCommand {
    /// List the jobs, the next due first
    #[command(after_help = "Examples:\n  daoyou cron list\n  daoyou cron list --json")]
    List(Output),
    /// Add a job; prints its id
    ///
    /// Times are in the zone of --tz, else of agent.timezone. A one-time job is removed after its run. Without --channel,
    /// the result goes to the terminal.
    #[command(after_help = "Examples:\n  daoyou cron add --name news --cron '0 9 * * *' --prompt 'What is new?'\n  \
                            daoyou cron add --name tea --at 'in 20m' --message 'The tea is ready'\n  \
                            daoyou cron add --name disk --every 6h --deliver on_change --prompt 'Is the disk filling up?'")]
    Add(Box<CronAdd>),
    /// Show a job, its next times and its last runs
    #[command(after_help = "Example:\n  daoyou cron show news")]
    Show(CronJob),
    /// Remove a job; its history stays
    #[command(after_help = "Example:\n  daoyou cron remove news")]
    Remove(CronJob),
    /// Resume a job, from its next time on
    #[command(after_help = "Example:\n  daoyou cron enable news")]
    Enable(CronJob),
    /// Pause a job
    #[command(after_help = "Example:\n  daoyou cron disable news")]
    Disable(CronJob),
    /// Run a job now, in addition to its schedule
    #[command(after_help = "Example:\n  daoyou cron run news")]
    Run(CronJob),
    /// Show the runs of a job, the newest first, and the delivery of each result
    #[command(after_help = "Examples:\n  daoyou cron history news\n  daoyou cron history news --limit 5 --json")]
    History {
        #[command(flatten)]
        job: CronJob,
        /// The maximum number of entries to show
        #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Import the jobs of a cron.json
    ///
    /// Each job is imported on its own: a refused one is named with the reason and does not affect the others; the exit
    /// code is then 1. Ids are kept. A job that already exists in the same form stays unchanged.
    #[command(after_help = "Examples:\n  daoyou cron import cron.json\n  daoyou cron import --json - < cron.json")]
    Import {
        /// The file; - reads standard input
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Print all jobs as a cron.json
    #[command(after_help = "Example:\n  daoyou cron export > cron.json")]
    Export {
        /// Has no effect: the output is always JSON
        #[arg(long)]
        json: bool,
    },
}

/// One job.
#[derive(Clone, Debug, Args)]
pub struct CronJob {
    /// The id or the name of the job
    #[arg(value_name = "ID|NAME")]
    pub job: String,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou cron add`: the fields of a job. The command serializes them as they are, so the names of the Rust fields are the keys
/// of the JSON that the API accepts: a field that is renamed needs `#[serde(rename)]`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(group = clap::ArgGroup::new("schedule").required(true).args(["at", "every", "cron"]))]
#[command(group = clap::ArgGroup::new("task").required(true).args(["prompt", "message"]))]
pub struct CronAdd {
    /// The name of the job [default: the beginning of its text]
    #[arg(long)]
    pub name: Option<String>,
    /// Run once: 'in 20m', '9:00', 'tomorrow 9:00', 'December 24 at 18:00', 2026-03-08T09:00:00+01:00
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Run repeatedly, with this interval, e.g. 2h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub every: Option<String>,
    /// Run by a cron expression: 5 or 6 fields, or @daily and the like
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub cron: Option<String>,
    /// The time zone: an IANA name, e.g. Europe/Berlin, or an offset, e.g. UTC+8 [default: agent.timezone]
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// The time from which --every counts, in both directions [default: now]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["at", "cron"])]
    pub anchor: Option<String>,
    /// The prompt for the agent; {{ time }}, {{ last_run }}, {{ last_result }} and {{ name }} are filled in
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// A text that is sent unchanged, without a model
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["session", "model", "agent", "deliver"])]
    pub message: Option<String>,
    /// The channel that gets the result, e.g. email or webhook:phone [default: cli]
    #[arg(long)]
    pub channel: Option<String>,
    /// The chat on that channel
    #[arg(long = "chat", value_name = "ID")]
    pub chat_id: Option<String>,
    /// The conversation of the prompt [default: the job's own, which begins anew with each run]
    #[arg(long, value_name = "KEY", value_parser = session_key)]
    pub session: Option<String>,
    /// The model, e.g. openai/gpt-4o [default: agent.model]
    #[arg(long, value_name = "MODEL", value_parser = model_name)]
    pub model: Option<String>,
    /// The agent that answers, e.g. researcher [default: that of the chat]
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// When the answer is sent: always, on_change, or when_asked (unless it is NO_REPLY) [default: always]
    #[arg(long, value_name = "WHEN", value_parser = ["always", "on_change", "when_asked"], hide_possible_values = true)]
    pub deliver: Option<String>,
    /// What happens to runs missed while the machine was off: once (one run for all of them), all, or skip [default: once]
    #[arg(long, value_name = "POLICY", value_parser = ["once", "all", "skip"], hide_possible_values = true)]
    pub misfire: Option<String>,
    /// Skip runs that are later than this [default: cron.stale_after]
    #[arg(long, value_name = "DURATION")]
    pub stale_after: Option<String>,
    /// Delay each run at random by up to this much
    #[arg(long, value_name = "DURATION")]
    pub jitter: Option<String>,
    /// Keep a one-time job after its run
    #[arg(long, conflicts_with_all = ["every", "cron"])]
    pub keep: bool,
    #[command(flatten)]
    #[serde(skip)]
    pub output: Output,
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    #[test]
    fn the_fields_of_a_job_have_the_keys_of_the_api() {
        let command = CronAdd::augment_args(Command::new("add"));
        let matches = command.get_matches_from(["add", "--message", "tea", "--every", "2h", "--chat", "1"]);
        let fields = serde_json::to_value(CronAdd::from_arg_matches(&matches).unwrap()).unwrap();
        let mut keys: Vec<_> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let expected = [
            "agent", "anchor", "at", "channel", "chat_id", "cron", "deliver", "every", "jitter", "keep", "message",
            "misfire", "model", "name", "prompt", "session", "stale_after", "tz",
        ];
        assert_eq!(keys, expected);
        assert_eq!(fields["chat_id"], "1");
    }
}
