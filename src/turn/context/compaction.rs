//! Compacts a conversation that the model rejects as too long: drops the older half of the history, then cuts long
//! results of this turn's tools, then drops the whole history. The message itself is never changed.

use std::sync::Arc;

use daoyou_channels::SessionKey;

use super::window::{LoggedMessage, choose_again};
use crate::chat::ChatMessage;
use crate::store::{Store, StoreError};
use crate::tools::{OutputLimit, truncate_middle};
use crate::turn::progress::{ContextStep, TurnProgress};

/// Returns the smaller context that replaces one which the model rejected as too long; `None` if nothing more can be left out.
///
/// # Errors
/// The store cannot be read.
pub fn compact(
    store: &Store,
    session: &SessionKey,
    progress: &TurnProgress,
) -> Result<Option<ContextStep>, StoreError> {
    let Some(context) = &progress.context else { return Ok(None) };
    let key = session.to_string();
    let log = store.read_here(|connection| choose_again(connection, &key, context))?;
    let smaller = smaller(context, &log, progress);
    if let Some(smaller) = &smaller {
        let (messages, compactions) = (smaller.from - context.from, smaller.compactions);
        tracing::warn!(%session, messages, compactions, "the model refused the conversation as too long; it is given less");
    }
    Ok(smaller)
}

/// The maximum number of compactions of one conversation.
const MOST: u8 = 3;

/// Returns the maximum number of characters of a tool's result after `compactions` compactions; `None` means no limit.
fn result_chars(compactions: u8) -> Option<usize> {
    match compactions {
        0 | 1 => None,
        2 => Some(1_500),
        _ => Some(300),
    }
}

/// Returns the next smaller context after `context`, where `log` is the history of `context`; `None` if nothing more can be left
/// out.
fn smaller(context: &ContextStep, log: &[Arc<LoggedMessage>], progress: &TurnProgress) -> Option<ContextStep> {
    let longest = progress.messages.iter().filter_map(result_of).map(|content| content.chars().count()).max();
    (context.compactions + 1..=MOST).find_map(|compactions| {
        let from = match compactions {
            1 => half(log, context.to),
            2 => context.from,
            _ => context.to,
        };
        let leaves_out = log.first().is_some_and(|message| message.seq < from);
        let cuts = longest > result_chars(compactions) && result_chars(compactions).is_some();
        (leaves_out || cuts).then(|| ContextStep { from, compactions, ..context.clone() })
    })
}

/// Returns the turn's messages as they are sent to the model.
pub fn messages_to_send(progress: &TurnProgress) -> impl Iterator<Item = ChatMessage> + '_ {
    let limit = progress.context.as_ref().and_then(|context| result_chars(context.compactions));
    progress.messages.iter().cloned().map(move |message| match (message, limit) {
        (ChatMessage::Tool { call_id, name, content, images }, Some(limit)) => ChatMessage::Tool {
            call_id,
            name,
            images,
            content: truncate_middle(&content, OutputLimit { chars: limit, lines: usize::MAX }, None),
        },
        (message, _) => message,
    })
}

fn result_of(message: &ChatMessage) -> Option<&str> {
    match message {
        ChatMessage::Tool { content, .. } => Some(content),
        _ => None,
    }
}

/// Returns the seq at which the newer half begins. It is the seq of a user's message, so that no turn is split.
fn half(log: &[Arc<LoggedMessage>], end: i64) -> i64 {
    let whole: usize = log.iter().map(|message| message.tokens).sum();
    let mut left_out = 0;
    let mut younger = log.iter().skip_while(|message| {
        let is_older = left_out * 2 < whole;
        left_out += message.tokens;
        is_older
    });
    younger.find(|message| message.is_of_user()).map_or(end, |message| message.seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(tokens: &[(&str, usize)]) -> Vec<Arc<LoggedMessage>> {
        let message = |(seq, (role, tokens)): (i64, &(&str, usize))| {
            let message = match *role {
                "user" => ChatMessage::user(""),
                _ => ChatMessage::assistant(""),
            };
            let (turn, bytes, tokens) = (String::new(), *tokens, *tokens);
            Arc::new(LoggedMessage { seq, turn, bytes, tokens, message: message.into() })
        };
        (10..).zip(tokens).map(message).collect()
    }

    fn progress(result: usize) -> TurnProgress {
        let tool = ChatMessage::Tool {
            call_id: "a".to_owned(),
            name: "exec".to_owned(),
            content: "é".repeat(result),
            images: Vec::new(),
        };
        let mut progress = TurnProgress::default();
        progress.messages.push(tool);
        progress
    }

    /// The history, the longest result, and each smaller conversation: where it begins, and the number of compactions.
    #[test]
    fn each_compaction_leaves_something_out_and_their_number_is_bounded() {
        let turns = [("user", 400), ("assistant", 400), ("user", 400), ("assistant", 400)];
        let one = [("user", 400), ("assistant", 4_000)];
        let uneven = [("user", 40), ("assistant", 4_000), ("user", 40), ("assistant", 40), ("user", 40)];
        type Case<'a> = (&'a [(&'a str, usize)], usize, &'a [(i64, u8)]);
        let table: &[Case<'_>] = &[
            (&[], 0, &[]),
            (&[], 300, &[]),
            (&[], 1_501, &[(10, 2), (10, 3)]),
            (&[], 1_500, &[(10, 3)]),
            (&turns, 0, &[(12, 1), (14, 3)]),
            (&turns, 5_000, &[(12, 1), (12, 2), (14, 3)]),
            (&one, 0, &[(12, 1)]),
            (&uneven, 0, &[(12, 1), (15, 3)]),
        ];
        for (history, result, expected) in table {
            let all = log(history);
            let to = 10 + i64::try_from(history.len()).unwrap();
            let mut context = ContextStep { from: 10, to, ..ContextStep::default() };
            let mut steps = Vec::new();
            loop {
                let left: Vec<_> = all.iter().filter(|row| row.seq >= context.from).cloned().collect();
                let Some(next) = smaller(&context, &left, &progress(*result)) else { break };
                steps.push((next.from, next.compactions));
                context = next;
            }
            assert_eq!(steps, *expected, "{history:?} {result}");
        }
    }

    #[test]
    fn long_results_keep_their_ends() {
        let mut progress = progress(10);
        let long = format!("begin{}end", "中".repeat(5_000));
        progress.messages.push(ChatMessage::Tool {
            call_id: "b".into(),
            name: "exec".into(),
            content: long.clone(),
            images: Vec::new(),
        });
        for (compactions, limit) in [(0, None), (1, None), (2, Some(1_500)), (3, Some(300))] {
            progress.context = Some(ContextStep { compactions, ..ContextStep::default() });
            let given: Vec<_> = messages_to_send(&progress).collect();
            assert_eq!(given[0], progress.messages[0]);
            let content = result_of(&given[1]).unwrap();
            let Some(limit) = limit else {
                assert_eq!(content, long);
                continue;
            };
            assert!(content.starts_with("begin中") && content.ends_with("中end"), "{content}");
            assert!(content.contains("characters") && content.chars().count() <= limit, "{content}");
        }
    }
}
