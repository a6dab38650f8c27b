//! The length limits of an answer, which the service requires in each request.

use crate::llm::ModelFacts;

/// The default limit if neither the request nor the table of models gives one.
const USUAL: u32 = 8_192;
/// The smallest budget for thinking that the service accepts.
pub(in crate::llm) const LEAST_THINKING: u32 = 1_024;

/// The longest answer that a request asks for unless it sets another limit: the service subtracts it from the model's context.
const LONGEST: u32 = 64_000;

/// The lengths of a request, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestLimits {
    /// The maximum number of tokens of reasoning and answer together.
    pub max_tokens: u32,
    /// The maximum number of tokens of reasoning; `None` if the model does not reason.
    pub thinking: Option<u32>,
}

/// Returns the limits of a request. `asked` is the requested longest answer, `thinking` the budget for reasoning. The budget is
/// added to the limit if it would leave no room for the answer.
pub(super) fn limits(model: &str, asked: Option<u32>, thinking: Option<u32>) -> RequestLimits {
    let longest = longest(model);
    let answer = asked.or(longest).unwrap_or(USUAL).max(1);
    let Some(budget) = thinking else { return RequestLimits { max_tokens: answer, thinking: None } };
    let together = if answer > budget { answer } else { answer.saturating_add(budget) };
    let max_tokens = longest.map_or(together, |longest| together.min(longest.max(answer)));
    // If both do not fit, at least half is for the answer.
    let budget = if budget < max_tokens { budget } else { max_tokens / 2 };
    RequestLimits { max_tokens, thinking: Some(budget).filter(|budget| *budget >= LEAST_THINKING) }
}

fn longest(model: &str) -> Option<u32> {
    ModelFacts::known("anthropic", model).max_output_tokens.map(|tokens| tokens.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_thoughts_and_answer() {
        for (model, asked, thinking, max_tokens, budget) in [
            ("someone", None, None, 8_192, None),
            ("someone", Some(100), None, 100, None),
            ("someone", Some(0), None, 1, None),
            ("claude-sonnet-5", None, None, 64_000, None),
            ("anthropic/claude-3-haiku-20240307", None, None, 4_000, None),
            ("someone", Some(16_000), Some(10_000), 16_000, Some(10_000)),
            ("someone", Some(1_000), Some(10_000), 11_000, Some(10_000)),
            ("someone", Some(u32::MAX), Some(10_000), u32::MAX, Some(10_000)),
            ("claude-3-7-sonnet", None, Some(64_000), 64_000, Some(32_000)),
            ("claude-3-haiku-1", Some(100), Some(5_000), 4_000, Some(2_000)),
            ("claude-opus-4-20250514", Some(50_000), Some(1_024), 50_000, Some(1_024)),
        ] {
            let expected = RequestLimits { max_tokens, thinking: budget };
            assert_eq!(limits(model, asked, thinking), expected, "{model} {asked:?} {thinking:?}");
        }
    }
}
