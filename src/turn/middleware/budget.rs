//! `agent.budget`: forbids model calls once a budget is used up.

use std::collections::HashSet;

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::Mutex;

use super::chain::{Middleware, ModelCall, ModelRequest, Operation};
use super::config::BudgetConfig;
use crate::phrases::fill;
use crate::store::usage::{self, BudgetScope, BudgetUse, Costs, TokenCounts};
use crate::store::{Store, StoreError};
use crate::text::minute_in_zone;
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::turn_loop::TurnScope;

/// The maximum number of models about which a missing price is reported.
const MAX_WARNED: usize = 100;

pub struct BudgetMiddleware {
    config: BudgetConfig,
    store: Store,
    timezone: TimeZone,
    /// Models about which a missing price was reported: a cost limit is set, but the price is unknown.
    warned: Mutex<HashSet<String>>,
}

impl BudgetMiddleware {
    pub fn new(config: BudgetConfig, store: Store, timezone: TimeZone) -> Self {
        Self { config, store, timezone, warned: Mutex::default() }
    }

    /// Returns the used amount and the limit as texts, if the usage in `scope` has reached one of these limits.
    async fn reached(
        &self,
        at: &TurnScope<'_>,
        scope: BudgetScope,
        (tokens, cost): (Option<u64>, Option<f64>),
    ) -> Result<Option<[String; 2]>, StoreError> {
        let used = self.store.read(move |connection| usage::budget_use(connection, &scope)).await?;
        let spent = SpentTotals::of(&used);
        self.warn_unpriced(&spent, cost);
        let words = |count: u64| fill(at.phrases.tokens, &[&count.to_string()]);
        if let Some(limit) = tokens.filter(|limit| spent.tokens >= *limit) {
            return Ok(Some([words(spent.tokens), words(limit)]));
        }
        let reached = cost.and_then(|limit| Some((limit, spent.reaches(limit)?)));
        Ok(reached.map(|(limit, (currency, amount))| [money(amount, currency), money(limit, currency)]))
    }

    /// Returns the start of today in milliseconds, and the start of tomorrow as text.
    fn today(&self) -> (i64, String) {
        let now = Timestamp::now().to_zoned(self.timezone.clone());
        let start = now.start_of_day().map_or(0, |day| day.timestamp().as_millisecond());
        let end = now.tomorrow().and_then(|day| day.start_of_day()).unwrap_or(now);
        (start, minute_in_zone(end.timestamp(), &self.timezone))
    }

    fn warn_unpriced(&self, spent: &SpentTotals, cost: Option<f64>) {
        if cost.is_none() {
            return;
        }
        let mut warned = self.warned.lock();
        for model in &spent.unpriced {
            if warned.len() < MAX_WARNED && warned.insert(model.clone()) {
                tracing::warn!(
                    model,
                    "agent.budget limits money, but the price of this model is unknown: set providers.NAME.price"
                );
            }
        }
    }
}

#[async_trait]
impl Middleware<ModelCall> for BudgetMiddleware {
    async fn before(&self, at: &TurnScope<'_>, request: ModelRequest) -> Result<ModelRequest, TurnError> {
        let used_up = |code, values| TurnError::new(code, ModelCall::NAME).with(values);
        let BudgetConfig { turn_cost, session_tokens, session_cost, day_tokens, day_cost } = self.config;
        if turn_cost.is_some()
            && let Some(amounts) = self.reached(at, BudgetScope::Turn(at.turn), (None, turn_cost)).await?
        {
            return Err(used_up(ErrorCode::TurnBudget, amounts.to_vec()));
        }
        if session_tokens.is_some() || session_cost.is_some() {
            let session = BudgetScope::Session(at.session.to_string());
            if let Some(amounts) = self.reached(at, session, (session_tokens, session_cost)).await? {
                return Err(used_up(ErrorCode::SessionBudget, amounts.to_vec()));
            }
        }
        if day_tokens.is_some() || day_cost.is_some() {
            let (from, until) = self.today();
            if let Some([used, limit]) = self.reached(at, BudgetScope::Since(from), (day_tokens, day_cost)).await? {
                return Err(used_up(ErrorCode::DayBudget, vec![used, limit, until]));
            }
        }
        Ok(request)
    }
}

/// Formats an amount as `0.0012 USD`: with as many decimals as needed, at least two.
fn money(amount: f64, currency: &str) -> String {
    let long = format!("{amount:.6}");
    let point = long.find('.').unwrap_or(long.len());
    let end = long.trim_end_matches('0').len().max(point + 3).min(long.len());
    format!("{} {currency}", &long[..end])
}

/// The tokens and the money that model calls have used.
#[derive(Clone, Debug, Default, PartialEq)]
struct SpentTotals {
    tokens: u64,
    money: Costs,
    /// Models (`PROVIDER/MODEL`) of unknown price: their tokens are counted, their cost is not.
    unpriced: Vec<String>,
}

impl SpentTotals {
    /// Adds up the usage of all models.
    fn of(used: &[BudgetUse]) -> Self {
        let mut sum = Self::default();
        for BudgetUse { model, tokens: TokenCounts { input, output, .. }, cost } in used {
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

    /// Returns the currency with the largest amount, and the amount, if it reaches `limit`.
    fn reaches(&self, limit: f64) -> Option<(&str, f64)> {
        let (currency, micros) = self.money.iter().max_by_key(|(_, micros)| **micros)?;
        let amount = *micros as f64 / 1e6;
        (amount >= limit).then_some((currency.as_str(), amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_formatted_with_the_decimals_that_it_needs() {
        for (amount, expected) in [
            (5.0, "5.00 USD"),
            (0.5, "0.50 USD"),
            (0.0012, "0.0012 USD"),
            (1234.567, "1234.567 USD"),
            (0.0, "0.00 USD"),
        ] {
            assert_eq!(money(amount, "USD"), expected);
        }
    }

    #[test]
    fn tokens_and_money_are_added_up_by_currency() {
        let used = |model: &str, input, output, cost: Option<(u64, &str)>| BudgetUse {
            model: model.to_owned(),
            tokens: TokenCounts { turns: 1, input, output, cached: 0 },
            cost: cost.map(|(micros, currency)| (micros, currency.to_owned())),
        };
        let sum = SpentTotals::of(&[
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
