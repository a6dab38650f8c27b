//! What was spent, added up from the store: a crash gives nothing back.

use std::collections::BTreeMap;

use crate::llm::{Price, Usage};
use crate::store::spent::ByModel;
use crate::store::usage::Tokens;

/// Tokens, and money by currency.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spending {
    pub tokens: u64,
    pub money: BTreeMap<String, f64>,
    /// Models, `PROVIDER/MODEL`, whose price is not known: their tokens are counted and their money cannot be.
    pub unpriced: Vec<String>,
}

impl Spending {
    /// Adds up what each model used.
    pub fn of(used: &[ByModel], price: impl Fn(&str) -> Option<Price>) -> Self {
        let mut sum = Self::default();
        for ByModel { model, tokens: Tokens { input, output, cached, .. } } in used {
            sum.tokens = sum.tokens.saturating_add(input.saturating_add(*output));
            match price(model) {
                Some(price) => {
                    let used = Usage { input_tokens: *input, output_tokens: *output, cached_tokens: *cached };
                    *sum.money.entry(price.currency.clone()).or_default() += price.amount(used);
                }
                None => sum.unpriced.push(model.clone()),
            }
        }
        sum
    }

    /// The currency in which the most was spent, if that is `limit` or more.
    pub fn reaches(&self, limit: f64) -> Option<(&str, f64)> {
        let most = self.money.iter().max_by(|a, b| a.1.total_cmp(b.1));
        most.filter(|(_, amount)| **amount >= limit).map(|(currency, amount)| (currency.as_str(), *amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_money_are_added_up_by_currency() {
        let used = |model: &str, input, output, cached| ByModel {
            model: model.to_owned(),
            tokens: Tokens { turns: 1, input, output, cached },
        };
        let price = |model: &str| {
            let currency = match model.split('/').next() {
                Some("us") => "USD",
                Some("cn") => "CNY",
                _ => return None,
            };
            Some(Price { input: 1.0, output: 10.0, cached: Some(0.5), currency: currency.to_owned() })
        };
        let rows = [
            used("us/a", 1_000_000, 0, 0),
            used("us/b", 1_000_000, 100_000, 1_000_000),
            used("cn/a", 0, 200_000, 0),
            used("home/x", 5, 5, 0),
        ];
        let sum = Spending::of(&rows, price);
        assert_eq!(sum.tokens, 2_300_010);
        assert_eq!(sum.money, BTreeMap::from([("CNY".to_owned(), 2.0), ("USD".to_owned(), 2.5)]));
        assert_eq!(sum.unpriced, ["home/x"]);
        assert_eq!((sum.reaches(2.5), sum.reaches(2.6)), (Some(("USD", 2.5)), None));
    }
}
