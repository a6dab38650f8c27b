//! No model is asked once a budget is used up.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::around::{Around, Context, ModelCall, ModelRequest, Operation, Passed};
use super::config::BudgetConfig;
use super::spending::Spending;
use crate::agent::error::{ErrorCode, TurnError};
use crate::agent::phrases::fill;
use crate::store::spent::{self, Scope};
use crate::store::{Store, StoreError};

/// Models whose missing price was told of, at most; more are not told of.
const TOLD: usize = 100;

pub struct Budget {
    config: BudgetConfig,
    store: Store,
    timezone: TimeZone,
    /// Models that the owner was told of: money is limited, and their price is not known.
    told: Mutex<HashSet<String>>,
}

impl Budget {
    pub fn new(config: BudgetConfig, store: Store, timezone: TimeZone) -> Self {
        Self { config, store, timezone, told: Mutex::default() }
    }

    async fn spent(&self, scope: Scope) -> Result<Spending, StoreError> {
        let used = self.store.read(move |connection| spent::by_model(connection, &scope)).await?;
        Ok(Spending::of(&used))
    }

    async fn check_session(&self, at: &Context<'_>) -> Result<(), TurnError> {
        let BudgetConfig { session_tokens, session_cost, .. } = self.config;
        if session_tokens.is_none() && session_cost.is_none() {
            return Ok(());
        }
        let spent = self.spent(Scope::Session(at.session.to_string())).await?;
        self.tell_unpriced(&spent, session_cost);
        match self.reached(at, &spent, session_tokens, session_cost) {
            Some((used, limit)) => Err(used_up(ErrorCode::SessionBudget, [used, limit])),
            None => Ok(()),
        }
    }

    async fn check_day(&self, at: &Context<'_>) -> Result<(), TurnError> {
        let BudgetConfig { day_tokens, day_cost, .. } = self.config;
        if day_tokens.is_none() && day_cost.is_none() {
            return Ok(());
        }
        let (from, until) = self.today();
        let spent = self.spent(Scope::Since(from)).await?;
        self.tell_unpriced(&spent, day_cost);
        match self.reached(at, &spent, day_tokens, day_cost) {
            Some((used, limit)) => Err(used_up(ErrorCode::DayBudget, [used, limit, until])),
            None => Ok(()),
        }
    }

    /// What was used and the limit, in words, where one is reached.
    fn reached(
        &self,
        at: &Context<'_>,
        spent: &Spending,
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

    /// When today began, in milliseconds, and when tomorrow does, for reading.
    fn today(&self) -> (i64, String) {
        let now = Timestamp::now().to_zoned(self.timezone.clone());
        let start = now.start_of_day().map_or(0, |day| day.timestamp().as_millisecond());
        let end = now.tomorrow().and_then(|day| day.start_of_day()).unwrap_or(now);
        let zone = end.time_zone().iana_name().map_or_else(|| end.strftime("%Z").to_string(), str::to_owned);
        (start, format!("{} ({zone})", end.strftime("%Y-%m-%d %H:%M")))
    }

    fn tell_unpriced(&self, spent: &Spending, cost: Option<f64>) {
        if cost.is_none() {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for model in &spent.unpriced {
            if told.len() < TOLD && told.insert(model.clone()) {
                tracing::warn!(
                    model,
                    "money is limited by agent.budget, and the price of this model is not known: set providers.NAME.price"
                );
            }
        }
    }
}

#[async_trait]
impl Around<ModelCall> for Budget {
    fn name(&self) -> &'static str {
        "budget"
    }

    async fn before(&self, at: &Context<'_>, request: ModelRequest) -> Result<Passed<ModelCall>, TurnError> {
        self.check_session(at).await?;
        self.check_day(at).await?;
        Ok(Passed::On(request))
    }
}

fn used_up(code: ErrorCode, values: impl IntoIterator<Item = String>) -> TurnError {
    TurnError::new(code, ModelCall::NAME).with(values)
}

/// `0.0012 USD`: as many places as small amounts need, and two at least.
fn money(amount: f64, currency: &str) -> String {
    let long = format!("{amount:.6}");
    let point = long.find('.').unwrap_or(long.len());
    let end = long.trim_end_matches('0').len().max(point + 3).min(long.len());
    format!("{} {currency}", &long[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_written_with_the_places_that_it_needs() {
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
}
