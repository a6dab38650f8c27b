//! Prices and costs of tokens.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat::Usage;

/// The price of writing to a cache relative to plain input: for five minutes, and for an hour
/// (<https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>).
const CACHE_WRITE: f64 = 1.25;
const HOUR_WRITE: f64 = 2.0;

/// The prices of a million tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The price of input tokens.
    #[schemars(range(min = 0))]
    pub input: f64,
    /// The price of output tokens.
    #[schemars(range(min = 0))]
    pub output: f64,
    /// The price of input tokens that the service's cache held; `input` when absent.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// The price of input tokens that are written to the service's cache, if the service counts them (Anthropic). When
    /// absent, 1.25 times `input`, and twice `input` for tokens that stay for an hour.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// The currency of the prices.
    #[serde(default = "dollars")]
    pub currency: Cow<'static, str>,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Millionths of the currency's unit.
    pub micros: u64,
    pub currency: String,
}

impl Price {
    /// Returns the cost of `used`, to the nearest millionth.
    pub fn cost(&self, used: Usage) -> Cost {
        let cached = used.cached_tokens.min(used.input_tokens);
        let written = used.written_tokens.min(used.input_tokens - cached);
        let for_hour = used.written_for_hour_tokens.min(written);
        let fresh = used.input_tokens - cached - written;
        let write = self.cache_write.unwrap_or(self.input * CACHE_WRITE);
        // The price of a million tokens in units equals the price of one token in millionths.
        let micros = fresh as f64 * self.input
            + cached as f64 * self.cached.unwrap_or(self.input)
            + (written - for_hour) as f64 * write
            + for_hour as f64 * write * (HOUR_WRITE / CACHE_WRITE)
            + used.output_tokens as f64 * self.output;
        Cost { micros: micros.round() as u64, currency: self.currency.clone().into_owned() }
    }

    /// Returns true if each price is finite and not negative.
    pub fn is_sound(&self) -> bool {
        let prices = [Some(self.input), Some(self.output), self.cached, self.cache_write];
        prices.into_iter().flatten().all(|price| price.is_finite() && price >= 0.0)
    }
}

impl fmt::Display for Cost {
    /// Writes the amount for people: `0.0123 USD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { micros, currency } = self;
        let amount = *micros as f64 / 1e6;
        // A very small amount must not read as zero.
        let places = if (1..1_000).contains(micros) { 6 } else { 4 };
        write!(f, "{amount:.places$} {currency}")
    }
}

/// Formats amounts by currency: `1.5000 CNY, 0.0123 USD`; `None` if there are none.
pub fn costs_in_words(costs: &BTreeMap<String, u64>) -> Option<String> {
    let words = costs.iter().map(|(currency, micros)| Cost { micros: *micros, currency: currency.clone() }.to_string());
    Some(words.collect::<Vec<_>>().join(", ")).filter(|words| !words.is_empty())
}

const fn dollars() -> Cow<'static, str> {
    Cow::Borrowed("USD")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_cost_by_the_million() {
        let price = |cached| Price { input: 2.0, output: 10.0, cached, cache_write: None, currency: dollars() };
        for (cached, input, from_cache, output, cost) in [
            (None, 1_000_000, 500_000, 0, "2.0000 USD"),
            (Some(1.0), 1_000_000, 500_000, 100_000, "2.5000 USD"),
            (Some(0.0), 10, 20, 0, "0.0000 USD"),
            (None, 7, 0, 1, "0.000024 USD"),
            (None, 500, 0, 1, "0.0010 USD"),
        ] {
            let used =
                Usage { input_tokens: input, output_tokens: output, cached_tokens: from_cache, ..Usage::default() };
            assert_eq!(price(cached).cost(used).to_string(), cost);
        }
        assert!(price(None).is_sound() && !price(Some(f64::NAN)).is_sound() && !price(Some(-1.0)).is_sound());
    }

    #[test]
    fn writing_to_a_cache_has_its_own_price() {
        let price =
            |cache_write| Price { input: 2.0, output: 0.0, cached: Some(0.2), cache_write, currency: dollars() };
        let used = |written_tokens, written_for_hour_tokens| Usage {
            input_tokens: 1_000_000,
            cached_tokens: 100_000,
            written_tokens,
            written_for_hour_tokens,
            ..Usage::default()
        };
        for (own, written, for_hour, cost) in [
            (None, 0, 0, "1.8200 USD"),
            (None, 400_000, 0, "2.0200 USD"),
            (None, 400_000, 400_000, "2.6200 USD"),
            (None, 400_000, 100_000, "2.1700 USD"),
            (Some(5.0), 400_000, 0, "3.0200 USD"),
            (Some(0.0), 400_000, 0, "1.0200 USD"),
            (None, u64::MAX, u64::MAX, "3.6200 USD"),
        ] {
            assert_eq!(price(own).cost(used(written, for_hour)).to_string(), cost, "{own:?} {written} {for_hour}");
        }
    }

    #[test]
    fn amounts_are_listed_by_currency() {
        let costs = [("USD".to_owned(), 12_300), ("CNY".to_owned(), 1_500_000)];
        assert_eq!(costs_in_words(&BTreeMap::from(costs)).as_deref(), Some("1.5000 CNY, 0.0123 USD"));
        assert_eq!(costs_in_words(&BTreeMap::new()), None);
    }
}
