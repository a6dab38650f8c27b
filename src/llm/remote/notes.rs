//! What a stream told, for tests.

use std::sync::Mutex;

use crate::llm::{Delta, DeltaSink};

/// Writes down what it is told.
#[derive(Default)]
pub struct Notes(pub Mutex<String>);

impl DeltaSink for Notes {
    fn delta(&self, delta: Delta<'_>) {
        let note = match delta {
            Delta::Text(text) => text.to_owned(),
            Delta::Reasoning(text) => format!("({text})"),
            Delta::ToolCall { id, name } => format!("<{name} {id}>"),
            Delta::Restart => "<restart>".to_owned(),
        };
        self.0.lock().unwrap().push_str(&note);
    }
}
