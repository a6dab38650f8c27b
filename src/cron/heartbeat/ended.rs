//! What follows from the end of a heartbeat's turn, within the commit of that end.

use super::service::{load, save};
use crate::bus::{RunEnd, Told, WhatFollows, conversations};
use crate::store::{Connection, StoreError};

/// What the model answers when there is nothing to tell.
pub(super) const OK: &str = "HEARTBEAT_OK";

/// What may stand beside it, in characters; more is worth to be read.
const BESIDE: usize = 300;

/// Answers what is delivered, and tells the chat's session of it. A turn that failed is done again at the next look; the
/// first of several is told.
pub fn ended(connection: &Connection, run: &RunEnd<'_>) -> Result<WhatFollows, StoreError> {
    let mut memory = load(connection)?;
    let is_news = match run.error {
        // Somebody wanted it so.
        Some("stopped") => {
            memory.keep();
            true
        }
        Some(_) => {
            memory.take_back();
            memory.failures == 1
        }
        None => {
            memory.keep();
            !says_nothing(run.reply)
        }
    };
    save(connection, &memory)?;
    if !is_news {
        return Ok(WhatFollows::default());
    }
    let told = Told {
        note: "At a heartbeat you looked after HEARTBEAT.md and sent this to the chat:".to_owned(),
        said: run.reply.to_owned(),
    };
    let sessions = conversations(connection, &run.row.channel, &run.row.chat_id)?;
    let messages = sessions.into_iter().map(|session| told.draft(session)).collect();
    Ok(WhatFollows { reply: Some(run.reply.to_owned()), messages, notice: None })
}

fn says_nothing(reply: &str) -> bool {
    let reply = reply.trim_matches(|c: char| c.is_whitespace() || c.is_ascii_punctuation() && c != '_' || c == '。');
    let beside = reply.strip_prefix(OK).or_else(|| reply.strip_suffix(OK));
    reply.is_empty() || beside.is_some_and(|beside| beside.trim().chars().count() <= BESIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_says_nothing() {
        let long = "x".repeat(301);
        for (reply, expected) in [
            ("HEARTBEAT_OK", true),
            (" **HEARTBEAT_OK**.\n", true),
            ("HEARTBEAT_OK\n\nNothing new in the inbox.", true),
            ("Nothing new. `HEARTBEAT_OK`", true),
            ("没有新情况。HEARTBEAT_OK。", true),
            ("", true),
            (&format!("HEARTBEAT_OK {long}"), false),
            (&format!("{long} HEARTBEAT_OK"), false),
            ("I was to answer HEARTBEAT_OK, but the disk is full.", false),
            ("The disk is full.", false),
        ] {
            assert_eq!(says_nothing(reply), expected, "{reply}");
        }
    }
}
