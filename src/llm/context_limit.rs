//! Reads the context length of a model from a service's refusal.

/// The phrases of services before the number.
const BEFORE: [&str; 9] = [
    // OpenAI, vLLM: "This model's maximum context length is 8192 tokens."
    "context length is ", "context length of ", "context window of ",
    // llama.cpp: "the request exceeds the available context size (4096 tokens)".
    "context size (", "context size of ",
    // Anthropic: "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000".
    // Anthropic: "prompt is too long: 209000 tokens > 200000 maximum".
    " > ",              // Gemini: "exceeds the maximum number of tokens allowed (1048576)".
    "tokens allowed (", // DashScope: "Range of input length should be [1, 6000]".
    "input length should be [1, ", "context limit of ",
];

/// The least number that counts as a context length.
const LEAST: u32 = 512;

/// Returns the context length in tokens that a refusal names.
pub fn context_limit_in(refusal: &str) -> Option<u32> {
    let words = refusal.to_lowercase();
    BEFORE.iter().find_map(|before| {
        let at = words.find(before)? + before.len();
        let number: String =
            words[at..].chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
        number.parse().ok().filter(|limit| *limit >= LEAST)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_lengths_are_read_from_refusals_of_many_services() {
        for (words, limit) in [
            (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001.",
                Some(8_192),
            ),
            ("'max_tokens' is too large: 9000. This model's maximum context length is 4,096 tokens", Some(4_096)),
            ("prompt is too long: 209000 tokens > 200000 maximum", Some(200_000)),
            ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", Some(200_000)),
            ("the request exceeds the available context size (4096 tokens), try increasing it", Some(4_096)),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
            ),
            ("Range of input length should be [1, 6000]", Some(6_000)),
            ("context_length_exceeded: shorten it", None),
            ("maximum context length is 7", None),
        ] {
            assert_eq!(context_limit_in(words), limit, "{words}");
        }
    }
}
