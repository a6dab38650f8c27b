//! What tokens cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Usage;

/// The prices of a million tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// What is sent.
    #[schemars(range(min = 0))]
    pub input: f64,
    /// What is answered.
    #[schemars(range(min = 0))]
    pub output: f64,
    /// What is sent and was in the service's cache; without it, as `input`.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// What the prices are in.
    #[serde(default = "dollars")]
    pub currency: String,
}

impl Price {
    /// What `used` costs, for reading: `0.0123 USD`.
    pub fn cost(&self, used: Usage) -> String {
        format!("{:.4} {}", self.amount(used), self.currency)
    }

    /// What `used` costs, in [`Self::currency`].
    pub fn amount(&self, used: Usage) -> f64 {
        let cached = used.cached_tokens.min(used.input_tokens);
        let fresh = used.input_tokens - cached;
        let millions = |tokens: u64| tokens as f64 / 1e6;
        millions(fresh) * self.input
            + millions(cached) * self.cached.unwrap_or(self.input)
            + millions(used.output_tokens) * self.output
    }

    /// Whether each price is a number that something can cost.
    pub fn is_sound(&self) -> bool {
        let prices = [Some(self.input), Some(self.output), self.cached];
        prices.into_iter().flatten().all(|price| price.is_finite() && price >= 0.0)
    }
}

fn dollars() -> String {
    "USD".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_cost_by_the_million() {
        let price = |cached| Price { input: 2.0, output: 10.0, cached, currency: dollars() };
        for (cached, input, from_cache, output, cost) in [
            (None, 1_000_000, 500_000, 0, "2.0000 USD"),
            (Some(1.0), 1_000_000, 500_000, 100_000, "2.5000 USD"),
            (Some(0.0), 10, 20, 0, "0.0000 USD"),
        ] {
            let used = Usage { input_tokens: input, output_tokens: output, cached_tokens: from_cache };
            assert_eq!(price(cached).cost(used), cost);
        }
        assert!(price(None).is_sound() && !price(Some(f64::NAN)).is_sound() && !price(Some(-1.0)).is_sound());
    }
}
