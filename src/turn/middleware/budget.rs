//! `agent.budget`: forbids model calls once a budget is used up.

use std::collections::HashSet;

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::Mutex;

use super::around::{LayerDecision, Middleware, ModelCall, ModelRequest, Operation};
use super::config::BudgetConfig;
use crate::phrases::fill;
use crate::store::usage::{self, BudgetScope, BudgetUse};
use crate::store::usage::{Costs, TokenCounts};
use crate::store::{Store, StoreError};
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::scope::TurnScope;

/// The most models whose missing price is reported.
const MAX_WARNED: usize = 100;

pub struct BudgetMiddleware {
    config: BudgetConfig,
    store: Store,
    timezone: TimeZone,
    /// Models whose missing price was reported: money is limited, and their price is unknown.
    warned: Mutex<HashSet<String>>,
}

impl BudgetMiddleware {
    pub fn new(config: BudgetConfig, store: Store, timezone: TimeZone) -> Self {
        Self { config, store, timezone, warned: Mutex::default() }
    }

    async fn spent(&self, scope: BudgetScope) -> Result<SpentTotals, StoreError> {
        let used = self.store.read(move |connection| usage::budget_use(connection, &scope)).await?;
        Ok(SpentTotals::of(&used))
    }

    async fn check_session(&self, at: &TurnScope<'_>) -> Result<(), TurnError> {
        let BudgetConfig { session_tokens, session_cost, .. } = self.config;
        if session_tokens.is_none() && session_cost.is_none() {
            return Ok(());
        }
        let spent = self.spent(BudgetScope::Session(at.session.to_string())).await?;
        self.warn_unpriced(&spent, session_cost);
        match self.reached(at, &spent, session_tokens, session_cost) {
            Some((used, limit)) => Err(used_up(ErrorCode::SessionBudget, [used, limit])),
            None => Ok(()),
        }
    }

    async fn check_day(&self, at: &TurnScope<'_>) -> Result<(), TurnError> {
        let BudgetConfig { day_tokens, day_cost, .. } = self.config;
        if day_tokens.is_none() && day_cost.is_none() {
            return Ok(());
        }
        let (from, until) = self.today();
        let spent = self.spent(BudgetScope::Since(from)).await?;
        self.warn_unpriced(&spent, day_cost);
        match self.reached(at, &spent, day_tokens, day_cost) {
            Some((used, limit)) => Err(used_up(ErrorCode::DayBudget, [used, limit, until])),
            None => Ok(()),
        }
    }

    /// Returns the used amount and the limit as texts, if a limit is reached.
    fn reached(
        &self,
        at: &TurnScope<'_>,
        spent: &SpentTotals,
        tokens: Option<u64>,
        cost: Option<f64>,
    ) -> Option<(String, String)> {
        let words = |count: u64| fill(at.phrases.tokens, &[&count.to_string()]);
        if let Some(limit) = tokens.filter(|limit| spent.tokens >= *limit) {
            return Some((words(spent.tokens), words(limit)));
        }
        let limit = cost?;
        let (currency, amount) = spent.reaches(limit)?;
        Some((money(amount, currency), money(limit, currency)))
    }

    /// Returns the start of today in milliseconds, and the start of tomorrow as text.
    fn today(&self) -> (i64, String) {
        let now = Timestamp::now().to_zoned(self.timezone.clone());
        let start = now.start_of_day().map_or(0, |day| day.timestamp().as_millisecond());
        let end = now.tomorrow().and_then(|day| day.start_of_day()).unwrap_or(now);
        let zone = end.time_zone().iana_name().map_or_else(|| end.strftime("%Z").to_string(), str::to_owned);
        (start, format!("{} ({zone})", end.strftime("%Y-%m-%d %H:%M")))
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
    fn name(&self) -> &'static str {
        "budget"
    }

    async fn before(&self, at: &TurnScope<'_>, request: ModelRequest) -> Result<LayerDecision<ModelCall>, TurnError> {
        self.check_session(at).await?;
        self.check_day(at).await?;
        Ok(LayerDecision::Continue(request))
    }
}

fn used_up(code: ErrorCode, values: impl IntoIterator<Item = String>) -> TurnError {
    TurnError::new(code, ModelCall::NAME).with(values)
}

/// Formats an amount as `0.0012 USD`: with as many decimals as needed, at least two.
fn money(amount: f64, currency: &str) -> String {
    let long = format!("{amount:.6}");
    let point = long.find('.').unwrap_or(long.len());
    let end = long.trim_end_matches('0').len().max(point + 3).min(long.len());
    format!("{} {currency}", &long[..end])
}

/// The tokens and the money that were spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpentTotals {
    pub tokens: u64,
    pub money: Costs,
    /// Models (`PROVIDER/MODEL`) of unknown price: their tokens are counted, their money is not.
    pub unpriced: Vec<String>,
}

impl SpentTotals {
    /// Adds up the usage of all models.
    pub fn of(used: &[BudgetUse]) -> Self {
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
