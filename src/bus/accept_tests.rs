use std::collections::{BTreeSet, HashSet};

use daoyou_channels::Note;
use proptest::prelude::*;

use super::*;
use crate::bus::testing::bus;
use crate::store::Store;
use crate::store::approvals::NewApproval;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Messages that arrive several times, in any order and concurrently, are accepted once for each `(channel, external id)`.
    #[test]
    fn the_same_message_is_accepted_once(sent in prop::collection::vec((0u8..2, 0u8..6), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let distinct: HashSet<_> = sent.iter().copied().collect();
        let (first, ids) = runtime.block_on(async {
            let bus = bus(Store::open(&folder.path().join("daoyou.db")).unwrap(), 100);
            let accepts = sent.iter().map(|(channel, id)| {
                let mut message = InboundMessage::text(&format!("c{channel}"), "chat", "ann", Trust::Known, "hi");
                message.external_id = Some(format!("id{id}"));
                let bus = bus.clone();
                async move { bus.publish_inbound(message, None, AcceptExtras::default()).await }
            });
            let answers = futures_util::future::join_all(accepts).await;
            let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
            let first = answers.iter().filter(|answer| matches!(answer, Acceptance::Accepted { .. })).count();
            let ids: HashSet<_> = answers.iter().map(Acceptance::id).collect();
            assert_eq!(bus.depths().0, ids.len(), "places are given back");
            bus.store().close().await;
            (first, ids.len())
        });
        prop_assert_eq!((first, ids), (distinct.len(), distinct.len()));
    }
}

/// The notes of a duplicate describe another request. Only its cursor counts, so that it is not read again.
#[tokio::test]
async fn the_notes_of_a_message_are_those_of_its_first_copy() {
    let folder = tempfile::tempdir().unwrap();
    let inbox = BusInbox(bus(Store::open(&folder.path().join("daoyou.db")).unwrap(), 100));
    for is_answered in [false, true] {
        let id = format!("id-{is_answered}");
        let copies = (0..8).map(|copy| {
            let (inbox, id) = (inbox.clone(), id.clone());
            async move {
                let mut message = InboundMessage::text("c", "chat", "ann", Trust::Known, copy.to_string());
                message.external_id = Some(id.clone());
                let note = Note { channel: "c".to_owned(), kind: "body", key: id.clone(), value: copy.to_string() };
                let cursor = Cursor { channel: "c".to_owned(), source: format!("{id}-{copy}"), position: id };
                let extras = AcceptExtras { cursor: Some(cursor), notes: vec![note], notice: None };
                match is_answered {
                    true => inbox.answer(message, "ok".to_owned(), extras).await,
                    false => inbox.accept(message, extras).await,
                }
            }
        });
        let answers = futures_util::future::join_all(copies).await;
        let is_first = |answer: &Result<Acceptance, Refusal>| matches!(answer, Ok(Acceptance::Accepted { .. }));
        let first: Vec<_> = (0..8).filter(|copy| is_first(&answers[*copy])).map(|copy| copy.to_string()).collect();
        let noted = inbox.note("c", "body", &id).await.unwrap().unwrap().value;
        assert_eq!(first, [noted], "{answers:?}");
        for copy in 0..8 {
            assert!(inbox.cursor("c", &format!("{id}-{copy}")).await.unwrap().is_some(), "{copy}");
        }
    }
    inbox.0.store().close().await;
}

#[test]
fn each_sender_has_a_session_of_their_own() {
    for (channel, chat, sender, own, expected) in [
        ("webhook:in", "group", "ann", None, "webhook:in:group:ann"),
        ("webhook:in", "group", "bob", None, "webhook:in:group:bob"),
        ("webhook:in", "group:ann", "c", None, "webhook:in:group:ann:c"),
        ("webhook:in", "group", "ann:c", None, "webhook:in:group:ann%3Ac"),
        ("webhook:in", "group", "ann", Some("webhook:in:ops"), "webhook:in:ops"),
        ("webhook:in", "default", "webhook:in", None, "webhook:in:default"),
        ("cli", "direct", "owner", None, "cli:direct"),
    ] {
        let mut message = InboundMessage::text(channel, chat, sender, Trust::Known, "hello");
        message.session = own.map(SessionKey::from);
        assign_sender_session(&mut message);
        assert_eq!(message.session_key().as_str(), expected);
    }
}

/// A turn whose approval was answered may wait for something else; its notice is no longer the reason then.
#[tokio::test]
async fn an_answered_approval_is_not_awaited() {
    let (_folder, store) = Store::temporary();
    let work = |connection: &Connection| {
        let turn = daoyou_channels::new_id();
        inbox::insert(connection, &NewInboxRow::sample(turn, "s"))?;
        connection.execute("UPDATE inbox SET state = 'waiting'", [])?;
        let row = inbox::find(connection, turn)?.unwrap();
        let text = str::to_owned;
        let (session, tool, arguments) = (text("s"), text("exec"), text("{}"));
        let (call_id, taint, expires_at) = (text("call"), BTreeSet::new(), i64::MAX);
        let new = NewApproval { turn, call_id, session, tool, arguments, taint, expires_at };
        approvals::insert(connection, &new)?;
        let id = approvals::id_of(turn, &new.call_id);
        let slot = OutboxSlot::notice_about(NoticeKind::Approval, approvals::code_of(id));
        OutboundDraft::to_sender(&row, turn, slot, text("waits for the owner")).insert(connection)?;
        let asked = message_state(connection, row.clone())?;
        approvals::answer(connection, id, ApprovalState::Approved, "")?;
        Ok([asked, message_state(connection, row)?].map(|state| (state.notice, state.awaits_approval)))
    };
    let states = store.write(Durability::Logged, work).await.unwrap();
    assert_eq!(states, [(Some("waits for the owner".to_owned()), true), (None, false)]);
}
