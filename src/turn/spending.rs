//! Usage and cost of a turn by model.

use std::collections::BTreeMap;

use crate::chat::Usage;
use crate::llm::{ChatResponse, Cost, ModelChoice, Models};
use crate::metrics::TurnMeter;
use crate::store::usage::Costs;

/// Tokens and money of a turn, by model (`PROVIDER/MODEL`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spending(BTreeMap<String, ModelSpending>);

/// Usage and cost of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSpending {
    pub usage: Usage,
    /// The cost of the responses whose price was known.
    pub cost: Option<Cost>,
}

impl Spending {
    /// Counts a response in a turn that `asked` the model `PROVIDER/MODEL`.
    pub fn count(&mut self, response: &ChatResponse, asked: &str) {
        let name = if response.answered_by.is_empty() { asked } else { &response.answered_by };
        // The steps of a workflow belong to no model.
        if name.is_empty() && response.usage == Usage::default() {
            return;
        }
        self.add(name, response.usage, response.cost.as_ref());
    }

    /// Counts usage of the model `PROVIDER/MODEL`.
    pub fn add(&mut self, model: &str, usage: Usage, cost: Option<&Cost>) {
        let one = self.0.entry(model.to_owned()).or_default();
        one.usage += usage;
        let Some(cost) = cost else { return };
        match &mut one.cost {
            Some(sum) if sum.currency == cost.currency => sum.micros = sum.micros.saturating_add(cost.micros),
            // The currency of the prices changed during the turn, after a restart; amounts in two currencies cannot be added.
            Some(sum) => tracing::warn!(%sum, %cost, model, "a turn's cost is in two currencies; the first is kept"),
            none => *none = Some(cost.clone()),
        }
    }

    /// Iterates over the models that answered.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelSpending)> {
        self.0.iter().map(|(model, spending)| (model.as_str(), spending))
    }

    /// Returns the cost of all models by currency.
    pub fn costs(&self) -> Costs {
        let mut costs = Costs::new();
        for cost in self.0.values().filter_map(|spending| spending.cost.as_ref()) {
            let sum: &mut u64 = costs.entry(cost.currency.clone()).or_default();
            *sum = sum.saturating_add(cost.micros);
        }
        costs
    }
}

/// Sets the model that answered and the cost at current prices in a response, and counts both in the metrics.
pub fn price_and_count(response: &mut ChatResponse, answered: &ModelChoice, models: &Models, meter: &TurnMeter<'_>) {
    let (provider, model) = (answered.provider.name(), answered.model.as_str());
    response.answered_by = format!("{provider}/{model}");
    response.cost = models.price(provider, model).map(|price| price.cost(response.usage));
    if let Some(cost) = &response.cost {
        meter.model_cost(provider, model, &cost.currency, cost.micros);
    }
    let Usage { input_tokens, output_tokens, cached_tokens, .. } = response.usage;
    meter.model_used(provider, model, input_tokens, output_tokens, cached_tokens);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_response_is_charged_to_the_model_that_gave_it() {
        let response = |answered_by: &str, tokens: u64, cost: Option<(u64, &str)>| ChatResponse {
            answered_by: answered_by.to_owned(),
            usage: Usage { input_tokens: tokens, ..Usage::default() },
            cost: cost.map(|(micros, currency)| Cost { micros, currency: currency.to_owned() }),
            ..ChatResponse::default()
        };
        let mut spending = Spending::default();
        for one in [
            // The format of an older program.
            response("", 1, None),
            response("a/m", 2, Some((10, "USD"))),
            response("b/n", 4, Some((5, "CNY"))),
            response("a/m", 8, Some((20, "USD"))),
            response("a/m", 16, Some((99, "EUR"))),
        ] {
            spending.count(&one, "a/m");
        }
        let models: Vec<_> = spending.models().map(|(model, one)| (model, one.usage.input_tokens)).collect();
        assert_eq!(models, [("a/m", 27), ("b/n", 4)]);
        assert_eq!(spending.costs(), Costs::from([("CNY".to_owned(), 5), ("USD".to_owned(), 30)]));
    }
}
