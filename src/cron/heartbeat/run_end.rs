//! Records the end of a heartbeat's turn, and determines the messages that follow from it, within the commit of that end.

use super::due::{load, save};
use crate::bus::{EndedTurn, FollowUps, InboundDraft, conversations};
use crate::cron::run_end::is_marker_alone;
use crate::origin::SessionNote;
use crate::store::{Connection, StoreError};

/// The answer of a model that has nothing to report.
pub(super) const OK: &str = "HEARTBEAT_OK";

/// Returns the message to deliver, with a note for the chat's session. A failed turn is repeated at the next check. Only the
/// first of several consecutive failures is reported.
///
/// # Errors
/// The state of the heartbeat cannot be read or written.
pub fn follow_ups_of(connection: &Connection, run: &EndedTurn<'_>) -> Result<FollowUps, StoreError> {
    let mut memory = load(connection)?;
    let is_news = match run.error {
        // A person stopped the turn.
        Some("stopped") => {
            memory.record_success();
            true
        }
        Some(_) => {
            memory.record_failure();
            memory.failures == 1
        }
        None => {
            memory.record_success();
            !is_empty_report(run.reply)
        }
    };
    save(connection, &memory)?;
    if !is_news {
        return Ok(FollowUps::default());
    }
    let text = without_marker(run.reply);
    let note = SessionNote {
        note: "At a heartbeat you looked after HEARTBEAT.md and sent this to the chat:".to_owned(),
        reply: text.to_owned(),
    };
    let sessions = conversations(connection, &run.row.channel, &run.row.chat_id)?;
    let messages = sessions.into_iter().map(|session| InboundDraft::of_note(&note, session)).collect();
    Ok(FollowUps { reply: Some(text.to_owned()), messages, notice: None })
}

/// Returns true if the reply is the marker alone. Any text next to it may be important.
fn is_empty_report(reply: &str) -> bool {
    let is_blank = |c: char| c.is_whitespace() || c.is_ascii_punctuation() && c != '_' || c == '。';
    reply.chars().all(is_blank) || is_marker_alone(reply, OK)
}

/// Removes the marker at the beginning or end of an answer, since it is not meant for people.
fn without_marker(reply: &str) -> &str {
    // Punctuation that touches the marker belongs to it; punctuation beyond a space belongs to the answer.
    let is_mark = |c: char| matches!(c, '`' | '*' | '"' | '“' | '”');
    let is_end = |c: char| is_mark(c) || matches!(c, '.' | ':' | '。' | '：');
    let text = reply.trim();
    let text = text
        .trim_start_matches(is_mark)
        .strip_prefix(OK)
        .map_or(text, |rest| rest.trim_start_matches(is_end).trim_start());
    let before = text.trim_end_matches(is_end).strip_suffix(OK);
    before.map_or(text, |rest| rest.trim_end_matches(is_mark).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_without_news_are_recognised() {
        for (reply, expected) in [
            ("HEARTBEAT_OK", true),
            (" **HEARTBEAT_OK**.\n", true),
            ("`HEARTBEAT_OK`。", true),
            ("「HEARTBEAT_OK」", true),
            ("", true),
            ("HEARTBEAT_OK\n\nThe disk is full.", false),
            ("The disk is full. `HEARTBEAT_OK`", false),
            ("磁盘满了。HEARTBEAT_OK。", false),
            ("I was to answer HEARTBEAT_OK, but the disk is full.", false),
            ("The disk is full.", false),
        ] {
            assert_eq!(is_empty_report(reply), expected, "{reply}");
        }
        for (reply, expected) in [
            ("HEARTBEAT_OK\n\nThe disk is full.", "The disk is full."),
            ("The disk is full. **HEARTBEAT_OK**.", "The disk is full."),
            ("磁盘满了。HEARTBEAT_OK。", "磁盘满了。"),
            (
                "I was to answer HEARTBEAT_OK, but the disk is full.",
                "I was to answer HEARTBEAT_OK, but the disk is full.",
            ),
            ("The *disk* is `full`", "The *disk* is `full`"),
            ("HEARTBEAT_OK\n\n**Disk** is full", "**Disk** is full"),
            ("The disk is **full**\n\nHEARTBEAT_OK", "The disk is **full**"),
            ("```\nfull\n```\n`HEARTBEAT_OK`", "```\nfull\n```"),
        ] {
            assert_eq!(without_marker(reply), expected);
        }
    }
}
