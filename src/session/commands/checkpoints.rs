//! `/checkpoint` and `/restore`: the checkpoints to which a session can go back.

use super::history::{clock, shorten};
use super::slash_command::{CommandContext, CommandReply, SessionChange};
use crate::chat::ChatMessage;
use crate::memory::written;
use crate::phrases::fill;
use crate::store::StoreError;
use crate::store::checkpoints::{self, CheckpointError, CheckpointSummary};
use crate::store::inbox::InboxRow;

/// The maximum number of checkpoints in a list.
const LISTED: u32 = 10;

/// The maximum number of characters of the excerpt of a checkpoint's message, and of its name.
const MAX_EXCERPT: usize = 60;
const MAX_NAME: usize = 40;

/// Lists the last checkpoints of the session, or gives the current one a name.
///
/// # Errors
/// The checkpoints cannot be read from the store.
pub async fn checkpoint(context: &CommandContext, name: &str, row: &InboxRow) -> Result<CommandReply, StoreError> {
    let key = row.session.clone();
    let name = shorten(name, MAX_NAME);
    if name.is_empty() {
        let lines = context.store.read(move |connection| checkpoints::list(connection, &key, LISTED)).await?;
        return Ok(list(context, &lines).into());
    }
    let Some(turn) = context.store.read(move |connection| checkpoints::current_turn(connection, &key)).await? else {
        return Ok(context.phrases.no_checkpoints.to_owned().into());
    };
    let reply = fill(context.phrases.checkpoint_named, &[&name, &name]);
    Ok(CommandReply::changing(reply, SessionChange::NameCheckpoint { turn, name }))
}

/// Restores the session to a checkpoint, given by name or id.
///
/// # Errors
/// The store cannot be read. An unknown or corrupted checkpoint is not an error: the reply says so.
pub async fn restore(context: &CommandContext, wanted: &str, row: &InboxRow) -> Result<CommandReply, StoreError> {
    if wanted.is_empty() {
        return checkpoint(context, "", row).await;
    }
    let (key, named) = (row.session.clone(), shorten(wanted, MAX_NAME));
    let found = context
        .store
        .read(move |connection| {
            checkpoints::separate_store_errors(
                checkpoints::find_turn_in_session(connection, &key, &named)
                    .and_then(|turn| checkpoints::find(connection, &key, turn))
                    .and_then(|point| Ok((checkpoints::summary(connection, &point)?, point))),
            )
        })
        .await?;
    Ok(match found {
        Ok((line, point)) => {
            let words = line.as_ref().map(excerpt).unwrap_or_default();
            let reply = fill(context.phrases.restored, &[&checkpoints::short_id(point.turn), &words]);
            CommandReply::changing(reply, SessionChange::Restore(point))
        }
        Err(error) => {
            let reply = match &error {
                CheckpointError::Unknown(_) => fill(context.phrases.no_such_checkpoint, &[wanted]),
                CheckpointError::Corrupted(turn) | CheckpointError::Altered { turn, .. } => {
                    fill(context.phrases.checkpoint_corrupted, &[&checkpoints::short_id(*turn)])
                }
                other => fill(context.phrases.not_restored, &[&other.to_string()]),
            };
            CommandReply::failed(reply, error.code())
        }
    })
}

fn list(context: &CommandContext, lines: &[CheckpointSummary]) -> String {
    if lines.is_empty() {
        return context.phrases.no_checkpoints.to_owned();
    }
    let line = |line: &CheckpointSummary| {
        let name = line.name.as_ref().map(|name| format!("**{name}** ")).unwrap_or_default();
        let at = clock(line.at, &context.timezone);
        format!("- `{}` {at} {name}{}", checkpoints::short_id(line.turn), excerpt(line))
    };
    let lines = lines.iter().map(line).collect::<Vec<_>>().join("\n");
    format!("{}\n{lines}\n\n{}", context.phrases.checkpoints_are, context.phrases.checkpoints_use)
}

/// Returns the beginning of the message that the checkpoint's turn answered.
fn excerpt(line: &CheckpointSummary) -> String {
    match serde_json::from_str(&line.body) {
        Ok(ChatMessage::User { content, .. }) => shorten(written(&content), MAX_EXCERPT),
        // The text of an unreadable message is empty.
        _ => String::new(),
    }
}
