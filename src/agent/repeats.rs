//! Notices a model that makes the same call again and again and learns nothing from it.

use crate::chat::{ToolCall, repeat_note};

/// From how many times in a row on the model is told.
const TOLD_FROM: u32 = 3;

/// The last call of a turn, and how often in a row it was made with the same result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    name: String,
    arguments: String,
    result: String,
    times: u32,
}

impl Repeats {
    /// Takes a call and its result; answers what the model is told beside it.
    pub fn note(&mut self, call: &ToolCall, result: &str) -> Option<String> {
        let is_same = self.name == call.name && self.arguments == call.arguments && self.result == result;
        if is_same {
            self.times = self.times.saturating_add(1);
        } else {
            let (name, arguments) = (call.name.clone(), call.arguments.clone());
            *self = Self { name, arguments, result: result.to_owned(), times: 1 };
        }
        (self.times >= TOLD_FROM).then(|| repeat_note(self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_again_is_told() {
        let mut repeats = Repeats::default();
        for (name, arguments, result, told) in [
            ("list_dir", "{}", "a", None),
            ("list_dir", "{}", "a", None),
            ("list_dir", "{}", "a", Some("3 times")),
            ("list_dir", "{}", "a", Some("4 times")),
            ("list_dir", "{}", "b", None),
            ("list_dir", "{}", "a", None),
            ("list_dir", "{\"path\":\".\"}", "a", None),
            ("read_file", "{\"path\":\".\"}", "a", None),
            ("read_file", "{\"path\":\".\"}", "a", None),
            ("read_file", "{\"path\":\".\"}", "a", Some("3 times")),
        ] {
            let call = ToolCall { id: "x".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
            let note = repeats.note(&call, result);
            let fits = note.as_deref().map_or(told.is_none(), |note| told.is_some_and(|told| note.contains(told)));
            assert!(fits, "{name} {arguments} {result}: {note:?}");
        }
    }
}
