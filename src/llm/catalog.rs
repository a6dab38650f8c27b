//! A table of known models: context length, abilities, and prices at their makers.
//!
//! The data is from the makers' own pages in November 2026 (OpenAI, Anthropic, DeepSeek), and from models.dev of 2026-07-02
//! (the others). A price is given only if it is a single number: services that charge by the hour of the day (DeepSeek) or
//! differently by region (GLM and Kimi in China) have none. The configuration can add what is missing (`providers.NAME.price`,
//! `providers.NAME.context_tokens`).

use std::borrow::Cow;

use serde::Serialize;

use super::Price;

/// The known facts about a model at its provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelFacts {
    /// The maximum number of tokens of a request and its answer together.
    pub context_tokens: Option<u32>,
    /// The longest answer, in tokens.
    pub max_output_tokens: Option<u32>,
    pub price: Option<Price>,
    /// Whether the model calls tools, takes images, and reasons before it answers.
    pub abilities: Option<ModelFeatures>,
}

/// The abilities of a model beyond text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ModelFeatures {
    pub tools: bool,
    pub vision: bool,
    pub reasoning: bool,
}

impl ModelFacts {
    /// Returns the facts about `model` at the service called `service`; `""` for an unknown service.
    pub(in crate::llm) fn known(service: &str, model: &str) -> Self {
        let Some((row, is_exact)) = find(model) else { return Self::default() };
        Self {
            context_tokens: Some(row.context * 1_000),
            max_output_tokens: Some(row.output * 1_000).filter(|tokens| *tokens > 0),
            price: row.price.clone().filter(|_| is_exact && row.maker == service),
            abilities: Some(row.abilities),
        }
    }
}

struct CatalogRow {
    /// The beginning of the model's name, in lower case, without a vendor prefix: for `deepseek-ai/DeepSeek-V4-Pro`, it is
    /// `deepseek-v4-pro`.
    name: &'static str,
    /// The service that has this price.
    maker: &'static str,
    /// The context length, in thousands of tokens, rounded down.
    context: u32,
    /// The longest answer, in thousands of tokens, rounded down; 0 if unknown.
    output: u32,
    abilities: ModelFeatures,
    /// The price. If long requests cost more, it is the price of shorter ones.
    price: Option<Price>,
}

/// Returns the row of a model, and true if the row is for exactly this model, not only for its family.
fn find(model: &str) -> Option<(&'static CatalogRow, bool)> {
    let model = model.to_lowercase();
    let model = model.rsplit('/').next().unwrap_or_default();
    let fitting = ROWS.iter().filter_map(|row| Some((row, model.strip_prefix(row.name)?)));
    let (row, rest) = fitting
        .filter(|(_, rest)| rest.is_empty() || rest.starts_with(['-', ':', '@']))
        .max_by_key(|(row, _)| row.name.len())?;
    // A suffix that is a date names a version of the same model: `-2025-08-07`, `-20250929`, `-0905`.
    let is_date = rest.starts_with('-') && rest[1..].chars().all(|char| char.is_ascii_digit() || char == '-');
    Some((row, rest.is_empty() || rest == "-latest" || (is_date && rest.len() > 4)))
}

const fn row(
    maker: &'static str,
    name: &'static str,
    context: u32,
    output: u32,
    abilities: ModelFeatures,
    price: Option<Price>,
) -> CatalogRow {
    CatalogRow { name, maker, context, output, abilities, price }
}

const fn price(input: f64, output: f64, cached: Option<f64>, currency: &'static str) -> Option<Price> {
    Some(Price { input, output, cached, cache_write: None, currency: Cow::Borrowed(currency) })
}

const fn usd(input: f64, output: f64, cached: f64) -> Option<Price> {
    price(input, output, Some(cached), "USD")
}

/// Creates a price in dollars for a model without a known discount for cached input.
const fn dollars(input: f64, output: f64) -> Option<Price> {
    price(input, output, None, "USD")
}

const fn yuan(input: f64, output: f64) -> Option<Price> {
    price(input, output, None, "CNY")
}

const fn able(tools: bool, vision: bool, reasoning: bool) -> ModelFeatures {
    ModelFeatures { tools, vision, reasoning }
}

/// The abilities tools, vision and reasoning.
const TVR: ModelFeatures = able(true, true, true);
const TV: ModelFeatures = able(true, true, false);
const TR: ModelFeatures = able(true, false, true);
const T: ModelFeatures = able(true, false, false);
const NONE: ModelFeatures = able(false, false, false);

const ROWS: &[CatalogRow] = &[
    row("openai", "gpt-6-astra", 1_050, 128, TVR, dollars(10.0, 50.0)),
    row("openai", "gpt-6.1-sol", 1_050, 128, TVR, dollars(2.0, 10.0)),
    row("openai", "gpt-6.1-terra", 1_050, 128, TVR, dollars(1.0, 5.0)),
    row("openai", "gpt-6-luna", 1_050, 128, TVR, dollars(0.1, 0.5)),
    row("openai", "gpt-5.6", 1_050, 128, TVR, None),
    row("openai", "gpt-5.5", 1_050, 128, TVR, usd(5.0, 30.0, 0.5)),
    row("openai", "gpt-5.4", 1_050, 128, TVR, usd(2.5, 15.0, 0.25)),
    row("openai", "gpt-5.4-mini", 400, 128, TVR, usd(0.75, 4.5, 0.075)),
    row("openai", "gpt-5.4-nano", 400, 128, TVR, usd(0.2, 1.25, 0.02)),
    row("openai", "gpt-5.2", 400, 128, TVR, usd(1.75, 14.0, 0.175)),
    row("openai", "gpt-5.2-chat", 128, 16, TV, None),
    row("openai", "gpt-5.1", 400, 128, TVR, usd(1.25, 10.0, 0.125)),
    row("openai", "gpt-5.1-chat", 128, 16, TVR, None),
    row("openai", "gpt-5", 400, 128, TVR, usd(1.25, 10.0, 0.125)),
    row("openai", "gpt-5-mini", 400, 128, TVR, usd(0.25, 2.0, 0.025)),
    row("openai", "gpt-5-nano", 400, 128, TVR, usd(0.05, 0.4, 0.005)),
    row("openai", "o3", 200, 100, TVR, usd(2.0, 8.0, 0.5)),
    row("openai", "o4-mini", 200, 100, TVR, usd(1.1, 4.4, 0.275)),
    row("openai", "gpt-4.1", 1_047, 32, TV, usd(2.0, 8.0, 0.5)),
    row("openai", "gpt-4.1-mini", 1_047, 32, TV, usd(0.4, 1.6, 0.1)),
    row("openai", "gpt-4.1-nano", 1_047, 32, TV, usd(0.1, 0.4, 0.025)),
    row("openai", "gpt-4o", 128, 16, TV, usd(2.5, 10.0, 1.25)),
    row("openai", "gpt-4o-2024-05-13", 128, 4, TV, dollars(5.0, 15.0)),
    row("openai", "gpt-4o-mini", 128, 16, TV, usd(0.15, 0.6, 0.075)),
    row("openai", "gpt-3.5-turbo", 16, 4, T, dollars(0.5, 1.5)),
    row("", "gpt-oss", 131, 0, TR, None),
    row("groq", "gpt-oss-120b", 131, 65, TR, usd(0.15, 0.6, 0.075)),
    row("groq", "gpt-oss-20b", 131, 65, TR, usd(0.075, 0.3, 0.0375)),
    row("anthropic", "claude-3-opus", 200, 4, TV, None),
    row("anthropic", "claude-3-sonnet", 200, 4, TV, None),
    row("anthropic", "claude-3-haiku", 200, 4, TV, None),
    row("anthropic", "claude-3-5", 200, 8, TV, None),
    row("anthropic", "claude-3-7", 200, 64, TVR, None),
    row("anthropic", "claude-opus-4", 200, 32, TVR, None),
    row("anthropic", "claude-sonnet-4", 200, 64, TVR, None),
    row("anthropic", "claude-haiku-4", 200, 64, TVR, None),
    row("anthropic", "claude-fable-5", 1_000, 128, TVR, usd(10.0, 50.0, 1.0)),
    row("anthropic", "claude-opus-5", 1_000, 128, TVR, usd(5.0, 25.0, 0.5)),
    row("anthropic", "claude-sonnet-5", 1_000, 128, TVR, usd(2.0, 10.0, 0.2)),
    row("anthropic", "claude-opus-4-6", 1_000, 128, TVR, usd(5.0, 25.0, 0.5)),
    row("anthropic", "claude-opus-4-7", 1_000, 128, TVR, usd(5.0, 25.0, 0.5)),
    row("anthropic", "claude-opus-4-8", 1_000, 128, TVR, usd(5.0, 25.0, 0.5)),
    row("anthropic", "claude-sonnet-4-6", 1_000, 64, TVR, usd(3.0, 15.0, 0.3)),
    row("anthropic", "claude-opus-4-5", 200, 64, TVR, usd(5.0, 25.0, 0.5)),
    row("anthropic", "claude-opus-4-1", 200, 32, TVR, usd(15.0, 75.0, 1.5)),
    row("anthropic", "claude-sonnet-4-5", 200, 64, TVR, usd(3.0, 15.0, 0.3)),
    row("anthropic", "claude-haiku-4-5", 200, 64, TVR, usd(1.0, 5.0, 0.1)),
    row("", "deepseek-v4", 1_000, 384, TR, None),
    row("", "deepseek-flash", 1_000, 384, TVR, None),
    row("", "deepseek-v3.2", 131, 0, TR, None),
    row("gemini", "gemini-3.5-flash", 1_048, 65, TVR, usd(1.5, 9.0, 0.15)),
    row("gemini", "gemini-3.1-pro", 1_048, 65, TVR, None),
    row("gemini", "gemini-3.1-pro-preview", 1_048, 65, TVR, usd(2.0, 12.0, 0.2)),
    row("gemini", "gemini-3.1-flash-lite", 1_048, 65, TVR, usd(0.25, 1.5, 0.025)),
    row("gemini", "gemini-3-flash-preview", 1_048, 65, TVR, usd(0.5, 3.0, 0.05)),
    row("gemini", "gemini-2.5-pro", 1_048, 65, TVR, usd(1.25, 10.0, 0.125)),
    row("gemini", "gemini-2.5-flash", 1_048, 65, TVR, usd(0.3, 2.5, 0.03)),
    row("gemini", "gemini-2.5-flash-lite", 1_048, 65, TVR, usd(0.1, 0.4, 0.01)),
    row("", "gemini-flash", 1_048, 65, TVR, None),
    row("", "kimi-k2.7-code", 262, 262, TVR, None),
    row("", "kimi-k2.6", 262, 262, TVR, None),
    row("", "kimi-k2.5", 262, 262, TVR, None),
    row("", "kimi-k2-thinking", 262, 262, TR, None),
    row("zai", "glm-5.2", 1_000, 131, TR, usd(1.4, 4.4, 0.26)),
    row("zai", "glm-5.1", 200, 131, TR, usd(1.4, 4.4, 0.26)),
    row("zai", "glm-5", 204, 131, TR, usd(1.0, 3.2, 0.2)),
    row("zai", "glm-4.7", 200, 131, TR, usd(0.6, 2.2, 0.11)),
    row("zai", "glm-4.6", 200, 131, TR, usd(0.6, 2.2, 0.11)),
    row("zai", "glm-4.5", 131, 98, TR, usd(0.6, 2.2, 0.11)),
    row("", "qwen3.7-max", 1_000, 65, TR, None),
    row("", "qwen3.7-plus", 1_000, 64, TVR, None),
    row("", "qwen3.6-plus", 1_000, 65, TVR, None),
    row("qwen", "qwen-plus", 1_000, 32, TR, yuan(0.8, 2.0)),
    row("qwen", "qwen-max", 131, 8, T, yuan(2.4, 9.6)),
    row("qwen", "qwen-turbo", 1_000, 16, TR, yuan(0.3, 0.6)),
    row("qwen", "qwen-flash", 1_000, 32, TR, yuan(0.15, 1.5)),
    row("mistral", "mistral-large-2512", 262, 262, TV, dollars(0.5, 1.5)),
    row("mistral", "mistral-medium-2508", 262, 262, TV, dollars(0.4, 2.0)),
    row("mistral", "mistral-small-2603", 256, 256, TVR, dollars(0.15, 0.6)),
    row("mistral", "codestral", 256, 4, T, dollars(0.3, 0.9)),
    row("", "mistral-large", 131, 0, T, None),
    row("", "mistral-medium", 131, 0, TV, None),
    row("", "mistral-small", 128, 0, TV, None),
    row("xai", "grok-4.3", 1_000, 30, TVR, usd(1.25, 2.5, 0.2)),
    row("minimax", "minimax-m3", 1_000, 128, TVR, usd(0.3, 1.2, 0.06)),
    row("minimax", "minimax-m2.7", 204, 131, TR, usd(0.3, 1.2, 0.06)),
    row("", "minimax-m2", 196, 128, TR, None),
    row("stepfun", "step-3.7-flash", 256, 256, TVR, usd(0.2, 1.15, 0.04)),
    row("xiaomi", "mimo-v2.5", 1_048, 131, TVR, usd(0.14, 0.28, 0.0028)),
    row("xiaomi", "mimo-v2.5-pro", 1_048, 131, TR, usd(0.435, 0.87, 0.0036)),
    row("groq", "llama-3.3-70b-versatile", 131, 32, T, usd(0.59, 0.79, 0.59)),
    row("groq", "llama-3.1-8b-instant", 131, 131, T, usd(0.05, 0.08, 0.05)),
    // These models have no price here, since they charge for searches in addition to tokens.
    row("", "sonar", 128, 0, NONE, None),
    row("", "doubao-seed-1", 256, 0, TVR, None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_by_their_names_and_cost_something_only_where_that_is_certain() {
        let table = [
            ("openai", "gpt-5", Some(400_000), Some("1.2500 USD")),
            ("openai", "gpt-5-2025-08-07", Some(400_000), Some("1.2500 USD")),
            ("openai", "gpt-5-mini", Some(400_000), Some("0.2500 USD")),
            ("openai", "gpt-5-pro", Some(400_000), None),
            ("openai", "gpt-4o-2024-05-13", Some(128_000), Some("5.0000 USD")),
            ("openai", "gpt-4", None, None),
            ("openai", "gpt-50", None, None),
            ("openai", "gpt-5.9", None, None),
            ("anthropic", "claude-opus-5-5", Some(1_000_000), None),
            ("openrouter", "openai/gpt-5", Some(400_000), None),
            ("qwen", "qwen-plus-latest", Some(1_000_000), Some("0.8000 CNY")),
            ("anthropic", "claude-sonnet-4-5-20250929", Some(200_000), Some("3.0000 USD")),
            ("siliconflow", "deepseek-ai/DeepSeek-V4-Flash", Some(1_000_000), None),
            ("ollama", "gpt-oss:20b", Some(131_000), None),
            ("", "nobody-knows", None, None),
        ];
        for (service, model, context, cost) in table {
            let facts = ModelFacts::known(service, model);
            let million = crate::chat::Usage { input_tokens: 1_000_000, ..Default::default() };
            assert_eq!(facts.context_tokens, context, "{model}");
            assert_eq!(facts.price.map(|price| price.cost(million).to_string()).as_deref(), cost, "{model}");
        }
    }

    #[test]
    fn the_table_holds_together() {
        for (at, row) in ROWS.iter().enumerate() {
            assert_eq!(row.name, row.name.to_lowercase());
            assert!(ROWS[at + 1..].iter().all(|other| other.name != row.name), "{}", row.name);
            assert!(row.price.is_none() || !row.maker.is_empty(), "{}", row.name);
            let is_known = crate::llm::KnownService::find(row.maker).is_some();
            assert!(is_known || row.maker.is_empty(), "{}", row.maker);
            assert!(row.context >= row.output && row.context > 0, "{}", row.name);
        }
    }
}
