//! `daoyou queue` and `daoyou approvals`: messages and approvals that wait.

use clap::{Args, Subcommand};

use super::output::Output;
use crate::query::RetryClass;

#[derive(Clone, Debug, Subcommand)]
pub enum QueueCommand {
    /// List messages that wait or could not be delivered
    #[command(after_help = "Examples:\n  daoyou queue list\n  daoyou queue list --json")]
    List(Output),
    /// Show a message or a delivery
    #[command(after_help = "Example:\n  daoyou queue show 019a2b3c-4d5e-5f60-8a9b-0c1d2e3f4a5b")]
    Show(QueueItem),
    /// Retry a delivery or a message by its id, or all of one outcome
    ///
    /// A delivery that is dead or unknown is sent again. A message that was given up, or whose turn failed, is answered
    /// again from the step that it reached. For a message that waits for a model service, the service is asked at once.
    #[command(after_help = "Examples:\n  daoyou queue retry 019a2b3c-4d5e-5f60-8a9b-0c1d2e3f4a5b\n  \
                            daoyou queue retry --all\n  daoyou queue retry --outcome failed")]
    Retry(RetryArgs),
    /// Give up a message or a delivery
    ///
    /// A message that waits for a model service, an approval or an answer ends as `/stop` would end it: its sender gets the
    /// reply of a stopped message.
    #[command(after_help = "Example:\n  daoyou queue drop 019a2b3c-4d5e-5f60-8a9b-0c1d2e3f4a5b")]
    Drop(QueueItem),
}

/// `daoyou approvals`.
#[derive(Clone, Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List the calls that wait for your approval
    #[command(after_help = "Examples:\n  daoyou approvals list\n  daoyou approvals list --json")]
    List(Output),
    /// Approve a call: it runs once, with exactly the arguments that the list shows
    #[command(after_help = "Examples:\n  daoyou approvals approve 3f9a1c77b2\n  \
                            daoyou approvals approve 3f9a1c77b2 --session")]
    Approve {
        /// The id, as the list and the notice show it
        id: String,
        /// Approve the tool for the rest of that conversation, too
        #[arg(long)]
        session: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Deny a call and inform the model
    #[command(after_help = "Example:\n  daoyou approvals deny 3f9a1c77b2 --reason 'Not on a Sunday'")]
    Deny {
        /// The id, as the list and the notice show it
        id: String,
        /// The reason, which the model sees
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        output: Output,
    },
}

/// `daoyou queue retry`.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct RetryArgs {
    /// The id of a delivery, a message or a turn
    #[arg(group = "what")]
    pub id: Option<String>,
    /// All dead deliveries, all messages that were given up, and all messages that wait for a model service
    #[arg(long, group = "what")]
    pub all: bool,
    /// All of one outcome: dead (deliveries and messages), failed (messages answered with an error), waiting (messages that
    /// wait for a model service), unknown (deliveries that may have arrived)
    #[arg(long, value_name = "OUTCOME", group = "what")]
    pub outcome: Option<RetryClass>,
    #[command(flatten)]
    pub output: Output,
}

/// One message in a queue.
#[derive(Clone, Debug, Args)]
pub struct QueueItem {
    /// The id of a message or a delivery
    pub id: String,
    #[command(flatten)]
    pub output: Output,
}
