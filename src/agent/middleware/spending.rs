//! What was spent, added up from the store: a crash gives nothing back.

use crate::store::spent::ByModel;
use crate::store::usage::{Costs, Tokens};

/// Tokens, and money by currency.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spending {
    pub tokens: u64,
    pub money: Costs,
    /// Models, `PROVIDER/MODEL`, whose price was not known: their tokens are counted and their money cannot be.
    pub unpriced: Vec<String>,
}

impl Spending {
    /// Adds up what each model used.
    pub fn of(used: &[ByModel]) -> Self {
        let mut sum = Self::default();
        for ByModel { model, tokens: Tokens { input, output, .. }, cost } in used {
            let tokens = input.saturating_add(*output);
            sum.tokens = sum.tokens.saturating_add(tokens);
            match cost {
                Some((micros, currency)) => {
                    let money = sum.money.entry(currency.clone()).or_default();
                    *money = money.saturating_add(*micros);
                }
                None if tokens > 0 => sum.unpriced.push(model.clone()),
                None => {}
            }
        }
        sum
    }

    /// The currency in which the most was spent, and how much of it, if that is `limit` or more.
    pub fn reaches(&self, limit: f64) -> Option<(&str, f64)> {
        let (currency, micros) = self.money.iter().max_by_key(|(_, micros)| **micros)?;
        let amount = *micros as f64 / 1e6;
        (amount >= limit).then_some((currency.as_str(), amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_money_are_added_up_by_currency() {
        let used = |model: &str, input, output, cost: Option<(u64, &str)>| ByModel {
            model: model.to_owned(),
            tokens: Tokens { turns: 1, input, output, cached: 0 },
            cost: cost.map(|(micros, currency)| (micros, currency.to_owned())),
        };
        let sum = Spending::of(&[
            used("us/a", 1_000_000, 0, Some((1_000_000, "USD"))),
            used("us/b", 1_000_000, 100_000, Some((1_500_000, "USD"))),
            used("cn/a", 0, 200_000, Some((2_000_000, "CNY"))),
            used("home/x", 5, 5, None),
            used("asked/in-vain", 0, 0, None),
        ]);
        assert_eq!(sum.tokens, 2_300_010);
        assert_eq!(sum.money, Costs::from([("CNY".to_owned(), 2_000_000), ("USD".to_owned(), 2_500_000)]));
        assert_eq!(sum.unpriced, ["home/x"]);
        assert_eq!((sum.reaches(2.5), sum.reaches(2.6)), (Some(("USD", 2.5)), None));
    }
}
