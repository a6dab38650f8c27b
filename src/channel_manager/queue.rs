//! The undelivered messages of one channel, in order for each chat. It reads no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use crate::store::outbox::PendingDelivery;

/// From this number of failures on, a message no longer blocks the messages behind it.
const BLOCKS_UNTIL: u32 = 2;

/// The queues of a channel. At most one message of a chat is in flight; the head of a chat blocks the others until its
/// second failure.
#[derive(Default)]
pub struct ChatQueues {
    chats: HashMap<String, ChatQueue>,
    /// The due time of the next message of each chat that has none in flight.
    due: BTreeSet<(i64, String)>,
    /// The chats with a message in flight.
    in_flight: HashSet<String>,
    /// Messages that were sent while the recipient was absent.
    held: Vec<PendingDelivery>,
}

#[derive(Default)]
struct ChatQueue {
    in_order: VecDeque<PendingDelivery>,
    /// Messages that failed twice or more, by due time.
    deferred: BTreeMap<(i64, i64), PendingDelivery>,
}

impl ChatQueue {
    fn next_at(&self) -> Option<i64> {
        let head = self.in_order.front().map(|pending| pending.next_at);
        let deferred = self.deferred.first_key_value().map(|((at, _), _)| *at);
        head.into_iter().chain(deferred).min()
    }

    fn take(&mut self) -> Option<PendingDelivery> {
        let is_deferred_first = match (self.in_order.front(), self.deferred.first_key_value()) {
            (Some(head), Some(((at, _), _))) => *at < head.next_at,
            (None, Some(_)) => true,
            _ => false,
        };
        if is_deferred_first {
            self.deferred.pop_first().map(|(_, pending)| pending)
        } else {
            self.in_order.pop_front()
        }
    }
}

impl ChatQueues {
    /// Adds a message at the end of its chat's queue.
    pub fn push(&mut self, pending: PendingDelivery) {
        let chat_id = pending.chat_id.clone();
        self.change(&chat_id, |chat| put(chat, pending, VecDeque::push_back));
    }

    /// Takes the next message that is due at `now`; the message is then in flight.
    pub fn take_due(&mut self, now: i64) -> Option<PendingDelivery> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        let (_, chat_id) = self.due.pop_first()?;
        self.in_flight.insert(chat_id.clone());
        self.chats.get_mut(&chat_id)?.take()
    }

    /// Removes a message from flight, delivered or not.
    pub fn finished(&mut self, chat_id: &str) {
        self.in_flight.remove(chat_id);
        self.change(chat_id, |_| {});
    }

    /// Returns a message from flight to the queue for another attempt.
    pub fn retry(&mut self, pending: PendingDelivery) {
        let chat_id = pending.chat_id.clone();
        self.in_flight.remove(&chat_id);
        self.change(&chat_id, |chat| put(chat, pending, VecDeque::push_front));
    }

    /// Takes a message out of flight and holds it until the recipient is present. The next message of its chat may be
    /// sent.
    pub fn hold_for_recipient(&mut self, pending: PendingDelivery) {
        let chat_id = pending.chat_id.clone();
        self.held.push(pending);
        self.finished(&chat_id);
    }

    /// Makes the messages that waited for the recipient due again, in their old order.
    pub fn release_held(&mut self) {
        let mut back = std::mem::take(&mut self.held);
        back.sort_by_key(|pending| std::cmp::Reverse(pending.seq));
        for pending in back {
            let chat_id = pending.chat_id.clone();
            self.change(&chat_id, |chat| put(chat, pending, VecDeque::push_front));
        }
    }

    /// Makes the messages with these seqs due at once.
    pub fn make_due(&mut self, seqs: &[i64]) {
        for chat_id in self.chats.keys().cloned().collect::<Vec<_>>() {
            self.change(&chat_id, |chat| {
                for pending in chat.in_order.iter_mut().filter(|pending| seqs.contains(&pending.seq)) {
                    pending.next_at = 0;
                }
                let deferred = std::mem::take(&mut chat.deferred);
                let sooner = |((at, seq), pending)| ((if seqs.contains(&seq) { 0 } else { at }, seq), pending);
                chat.deferred = deferred.into_iter().map(sooner).collect();
            });
        }
    }

    /// Returns the time when the next message is due.
    pub fn next_at(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Makes every message due no later than `latest`, after a jump of the clock.
    pub fn cap_due_times(&mut self, latest: i64) {
        let late: Vec<_> = self.due.iter().filter(|(at, _)| *at > latest).map(|(_, chat)| chat.clone()).collect();
        for chat_id in late {
            self.change(&chat_id, |chat| {
                if let Some(head) = chat.in_order.front_mut() {
                    head.next_at = head.next_at.min(latest);
                }
                let deferred = std::mem::take(&mut chat.deferred);
                chat.deferred =
                    deferred.into_iter().map(|((at, seq), pending)| ((at.min(latest), seq), pending)).collect();
            });
        }
    }

    fn change(&mut self, chat_id: &str, change: impl FnOnce(&mut ChatQueue)) {
        let chat = self.chats.entry(chat_id.to_owned()).or_default();
        if let Some(at) = chat.next_at() {
            self.due.remove(&(at, chat_id.to_owned()));
        }
        change(chat);
        match chat.next_at() {
            Some(at) if !self.in_flight.contains(chat_id) => {
                self.due.insert((at, chat_id.to_owned()));
            }
            Some(_) => {}
            None => {
                self.chats.remove(chat_id);
            }
        }
    }
}

fn put(chat: &mut ChatQueue, pending: PendingDelivery, into: fn(&mut VecDeque<PendingDelivery>, PendingDelivery)) {
    if pending.tries >= BLOCKS_UNTIL {
        chat.deferred.insert((pending.next_at, pending.seq), pending);
    } else {
        into(&mut chat.in_order, pending);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn pending(seq: i64, chat: &str) -> PendingDelivery {
        PendingDelivery {
            seq,
            id: Uuid::from_u128(seq.unsigned_abs().into()),
            chat_id: chat.to_owned(),
            tries: 0,
            next_at: 0,
        }
    }

    fn take(queues: &mut ChatQueues, now: i64) -> Option<i64> {
        queues.take_due(now).map(|pending| pending.seq)
    }

    #[test]
    fn one_message_of_a_chat_is_in_flight_and_chats_do_not_wait_for_each_other() {
        let mut queues = ChatQueues::default();
        for (seq, chat) in [(1, "a"), (2, "a"), (3, "b")] {
            queues.push(pending(seq, chat));
        }
        assert_eq!((take(&mut queues, 0), take(&mut queues, 0), take(&mut queues, 0)), (Some(1), Some(3), None));
        queues.finished("a");
        assert_eq!((take(&mut queues, 0), take(&mut queues, 0)), (Some(2), None));
        queues.finished("a");
        queues.finished("b");
        assert_eq!((queues.next_at(), queues.chats.len()), (None, 0));
    }

    #[test]
    fn the_head_of_a_chat_blocks_the_others_until_its_second_failure() {
        let mut queues = ChatQueues::default();
        queues.push(pending(1, "a"));
        queues.push(pending(2, "a"));
        let mut head = queues.take_due(0).unwrap();
        (head.tries, head.next_at) = (1, 100);
        queues.retry(head);
        assert_eq!((take(&mut queues, 50), queues.next_at()), (None, Some(100)));
        let mut head = queues.take_due(100).unwrap();
        assert_eq!(head.seq, 1);
        (head.tries, head.next_at) = (2, 500);
        queues.retry(head);
        assert_eq!(take(&mut queues, 100), Some(2), "no longer blocked");
        queues.finished("a");
        assert_eq!((take(&mut queues, 499), take(&mut queues, 500)), (None, Some(1)));
    }

    #[test]
    fn messages_held_for_the_recipient_come_back_in_order() {
        let mut queues = ChatQueues::default();
        for seq in [1, 2] {
            queues.push(pending(seq, "a"));
            let out = queues.take_due(0).unwrap();
            queues.hold_for_recipient(out);
        }
        assert_eq!(queues.next_at(), None);
        queues.push(pending(3, "a"));
        queues.release_held();
        let order: Vec<_> = std::iter::from_fn(|| {
            let seq = take(&mut queues, 0);
            queues.finished("a");
            seq
        })
        .collect();
        assert_eq!(order, [1, 2, 3]);
    }

    #[test]
    fn a_clock_that_jumped_back_delays_nothing_beyond_its_own_wait() {
        let mut queues = ChatQueues::default();
        queues.push(PendingDelivery { next_at: 1_000_000, tries: 3, ..pending(1, "a") });
        queues.push(PendingDelivery { next_at: 1_000_000, ..pending(2, "b") });
        queues.cap_due_times(50);
        assert_eq!((take(&mut queues, 50), take(&mut queues, 50)), (Some(1), Some(2)));
    }
}
