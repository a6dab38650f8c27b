//! Converts the events of a turn into additions to a streamed answer.

use std::collections::HashSet;
use std::ops::Range;

use crate::event::TurnEvent;

/// The maximum number of characters of a tool's arguments in the output.
const MAX_ARGUMENTS: usize = 200;
/// The tags that end thinking. If the template of a model opens the block itself, the thinking is known as such only after the whole
/// response: the response restarts, and repeats what followed the tag.
const THINKING_ENDS: [&str; 2] = ["</think>", "</thinking>"];

/// The next part of a streamed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApiDelta {
    Text(String),
    /// The model's reasoning, and the activity of tools.
    Reasoning(String),
}

/// The part of an answer that the client already has.
#[derive(Debug, Default)]
pub(super) struct AnswerProgress {
    text: String,
    /// The position in `text` where the response that is being streamed begins.
    response: usize,
    /// The position in `text` of what the restarted response has repeated. It starts after the thinking of the discarded response.
    repeated: Option<Range<usize>>,
    /// The ids of the calls that were shown. A turn that continues after a wait reports its open calls again.
    calls: HashSet<String>,
    wants_reasoning: bool,
    ignores_text: bool,
}

impl AnswerProgress {
    /// Creates the empty progress. With `ignores_text`, the text comes with the reply alone.
    pub fn new(wants_reasoning: bool, ignores_text: bool) -> Self {
        Self { wants_reasoning, ignores_text, ..Self::default() }
    }

    /// Records an event of the turn and returns what it adds to the answer.
    pub fn apply(&mut self, event: &TurnEvent) -> Option<ApiDelta> {
        match event {
            TurnEvent::Text { .. } if self.ignores_text => None,
            TurnEvent::Text { delta } => self.add_text(delta),
            TurnEvent::Thinking { delta } => self.reasoning(delta.clone()),
            TurnEvent::ToolCall { id, name, arguments: Some(arguments), args_complete: true } => {
                self.end_response();
                if !self.calls.insert(id.clone()) {
                    return None;
                }
                let arguments: String = arguments.to_string().chars().take(MAX_ARGUMENTS).collect();
                self.reasoning(format!("\n[{name} {arguments}]\n"))
            }
            TurnEvent::ToolResult { name, success, duration_ms, .. } => {
                self.end_response();
                let outcome = if *success { "done" } else { "failed" };
                self.reasoning(format!("[{name}: {outcome}, {duration_ms} ms]\n"))
            }
            // A turn that waited for its model starts again, and so does the response that it has lost.
            TurnEvent::Restart | TurnEvent::Started => {
                let discarded = &self.text[self.response..];
                let thinking = THINKING_ENDS.iter().filter_map(|tag| Some(discarded.find(tag)? + tag.len())).min();
                // A response can restart again before it has differed from the discarded one.
                let again = self.repeated.as_ref().map(|repeated| repeated.start);
                let answer = again.unwrap_or(self.response + thinking.unwrap_or(0));
                self.end_response();
                self.repeated = Some(answer..answer);
                None
            }
            TurnEvent::ToolCall { .. } | TurnEvent::Usage { .. } | TurnEvent::Done { .. } | TurnEvent::Error { .. } => {
                None
            }
        }
    }

    /// Adds the text of a response. Text after a tool call, or after a restart of the response, begins a new paragraph, unless the
    /// client already has it.
    fn add_text(&mut self, delta: &str) -> Option<ApiDelta> {
        let mut start = "";
        if let Some(repeated) = &mut self.repeated {
            if self.text[repeated.end..].starts_with(delta) {
                repeated.end += delta.len();
                self.response = repeated.start;
                return None;
            }
            let known = &self.text[repeated.end..];
            if let Some(rest) = delta.strip_prefix(known).filter(|_| !known.is_empty()) {
                self.response = repeated.start;
                self.repeated = None;
                self.text.push_str(rest);
                return Some(ApiDelta::Text(rest.to_owned()));
            }
            if !known.is_empty() {
                // The response differs from the discarded one, so the held-back text is shown as well.
                start = &self.text[repeated.clone()];
                self.response = self.text.len();
            }
        }
        let gap = if self.response == self.text.len() { self.gap() } else { "" };
        let delta = format!("{gap}{start}{delta}");
        self.text.push_str(&delta);
        self.response += gap.len();
        self.repeated = None;
        Some(ApiDelta::Text(delta))
    }

    fn end_response(&mut self) {
        self.response = self.text.len();
        self.repeated = None;
    }

    fn gap(&self) -> &'static str {
        if self.text.is_empty() { "" } else { "\n\n" }
    }

    fn reasoning(&self, delta: String) -> Option<ApiDelta> {
        self.wants_reasoning.then_some(ApiDelta::Reasoning(delta))
    }

    /// Adds `text` as a separate paragraph.
    pub fn paragraph(&mut self, text: &str) -> ApiDelta {
        let delta = format!("{}{}", self.gap(), text.trim_end());
        self.text.push_str(&delta);
        self.end_response();
        ApiDelta::Text(delta)
    }

    /// Returns the part of the reply that the stream lacks. Events can be lost; the reply cannot.
    pub fn complete(&mut self, reply: &str) -> Option<ApiDelta> {
        let shown = self.text[self.response..].trim();
        let before = self.text.trim_end().strip_suffix(reply);
        let is_last_paragraph = before.is_some_and(|before| before.is_empty() || before.ends_with('\n'));
        if reply.is_empty() || shown.ends_with(reply) || is_last_paragraph {
            return None;
        }
        match reply.strip_prefix(shown).filter(|_| !shown.is_empty()) {
            Some(rest) => {
                self.text.push_str(rest);
                Some(ApiDelta::Text(rest.to_owned()))
            }
            None => Some(self.paragraph(reply)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(delta: &str) -> TurnEvent {
        TurnEvent::Text { delta: delta.to_owned() }
    }

    fn shown(events: &[TurnEvent], reply: &str) -> String {
        let mut progress = AnswerProgress::new(false, false);
        let mut deltas: Vec<_> = events.iter().filter_map(|event| progress.apply(event)).collect();
        deltas.extend(progress.complete(reply));
        let texts = deltas.into_iter().map(|delta| match delta {
            ApiDelta::Text(text) => text,
            ApiDelta::Reasoning(text) => panic!("{text}"),
        });
        texts.collect()
    }

    #[test]
    fn the_stream_ends_with_the_whole_reply_whatever_was_lost() {
        let result = TurnEvent::ToolResult {
            id: "a".into(),
            name: "f".into(),
            content: String::new(),
            success: true,
            duration_ms: 1,
        };
        for (events, reply, expected) in [
            (&[text("Hel"), text("lo.")][..], "Hello.", "Hello."),
            (&[text("Hel")], "Hello.", "Hello."),
            (&[], "Hello.", "Hello."),
            (&[text("lo.")], "Hello.", "lo.\n\nHello."),
            (&[text("I look."), result.clone(), text("Found"), text(" it.")], "Found it.", "I look.\n\nFound it."),
            (&[text("I look."), result.clone(), text("Fou")], "Found it.", "I look.\n\nFound it."),
            (&[text("I look."), result.clone()], "Found it.", "I look.\n\nFound it."),
            (&[text("Found it."), result.clone()], "Found it.", "Found it."),
            (
                &[text("I look."), result.clone(), text("Found"), TurnEvent::Restart, text("Found it.")],
                "Found it.",
                "I look.\n\nFound it.",
            ),
            // The end of an earlier paragraph is not the reply.
            (&[text("In 2024"), result], "4", "In 2024\n\n4"),
            (&[text("Void"), TurnEvent::Restart, text("Valid.")], "Valid.", "Void\n\nValid."),
            (
                &[text("Void"), TurnEvent::Restart, text("Val"), TurnEvent::Restart, text("Valid.")],
                "Valid.",
                "Void\n\nValid.",
            ),
            // A service broke off, and the retry repeats the beginning.
            (&[text("Hello wor"), TurnEvent::Restart, text("Hello world.")], "Hello world.", "Hello world."),
            (&[text("Hello wor"), TurnEvent::Started, text("Hello"), text(" world.")], "Hello world.", "Hello world."),
            (
                &[text("Hello wor"), TurnEvent::Restart, text("Hello "), TurnEvent::Restart, text("Hello world.")],
                "Hello world.",
                "Hello world.",
            ),
            (
                &[text("Hello wor"), TurnEvent::Restart, text("Hello "), text("you.")],
                "Hello you.",
                "Hello wor\n\nHello you.",
            ),
            (&[text("Hel"), TurnEvent::Restart, TurnEvent::Started, text("Hello")], "Hello", "Hello"),
            (&[text("Hello"), TurnEvent::Restart, text("Hello")], "Hello", "Hello"),
            (&[text("All.")], "", "All."),
            // A model whose template opens its think block.
            (
                &[text("hm\n</think>"), text("\n\nVa"), text("lid."), TurnEvent::Restart, text("\n\nValid.")],
                "Valid.",
                "hm\n</think>\n\nValid.",
            ),
            (&[text("hm\n</think>Va"), TurnEvent::Restart, text("Va"), text("lid.")], "Valid.", "hm\n</think>Valid."),
            (&[text("hm\n</think>Valid.\n"), TurnEvent::Restart, text("Valid.")], "Valid.", "hm\n</think>Valid.\n"),
            (
                &[text("hm\n</think>Valley"), TurnEvent::Restart, text("Val"), text("id.")],
                "Valid.",
                "hm\n</think>Valley\n\nValid.",
            ),
            (&[text("hm\n</think>"), TurnEvent::Restart, text("Valid.")], "Valid.", "hm\n</think>\n\nValid."),
        ] {
            assert_eq!(shown(events, reply), expected);
        }
    }

    #[test]
    fn thinking_and_tools_are_shown_on_request() {
        let call = TurnEvent::ToolCall {
            id: "a".into(),
            name: "exec".into(),
            arguments: Some(json!({"command": "x".repeat(500)})),
            args_complete: true,
        };
        let mut progress = AnswerProgress::new(true, false);
        let Some(ApiDelta::Reasoning(shown)) = progress.apply(&call) else { panic!() };
        assert!(shown.starts_with("\n[exec {\"command\":\"xxx") && shown.len() < 250, "{shown}");
        assert_eq!(progress.apply(&call), None, "a call is shown once");
        let thinking = TurnEvent::Thinking { delta: "hm".into() };
        assert_eq!(progress.apply(&thinking), Some(ApiDelta::Reasoning("hm".into())));
        assert_eq!(AnswerProgress::new(false, false).apply(&thinking), None);
    }

    #[test]
    fn messages_before_the_reply_are_paragraphs() {
        let mut progress = AnswerProgress::new(false, false);
        assert_eq!(progress.apply(&text("One.")), Some(ApiDelta::Text("One.".into())));
        assert_eq!(progress.paragraph("two\n"), ApiDelta::Text("\n\ntwo".into()));
        assert_eq!(progress.apply(&text("Three.")), Some(ApiDelta::Text("\n\nThree.".into())));
        assert_eq!(progress.complete("Three."), None);
    }
}
