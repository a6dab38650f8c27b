//! The commit of the end of a turn.

use std::time::Duration;

use daoyou_channels::trust::TrustLists;
use jiff::tz::TimeZone;

use super::*;
use crate::bus::{InboundDraft, testing};
use crate::chat::Usage;
use crate::cron::{CronConfig, CronSettings};
use crate::llm::ChatResponse;
use crate::store::inbox::NewInboxRow;
use crate::store::{Store, outbox};
use crate::text::Language;

fn rules() -> CronSettings {
    CronSettings {
        config: CronConfig::default(),
        channels: Default::default(),
        drain_timeout: Duration::ZERO,
        zone: TimeZone::UTC,
        phrases: Phrases::of(Language::En),
        owner: Default::default(),
        trust: TrustLists::default(),
    }
}

/// Otherwise each retry of a failed turn would take a place of the channel's capacity until the next start.
#[tokio::test]
async fn the_reply_of_a_retried_turn_is_counted_once() {
    let (_folder, store) = Store::temporary();
    let (bus, turn) = (testing::bus(store.clone(), 10), Uuid::from_u128(1));
    let counted = bus.clone();
    let write = move |connection: &Connection| {
        inbox::insert(connection, &NewInboxRow::sample(turn, "webhook:in:c"))?;
        let mut waiting = Vec::new();
        for _ in 0..3 {
            inbox::requeue_done(connection, turn)?;
            let rows = inbox::of_turn(connection, turn)?;
            let (reply, error) = ("an error".to_owned(), Some("internal"));
            let end = TurnEnd { reply, error, ..TurnEnd::bare(turn, rows, Phrases::of(Language::En)) };
            let followed = end.commit(connection, &counted, &rules())?.followed;
            followed.wake(&counted, &RetryScheduler::default(), "webhook:in");
            waiting.push(counted.depths().1);
        }
        Ok(waiting)
    };
    assert_eq!(store.write(Durability::Logged, write).await.unwrap(), [1, 1, 1]);
}

/// Whatever the journal already contains, the end leaves one answer, behind the context that it was given to, and counts it once.
#[tokio::test]
async fn the_end_adds_the_missing_steps_to_the_journal() {
    let (_folder, store) = Store::temporary();
    let bus = testing::bus(store.clone(), 10);
    let first = ContextStep { model: "a/b".to_owned(), ..ContextStep::default() };
    let compacted = ContextStep { compactions: 1, ..first.clone() };
    let usage = Usage { input_tokens: 7, ..Usage::default() };
    let response = ChatResponse { text: "hi".to_owned(), usage, ..ChatResponse::default() };
    let answer = StepBody::Response { response, active_ms: 1 };
    let of = |context: &ContextStep| StepBody::Context(context.clone());
    for (number, (stored, context, expected)) in [
        (vec![], &first, vec![of(&first), answer.clone()]),
        (vec![of(&first)], &first, vec![of(&first), answer.clone()]),
        (vec![of(&first)], &compacted, vec![of(&first), of(&compacted), answer.clone()]),
        // Stored by an earlier version, which then died.
        (vec![of(&first), answer.clone()], &first, vec![of(&first), answer.clone()]),
    ]
    .into_iter()
    .enumerate()
    {
        let (bus, turn, context) = (bus.clone(), Uuid::from_u128(number as u128 + 1), context.clone());
        let (session, answer) = (format!("s{number}"), answer.clone());
        let write = move |connection: &Connection| {
            inbox::insert(connection, &NewInboxRow::sample(turn, &session))?;
            for step in &stored {
                turn_steps::append(connection, turn, step.kind(), &serde_json::to_string(step)?)?;
            }
            let (context, answer) = (Some(Box::new(context.clone())), Some(Box::new(answer.clone())));
            let messages = TurnMessages { user: ChatMessage::user("hello"), context, answer, reason: "" };
            let append = SessionAppend::Turn(messages);
            let rows = inbox::of_turn(connection, turn)?;
            let end = TurnEnd { append, ..TurnEnd::bare(turn, rows, Phrases::of(Language::En)) };
            end.commit(connection, &bus, &rules())?;
            let tokens = usage::total(connection, usage::UsageScope::Turn(turn))?.tokens.input;
            Ok((turn_steps::of_turn(connection, turn)?, tokens))
        };
        let (steps, tokens) = store.write(Durability::Logged, write).await.unwrap();
        assert!(turn_steps::chain_holds(&steps));
        let steps: Vec<StepBody> = steps.iter().map(|step| serde_json::from_str(&step.body).unwrap()).collect();
        assert_eq!((steps, tokens), (expected, 7), "{number}");
    }
}

/// A note whose end was rejected, or that crashed the gateway, has an error, but no chat to send it to.
#[tokio::test]
async fn the_end_of_a_note_sends_nothing() {
    let (_folder, store) = Store::temporary();
    let bus = testing::bus(store.clone(), 10);
    let write = move |connection: &Connection| {
        let note = SessionNote { note: "n".to_owned(), reply: "s".to_owned() };
        let draft = InboundDraft::of_note(&note, "s".into());
        draft.insert(connection)?;
        let rows = inbox::of_turn(connection, draft.id)?;
        let (reply, error) = ("an error".to_owned(), Some("internal"));
        let end = TurnEnd { reply, error, ..TurnEnd::bare(draft.id, rows, Phrases::of(Language::En)) };
        let committed = end.commit(connection, &bus, &rules())?;
        Ok((committed.followed.reply, outbox::of_turn(connection, draft.id)?.len()))
    };
    assert_eq!(store.write(Durability::Logged, write).await.unwrap(), (None, 0));
}
