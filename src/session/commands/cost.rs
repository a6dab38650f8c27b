//! `/cost`.

use jiff::Timestamp;

use super::slash_command::CommandContext;
use crate::llm::costs_in_words;
use crate::phrases::{Phrases, counted, fill};
use crate::store::StoreError;
use crate::store::usage::{self, Costs, TokenCounts, UsageScope, UsageTotal};

/// Returns what this session, and today all sessions, used and cost; by model if there are several, or costs.
pub async fn describe(context: &CommandContext, session: &str) -> Result<String, StoreError> {
    let now = Timestamp::now().to_zoned(context.timezone.clone());
    let midnight = now.start_of_day().map_or(0, |day| day.timestamp().as_millisecond());
    let key = session.to_owned();
    let (mine, all) = context
        .store
        .read(move |connection| {
            let spent = |scope| usage::total(connection, scope);
            Ok((spent(UsageScope::Session(&key))?, spent(UsageScope::Since(midnight))?))
        })
        .await?;
    let phrases = context.phrases;
    Ok([sum(phrases, phrases.cost_session, &mine), sum(phrases, phrases.cost_today, &all)].join("\n\n"))
}

fn sum(phrases: &Phrases, heading: &str, spent: &UsageTotal) -> String {
    let turns = counted(phrases.turns, spent.tokens.turns);
    let mut text = fill(heading, &[&turns, &used(phrases, spent.tokens, &spent.costs)]);
    if spent.models.len() > 1 || !spent.costs.is_empty() {
        for model in &spent.models {
            text.push_str(&format!("\n- `{}`: {}", model.model, used(phrases, model.tokens, &model.costs)));
        }
    }
    text
}

fn used(phrases: &Phrases, used: TokenCounts, costs: &Costs) -> String {
    let numbers = [used.input, used.cached, used.output].map(|number| number.to_string());
    let tokens = fill(phrases.cost_tokens, &numbers.each_ref().map(String::as_str));
    match costs_in_words(costs) {
        Some(costs) => format!("{tokens}, **{costs}**"),
        None => tokens,
    }
}
