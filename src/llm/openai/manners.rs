//! How one model at one service wants to be asked, and what its refusals say of that. No IO.

use serde_json::Value;

use crate::llm::{ReasoningMode, ToolMode};

/// How one model wants to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::llm) struct Manners {
    /// How the longest answer is called; `None`: it is not told.
    pub limit: Option<LimitField>,
    pub temperature: bool,
    pub stream: bool,
    pub stream_options: bool,
    pub tools: ToolForm,
    pub reasoning: Echo,
    /// Calls without the service's signature bear the mark that stands for one.
    pub marks_calls: bool,
    /// `max_completion_tokens` and `max_tokens` have both been tried.
    pub limit_changed: bool,
}

/// How a service calls the longest answer: OpenAI's newer models refuse the old name, most others know no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitField {
    MaxTokens,
    MaxCompletionTokens,
}

/// In which form tools and their calls are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::llm) enum ToolForm {
    Tools,
    /// As servers took them before there were tools: one call an answer, without an id.
    Functions,
    /// No tools, and calls of earlier answers in words.
    Words,
}

/// What a model is told of what it thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// What it sent, as it sent it.
    AsSent,
    /// Each answer with calls has it, under this name; where it is not known, a blank stands for it.
    Always(ReasoningField),
    Never,
}

/// The names by which services call what a model thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningField {
    Content,
    Plain,
    Details,
}

impl ReasoningField {
    pub(in crate::llm) const ALL: [Self; 3] = [Self::Content, Self::Details, Self::Plain];

    pub(in crate::llm) fn name(self) -> &'static str {
        match self {
            Self::Content => "reasoning_content",
            Self::Plain => "reasoning",
            Self::Details => "reasoning_details",
        }
    }

    pub(in crate::llm) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// What the configuration settles, so that no refusal changes it.
#[derive(Clone, Copy, Debug)]
pub(in crate::llm) struct Settled {
    pub reasoning: ReasoningMode,
    pub tools: ToolMode,
}

impl Manners {
    /// What is tried first: `settled`, and else what is known of the service.
    pub(in crate::llm) fn first(settled: Settled, limit: LimitField, echo: Echo) -> Self {
        let reasoning = match (settled.reasoning, echo) {
            (ReasoningMode::Echo, Echo::Never) => Echo::AsSent,
            (ReasoningMode::Auto | ReasoningMode::Echo, echo) => echo,
            (ReasoningMode::Omit, _) => Echo::Never,
        };
        let tools = match settled.tools {
            ToolMode::Auto | ToolMode::Tools => ToolForm::Tools,
            ToolMode::Functions => ToolForm::Functions,
            ToolMode::None => ToolForm::Words,
        };
        Self {
            limit: Some(limit),
            temperature: true,
            stream: true,
            stream_options: true,
            tools,
            reasoning,
            marks_calls: false,
            limit_changed: false,
        }
    }

    /// Learns from the refusal of a request whose body was `sent`; what, in words, or `None` if nothing.
    pub(in crate::llm) fn learn(&mut self, settled: Settled, sent: &Value, refusal: &str) -> Option<&'static str> {
        let words = Words::of(refusal);
        let before = self.clone();
        let learned = self
            .learn_signatures(&words)
            .or_else(|| self.learn_reasoning(settled.reasoning, sent, &words))
            .or_else(|| self.learn_tools(settled.tools, sent, &words))
            .or_else(|| self.learn_parameter(sent, &words));
        learned.filter(|_| *self != before)
    }

    fn learn_signatures(&mut self, words: &Words) -> Option<&'static str> {
        // Gemini: "Function call is missing a thought_signature in functionCall parts."
        words.place("thought_signature")?;
        self.marks_calls = true;
        Some("a mark for calls without a signature")
    }

    fn learn_reasoning(&mut self, mode: ReasoningMode, sent: &Value, words: &Words) -> Option<&'static str> {
        let field = ReasoningField::ALL.into_iter().find(|field| words.place(field.name()).is_some())?;
        let was_sent = messages(sent).any(|message| {
            ReasoningField::ALL.iter().any(|field| message.get(field.name()).is_some_and(|value| !value.is_null()))
        });
        let is_wanted = words.any(WANTED) && !words.any(UNKNOWN);
        match mode {
            ReasoningMode::Auto if was_sent && !is_wanted => {
                self.reasoning = Echo::Never;
                Some("without its earlier reasoning")
            }
            ReasoningMode::Auto | ReasoningMode::Echo if is_wanted => {
                self.reasoning = Echo::Always(field);
                Some("with its earlier reasoning, or a blank for it")
            }
            _ => None,
        }
    }

    fn learn_tools(&mut self, mode: ToolMode, sent: &Value, words: &Words) -> Option<&'static str> {
        if mode != ToolMode::Auto {
            return None;
        }
        const NEW: [&str; 4] = ["tools", "tool_choice", "tool_calls", "tool_call_id"];
        const OLD: [&str; 3] = ["functions", "function_call", "function"];
        let names = |names: &[&str]| names.iter().any(|name| words.place(name).is_some());
        let of_tools = self.tools == ToolForm::Tools && names(&NEW) && words.any(UNKNOWN);
        let of_functions = self.tools == ToolForm::Functions && names(&OLD) && words.any(UNKNOWN);
        // A conversation with calls in it can be refused although no tool is told.
        let is_about_tools = sent.get("tools").or(sent.get("functions")).is_some() || of_tools || of_functions;
        if is_about_tools && (words.any(NO_TOOLS) || of_functions) {
            self.tools = ToolForm::Words;
            Some("without tools")
        } else if is_about_tools && of_tools {
            self.tools = ToolForm::Functions;
            Some("with functions instead of tools")
        } else {
            None
        }
    }

    fn learn_parameter(&mut self, sent: &Value, words: &Words) -> Option<&'static str> {
        const PARAMETERS: [&str; 5] =
            ["temperature", "max_tokens", "max_completion_tokens", "stream_options", "stream"];
        let named = PARAMETERS.into_iter().filter(|name| sent.get(name).is_some());
        let (_, first) = named.filter_map(|name| Some((words.place(name)?, name))).min()?;
        match first {
            "temperature" => {
                self.temperature = false;
                Some("without temperature")
            }
            "stream_options" => {
                self.stream_options = false;
                Some("without stream_options")
            }
            "stream" if words.any(UNKNOWN) => {
                self.stream = false;
                Some("without stream")
            }
            "stream" => None,
            _ => Some(self.learn_limit(words)),
        }
    }

    /// Another name may do where the name is refused, and none where the number is.
    fn learn_limit(&mut self, words: &Words) -> &'static str {
        let other = match self.limit {
            Some(LimitField::MaxTokens) => {
                Some((LimitField::MaxCompletionTokens, "max_completion_tokens for max_tokens"))
            }
            Some(LimitField::MaxCompletionTokens) => {
                Some((LimitField::MaxTokens, "max_tokens for max_completion_tokens"))
            }
            None => None,
        };
        match other.filter(|_| !self.limit_changed && words.any(UNKNOWN)) {
            Some((limit, learned)) => {
                (self.limit, self.limit_changed) = (Some(limit), true);
                learned
            }
            None => {
                self.limit = None;
                "without a limit of the answer's length"
            }
        }
    }
}

/// How services say that they do not know a part of a request, or do not take it.
const UNKNOWN: &[&str] = &[
    "not support",
    "n't support",
    "unsupported",
    "unknown",
    "unrecognized",
    "unrecognised",
    "not permitted",
    "not allowed",
    "unexpected",
    "extra_forbidden",
    "additional propert",
    "is not one of",
];

/// How services say that they want a part that is missing.
const WANTED: &[&str] =
    &["missing", "required", "must be", "must have", "must include", "must contain", "should be passed", "need to be"];

/// How services say that a model takes no tools at all, without the quotes.
const NO_TOOLS: &[&str] = &[
    "not support tool",
    "n't support tool",
    "not support function",
    "n't support function",
    "that support tool",
    "tools are not supported",
    "tools is not supported",
    "tool use is not supported",
    "tool calls are not supported",
    "tool calling is not supported",
    "function calling is not supported",
    "function calling is not enabled",
    // vLLM and llama.cpp, started without the switch.
    "requires --enable-auto-tool-choice",
    "tools param requires --jinja",
];

/// What a service said, made alike for reading: lower case, no quotes.
struct Words(String);

impl Words {
    fn of(refusal: &str) -> Self {
        // Pydantic repeats what it was sent, with every name that stands in it.
        let end = ["\"input\"", "'input'"].iter().filter_map(|mark| refusal.find(mark)).min();
        let said = &refusal[..end.unwrap_or(refusal.len())];
        Self(said.to_lowercase().replace(['\'', '"', '`'], ""))
    }

    fn any(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.0.contains(phrase))
    }

    /// Where a name stands as a word of its own; `tools[0].function` is not about `tools`.
    fn place(&self, name: &str) -> Option<usize> {
        let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
        self.0.match_indices(name).map(|(at, _)| at).find(|at| {
            let (before, after) = (&self.0[..*at], &self.0[at + name.len()..]);
            let goes_on = after.starts_with('[') || after.starts_with(".0") || after.starts_with(is_part);
            !before.ends_with(is_part) && !goes_on
        })
    }
}

fn messages(sent: &Value) -> impl Iterator<Item = &Value> {
    sent["messages"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AUTO: Settled = Settled { reasoning: ReasoningMode::Auto, tools: ToolMode::Auto };

    fn sent() -> Value {
        json!({"model": "m", "temperature": 0.5, "max_tokens": 9, "stream": true, "stream_options": {}, "tools": [{}],
            "messages": [{"role": "assistant", "reasoning_content": "hm", "tool_calls": []}]})
    }

    fn first() -> Manners {
        Manners::first(AUTO, LimitField::MaxTokens, Echo::AsSent)
    }

    /// What is learned from refusals of [`sent`], as services word them.
    #[test]
    fn refusals_and_what_they_teach() {
        let reasoning = "without its earlier reasoning";
        let blank = "with its earlier reasoning, or a blank for it";
        let table = [
            ("Unsupported value: 'temperature' does not support 0.5 with this model.", Some("without temperature")),
            ("Invalid request. (temperature)", Some("without temperature")),
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                Some("max_completion_tokens for max_tokens"),
            ),
            ("max_tokens is too large: 9. This model supports 8.", Some("without a limit of the answer's length")),
            (
                r#"[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"temperature":1}}]"#,
                Some("without stream_options"),
            ),
            ("stream is not supported by this model", Some("without stream")),
            ("the stream broke", None),
            ("registry.ollama.ai/library/gemma3:4b does not support tools", Some("without tools")),
            ("No endpoints found that support tool use.", Some("without tools")),
            (
                "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
                Some("without tools"),
            ),
            ("tools param requires --jinja flag", Some("without tools")),
            ("`tools` is not supported with this model", Some("without tools")),
            ("Unrecognized request argument supplied: tools", Some("with functions instead of tools")),
            ("tools[0].function.parameters: 'oneOf' is not supported", None),
            ("Invalid schema for function 'grep': 'oneOf' is not permitted.", None),
            (
                "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property \
                'reasoning_content' is unsupported)]",
                Some(reasoning),
            ),
            ("The `reasoning_content` in the thinking mode must be passed back to the API.", Some(blank)),
            (
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
                Some(blank),
            ),
            ("reasoning_content: bad", Some(reasoning)),
            (
                "Function call is missing a thought_signature in functionCall parts.",
                Some("a mark for calls without a signature"),
            ),
            ("The model `m` does not exist", None),
            ("messages with role 'tool' must follow", None),
        ];
        for (refusal, learned) in table {
            assert_eq!(first().learn(AUTO, &sent(), refusal), learned, "{refusal}");
        }
    }

    #[test]
    fn the_same_is_learned_once_and_each_way_is_tried() {
        let unknown = |name: &str| format!("Unknown parameter: '{name}'");
        let mut manners = first();
        assert!(manners.learn(AUTO, &sent(), &unknown("temperature")).is_some());
        assert_eq!(manners.learn(AUTO, &sent(), &unknown("temperature")), None);
        for (name, limit) in [("max_tokens", Some(LimitField::MaxCompletionTokens)), ("max_completion_tokens", None)] {
            manners.learn(AUTO, &json!({ name: 9 }), &unknown(name));
            assert_eq!(manners.limit, limit);
        }
        for (name, form) in [("tools", ToolForm::Functions), ("functions", ToolForm::Words)] {
            manners.learn(AUTO, &json!({ name: [{}] }), &unknown(name));
            assert_eq!(manners.tools, form);
        }
    }

    #[test]
    fn what_was_not_sent_or_is_settled_is_not_learned() {
        let settled = Settled { reasoning: ReasoningMode::Omit, tools: ToolMode::Tools };
        for (sent, refusal) in [
            (json!({"messages": []}), "Unknown parameter: 'temperature'"),
            (json!({"messages": []}), "reasoning_content is unsupported"),
            (sent(), "Missing `reasoning_content` field"),
            (sent(), "it does not support tools"),
        ] {
            assert_eq!(first().learn(settled, &sent, refusal), None, "{refusal}");
        }
        use ReasoningMode::{Auto, Echo as Send, Omit};
        let always = Echo::Always(ReasoningField::Content);
        for (mode, known, first) in [
            (Auto, always, always),
            (Auto, Echo::Never, Echo::Never),
            (Send, Echo::Never, Echo::AsSent),
            (Send, always, always),
            (Omit, always, Echo::Never),
        ] {
            let settled = Settled { reasoning: mode, tools: ToolMode::Auto };
            assert_eq!(Manners::first(settled, LimitField::MaxTokens, known).reasoning, first, "{mode:?} {known:?}");
        }
    }
}
