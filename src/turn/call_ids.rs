//! Unique ids for the tool calls of a conversation.

use std::collections::{HashMap, HashSet};

use parking_lot::{Mutex, MutexGuard};

use crate::chat::{ChatMessage, ToolCall};

/// Assigns unique ids to tool calls. Some services restart their call ids with each response, and others reject a
/// conversation that holds an id twice. A call keeps the id under which it was shown while its arguments were still
/// arriving.
pub struct CallIds {
    /// Ids of the earlier responses.
    before: HashSet<String>,
    now: Mutex<ResponseIds>,
}

/// Ids of the current response.
#[derive(Default)]
struct ResponseIds {
    taken: HashSet<String>,
    /// Our ids of the calls that were shown, by the service's ids.
    shown: HashMap<String, String>,
}

impl CallIds {
    /// Prepares the ids for the response to `messages`.
    pub fn after(messages: &[ChatMessage]) -> Self {
        // A call whose result was lost still occupies its id.
        let ids = |message: &ChatMessage| match message {
            ChatMessage::Tool { call_id, .. } => vec![call_id.clone()],
            ChatMessage::Assistant { tool_calls, .. } => tool_calls.iter().map(|call| call.id.clone()).collect(),
            ChatMessage::User { .. } => Vec::new(),
        };
        Self { before: messages.iter().flat_map(ids).collect(), now: Mutex::default() }
    }

    /// Returns our id for a call that the service has begun to write.
    pub fn show(&self, sent: &str) -> String {
        let mut now = self.now();
        let id = self.take(&mut now, sent);
        now.shown.insert(sent.to_owned(), id.clone());
        id
    }

    /// Forgets the ids of a response that begins again.
    pub fn restart(&self) {
        *self.now() = ResponseIds::default();
    }

    /// Assigns the final ids to the calls of a complete response.
    pub fn settle(&self, calls: &mut [ToolCall]) {
        let mut now = self.now();
        for call in calls {
            let shown = now.shown.remove(&call.id);
            call.id = shown.unwrap_or_else(|| self.take(&mut now, &call.id));
        }
    }

    fn take(&self, now: &mut ResponseIds, sent: &str) -> String {
        let wanted = if sent.is_empty() { "call" } else { sent };
        let mut id = wanted.to_owned();
        let mut number = 2;
        while self.before.contains(&id) || !now.taken.insert(id.clone()) {
            id = format!("{wanted}_{number}");
            number += 1;
        }
        id
    }

    fn now(&self) -> MutexGuard<'_, ResponseIds> {
        self.now.lock()
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
        let before = [ChatMessage::Tool {
            call_id: "a".to_owned(),
            name: "x".to_owned(),
            content: String::new(),
            images: Vec::new(),
        }];
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
