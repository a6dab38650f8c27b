//! The request parameters that one model at one service accepts, and what its refusals teach about them. No IO.

use serde_json::Value;
use strum::VariantArray;

use crate::llm::{ReasoningMode, ToolMode};

/// The form of requests that one model accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::llm) struct Quirks {
    /// The field for the longest answer; `None` if no such field is sent.
    pub limit: Option<LimitField>,
    pub temperature: bool,
    pub stream: bool,
    pub stream_options: bool,
    pub tools: ToolForm,
    pub reasoning: ReasoningEcho,
    /// True if calls without the service's signature get a placeholder for it.
    pub marks_calls: bool,
    /// True if `max_completion_tokens` and `max_tokens` have both been tried.
    pub limit_changed: bool,
}

/// The field for the longest answer. OpenAI's newer models refuse the old name; most other services know only the old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitField {
    MaxTokens,
    MaxCompletionTokens,
}

/// The form of tools and their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::llm) enum ToolForm {
    Tools,
    /// The form from before the protocol had tools: one call per answer, without an id.
    Functions,
    /// No tools; calls of earlier answers are written as text.
    Words,
}

/// The reasoning that is sent back to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningEcho {
    /// The model's own reasoning, unchanged.
    AsSent,
    /// Reasoning in this field for each answer with calls; a blank if the reasoning is unknown.
    Always(ReasoningField),
    Never,
}

/// The fields in which services send reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
pub enum ReasoningField {
    #[strum(serialize = "reasoning_content")]
    Content,
    #[strum(serialize = "reasoning_details")]
    Details,
    #[strum(serialize = "reasoning")]
    Plain,
}

impl ReasoningField {
    pub(in crate::llm) fn name(self) -> &'static str {
        self.into()
    }
}

/// The settings that the configuration fixes, so that no refusal changes them.
#[derive(Clone, Copy, Debug)]
pub(in crate::llm) struct FixedQuirks {
    pub reasoning: ReasoningMode,
    pub tools: ToolMode,
}

impl Quirks {
    /// Returns the quirks of the first request: the `settled` values, and otherwise those of the known service.
    pub(in crate::llm) fn first(settled: FixedQuirks, limit: LimitField, echo: ReasoningEcho) -> Self {
        let reasoning = match (settled.reasoning, echo) {
            (ReasoningMode::Echo, ReasoningEcho::Never) => ReasoningEcho::AsSent,
            (ReasoningMode::Auto | ReasoningMode::Echo, echo) => echo,
            (ReasoningMode::Omit, _) => ReasoningEcho::Never,
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

    /// Learns from the refusal of a request whose body was `sent`; returns a description of the lesson, or `None` if nothing
    /// was learned.
    pub(in crate::llm) fn learn(&mut self, settled: FixedQuirks, sent: &Value, refusal: &str) -> Option<&'static str> {
        let words = RefusalText::of(refusal);
        let before = *self;
        let learned = self
            .learn_signatures(&words)
            .or_else(|| self.learn_reasoning(settled.reasoning, sent, &words))
            .or_else(|| self.learn_tools(settled.tools, sent, &words))
            .or_else(|| self.learn_parameter(sent, &words));
        learned.filter(|_| *self != before)
    }

    fn learn_signatures(&mut self, words: &RefusalText) -> Option<&'static str> {
        // Gemini: "Function call is missing a thought_signature in functionCall parts."
        words.find_word("thought_signature")?;
        self.marks_calls = true;
        Some("a mark for calls without a signature")
    }

    fn learn_reasoning(&mut self, mode: ReasoningMode, sent: &Value, words: &RefusalText) -> Option<&'static str> {
        let field = ReasoningField::VARIANTS.iter().copied().find(|field| words.find_word(field.name()).is_some())?;
        let was_sent = messages(sent).any(|message| {
            ReasoningField::VARIANTS.iter().any(|field| message.get(field.name()).is_some_and(|value| !value.is_null()))
        });
        let is_wanted = words.any(WANTED) && !words.any(UNKNOWN);
        match mode {
            ReasoningMode::Auto if was_sent && !is_wanted => {
                self.reasoning = ReasoningEcho::Never;
                Some("without its earlier reasoning")
            }
            ReasoningMode::Auto | ReasoningMode::Echo if is_wanted => {
                self.reasoning = ReasoningEcho::Always(field);
                Some("with its earlier reasoning, or a blank for it")
            }
            _ => None,
        }
    }

    fn learn_tools(&mut self, mode: ToolMode, sent: &Value, words: &RefusalText) -> Option<&'static str> {
        if mode != ToolMode::Auto {
            return None;
        }
        const NEW: [&str; 4] = ["tools", "tool_choice", "tool_calls", "tool_call_id"];
        const OLD: [&str; 3] = ["functions", "function_call", "function"];
        let names = |names: &[&str]| names.iter().any(|name| words.find_word(name).is_some());
        let of_tools = self.tools == ToolForm::Tools && names(&NEW) && words.any(UNKNOWN);
        let of_functions = self.tools == ToolForm::Functions && names(&OLD) && words.any(UNKNOWN);
        // A service may refuse a conversation with calls even if the request defines no tools.
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

    fn learn_parameter(&mut self, sent: &Value, words: &RefusalText) -> Option<&'static str> {
        const PARAMETERS: [&str; 5] =
            ["temperature", "max_tokens", "max_completion_tokens", "stream_options", "stream"];
        let named = PARAMETERS.into_iter().filter(|name| sent.get(name).is_some());
        let (_, first) = named.filter_map(|name| Some((words.find_word(name)?, name))).min()?;
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

    /// Learns from a refusal of the length limit: if the field is refused, the other name may be accepted; if the value is
    /// refused, no limit is sent.
    fn learn_limit(&mut self, words: &RefusalText) -> &'static str {
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

/// Phrases of services for a part of a request that they do not know or accept.
const UNKNOWN: &[&str] = &[
    "not support", "n't support", "unsupported", "unknown", "unrecognized", "unrecognised", "not permitted",
    "not allowed", "unexpected", "extra_forbidden", "additional propert", "is not one of",
];

/// Phrases of services for a part that a request lacks.
const WANTED: &[&str] =
    &["missing", "required", "must be", "must have", "must include", "must contain", "should be passed", "need to be"];

/// Phrases of services for a model that accepts no tools at all, without quotes.
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
    // These are phrases of vLLM and llama.cpp, started without the option.
    "requires --enable-auto-tool-choice",
    "tools param requires --jinja",
];

/// The text of a refusal in lower case and without quotes.
struct RefusalText(String);

impl RefusalText {
    fn of(refusal: &str) -> Self {
        // Pydantic's error repeats the input, which contains every field name.
        let end = ["\"input\"", "'input'"].iter().filter_map(|mark| refusal.find(mark)).min();
        let text = &refusal[..end.unwrap_or(refusal.len())];
        Self(text.to_lowercase().replace(['\'', '"', '`'], ""))
    }

    fn any(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.0.contains(phrase))
    }

    /// Returns the offset at which a name is a word of its own: `tools[0].function` is not about `tools`.
    fn find_word(&self, name: &str) -> Option<usize> {
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

    const AUTO: FixedQuirks = FixedQuirks { reasoning: ReasoningMode::Auto, tools: ToolMode::Auto };

    fn sent() -> Value {
        json!({"model": "m", "temperature": 0.5, "max_tokens": 9, "stream": true, "stream_options": {}, "tools": [{}],
            "messages": [{"role": "assistant", "reasoning_content": "hm", "tool_calls": []}]})
    }

    fn first() -> Quirks {
        Quirks::first(AUTO, LimitField::MaxTokens, ReasoningEcho::AsSent)
    }

    /// The lessons from refusals of [`sent`], in the words of services.
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
    fn each_change_is_learned_once_and_each_alternative_is_tried() {
        let unknown = |name: &str| format!("Unknown parameter: '{name}'");
        let mut quirks = first();
        assert!(quirks.learn(AUTO, &sent(), &unknown("temperature")).is_some());
        assert_eq!(quirks.learn(AUTO, &sent(), &unknown("temperature")), None);
        for (name, limit) in [("max_tokens", Some(LimitField::MaxCompletionTokens)), ("max_completion_tokens", None)] {
            quirks.learn(AUTO, &json!({ name: 9 }), &unknown(name));
            assert_eq!(quirks.limit, limit);
        }
        for (name, form) in [("tools", ToolForm::Functions), ("functions", ToolForm::Words)] {
            quirks.learn(AUTO, &json!({ name: [{}] }), &unknown(name));
            assert_eq!(quirks.tools, form);
        }
    }

    #[test]
    fn nothing_is_learned_about_absent_or_configured_parts() {
        let settled = FixedQuirks { reasoning: ReasoningMode::Omit, tools: ToolMode::Tools };
        for (sent, refusal) in [
            (json!({"messages": []}), "Unknown parameter: 'temperature'"),
            (json!({"messages": []}), "reasoning_content is unsupported"),
            (sent(), "Missing `reasoning_content` field"),
            (sent(), "it does not support tools"),
        ] {
            assert_eq!(first().learn(settled, &sent, refusal), None, "{refusal}");
        }
        use ReasoningMode::{Auto, Echo as Send, Omit};
        let always = ReasoningEcho::Always(ReasoningField::Content);
        for (mode, known, first) in [
            (Auto, always, always),
            (Auto, ReasoningEcho::Never, ReasoningEcho::Never),
            (Send, ReasoningEcho::Never, ReasoningEcho::AsSent),
            (Send, always, always),
            (Omit, always, ReasoningEcho::Never),
        ] {
            let settled = FixedQuirks { reasoning: mode, tools: ToolMode::Auto };
            assert_eq!(Quirks::first(settled, LimitField::MaxTokens, known).reasoning, first, "{mode:?} {known:?}");
        }
    }
}
