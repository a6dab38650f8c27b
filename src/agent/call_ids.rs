//! One id for each call of a conversation, from the first sight of it on.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::chat::{ChatMessage, ToolCall};

/// Some services count their call ids anew in each response, and others refuse a conversation that holds one twice; in
/// the journal, and for whoever watches a turn, each id means one call. A call keeps the id under which it was shown
/// while its arguments were still to come.
pub struct CallIds {
    /// Of the responses before.
    before: HashSet<String>,
    now: Mutex<Now>,
}

/// The response under way.
#[derive(Default)]
struct Now {
    taken: HashSet<String>,
    /// The service's id of a call that was shown, and ours.
    shown: HashMap<String, String>,
}

impl CallIds {
    /// For the response to `messages`.
    pub fn after(messages: &[ChatMessage]) -> Self {
        // A call whose result was lost has its id all the same.
        let ids = |message: &ChatMessage| match message {
            ChatMessage::Tool { call_id, .. } => vec![call_id.clone()],
            ChatMessage::Assistant { tool_calls, .. } => tool_calls.iter().map(|call| call.id.clone()).collect(),
            ChatMessage::User { .. } => Vec::new(),
        };
        Self { before: messages.iter().flat_map(ids).collect(), now: Mutex::default() }
    }

    /// Our id for a call that the service has begun to write.
    pub fn show(&self, sent: &str) -> String {
        let mut now = self.now();
        let id = self.take(&mut now, sent);
        now.shown.insert(sent.to_owned(), id.clone());
        id
    }

    /// What was shown of the response is void.
    pub fn restart(&self) {
        *self.now() = Now::default();
    }

    /// Gives the calls of the whole response their ids.
    pub fn settle(&self, calls: &mut [ToolCall]) {
        let mut now = self.now();
        for call in calls {
            let shown = now.shown.remove(&call.id);
            call.id = shown.unwrap_or_else(|| self.take(&mut now, &call.id));
        }
    }

    fn take(&self, now: &mut Now, sent: &str) -> String {
        let wanted = if sent.is_empty() { "call" } else { sent };
        let mut id = wanted.to_owned();
        let mut number = 2;
        while self.before.contains(&id) || !now.taken.insert(id.clone()) {
            id = format!("{wanted}_{number}");
            number += 1;
        }
        id
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(sent: [&str; 4], settle: impl FnOnce(&mut [ToolCall])) -> [String; 4] {
        let mut calls = sent.map(|id| ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: String::new() });
        settle(&mut calls);
        calls.map(|call| call.id)
    }

    #[test]
    fn each_id_means_one_call() {
        let before = [ChatMessage::Tool { call_id: "a".to_owned(), name: "x".to_owned(), content: String::new() }];
        let expected = ["a_2", "b", "b_2", "call"];
        let fresh = CallIds::after(&before);
        assert_eq!(ids(["a", "b", "b", ""], |calls| fresh.settle(calls)), expected);
        // Shown in another order than they stand in, and after a try that was void.
        let shown = CallIds::after(&before);
        assert_eq!((shown.show("b"), shown.show("a")), ("b".to_owned(), "a_2".to_owned()));
        shown.restart();
        assert_eq!((shown.show("b"), shown.show("a")), ("b".to_owned(), "a_2".to_owned()));
        assert_eq!(ids(["a", "b", "b", ""], |calls| shown.settle(calls)), expected);
    }
}
