//! `daoyou status`.

use daoyou_channels::settings::HumanDuration;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Inspector, providers, sandbox};
use crate::bus::{ProviderFault, stored_service_faults};
use crate::gateway::settings::{heartbeat_settings, page_address, zone_or_system};
use crate::llm::CircuitState;
use crate::metrics::CacheMetrics;
use crate::query;
use crate::query::InspectError;
use crate::query::cost::{self, CostRange};
use crate::store::overview::LastTurn;
use crate::store::processes::{self, ProcessRow};
use crate::store::usage::{self, BudgetScope, BudgetUse, Costs};
use crate::store::{Connection, approvals, memory_queries};
use crate::tools::is_process_alive;
use crate::turn::middleware::MiddlewareName;

/// The maximum number of turns that are shown.
const TURNS: u32 = 5;

impl Inspector {
    /// Returns true if the provider of `agent.model` is configured, and secrets of the configuration are missing.
    fn has_faulty_provider(&self) -> bool {
        let provider = self.config.agent.model.split('/').next().unwrap_or_default();
        !self.missing.is_empty() && self.config.providers.contains_key(provider)
    }

    /// Returns the status. The keys are the same for a running gateway and offline.
    pub(super) async fn status(&self) -> Result<Value, InspectError> {
        if let Some(status) = self.read_only_status().await {
            return Ok(status);
        }
        let overview = self.overview(self.midnight(), TURNS).await?;
        let outbound: usize = overview.outbound.iter().map(|(_, messages)| messages).sum();
        let model = match self.models.resolve(&self.config.agent.model).await {
            Ok(choice) => choice.to_string(),
            // A faulty provider was left out, and its fault is shown above.
            Err(_) if self.has_faulty_provider() => {
                format!("none: {} cannot be asked (see above)", self.config.agent.model)
            }
            Err(error) => format!("none: {error}"),
        };
        let uptime = self
            .running
            .as_ref()
            .map(|running| HumanDuration::from_secs(running.started.elapsed().as_secs()).to_string());
        let processes = self.processes().await?;
        let sandbox = match sandbox::active_sandbox(self.config.tools.exec.sandbox).await {
            Ok(sandbox) => json!({ "in_force": sandbox }),
            Err(reason) => json!({ "in_force": null, "reason": reason }),
        };
        Ok(json!({
            "gateway": if self.running.is_some() { "up" } else { "down" },
            "home": self.home.dir(),
            "version": env!("CARGO_PKG_VERSION"),
            "pid": self.running.as_ref().map(|_| std::process::id()),
            "uptime": uptime,
            "missing": self.missing.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "listen": self.listen(),
            "page": self.page(),
            "restart_needed": self.runtime.as_ref().map_or(&[][..], |runtime| &runtime.restart_needed),
            "ready": false,
            // The HTTP server of a running gateway replaces these values.
            "parts": { "intake": "no gateway runs", "channels": {}, "services": {}, "inbound": overview.inbound, "outbound": outbound },
            "model": model,
            "circuits": self.circuits(),
            "failures": self.failures(),
            "services": self.services().await?,
            "channels": self.rows(&overview.outbound),
            "queues": {
                "inbound": overview.inbound,
                "running": overview.running,
                "waiting": overview.waiting,
                "oldest_inbound": overview.oldest_inbound.map(query::timestamp),
                "outbound": outbound,
                "oldest_outbound": overview.oldest_outbound.map(query::timestamp),
            },
            "jobs": {
                "enabled": overview.jobs.enabled,
                "disabled": overview.jobs.disabled,
                "paused": overview.jobs.paused,
                "next": overview.next_job.map(query::timestamp),
                "runs": self.config.cron.enabled,
            },
            "approvals": self.read(approvals::count_pending).await?,
            "dead_letters": overview.stuck,
            "dead_messages": overview.dead,
            "last_turns": overview.last.iter().map(turn).collect::<Vec<_>>(),
            "today": query::usage(&overview.used),
            "heartbeat": self.heartbeat().await?,
            "database": self.database(overview.free),
            "caches": self.caches(),
            "memory": self.memory().await?,
            "processes": processes,
            "sandbox": sandbox,
            "losses": query::losses(&overview.losses),
        }))
    }

    /// Returns the address that the gateway serves, or would serve.
    fn listen(&self) -> String {
        let served = self.running.as_ref().and_then(|running| running.serves);
        served.map_or_else(|| self.config.gateway.listen.clone(), |address| address.to_string())
    }

    /// Returns the address of the page of a running gateway.
    fn page(&self) -> Option<String> {
        self.running.as_ref()?.serves.map(|address| page_address(&self.config, address))
    }

    /// Counts the memories, and the messages that are not indexed yet.
    async fn memory(&self) -> Result<Value, InspectError> {
        let read = |connection: &Connection| {
            let counts = memory_queries::counts(connection)?;
            Ok((counts.iter().map(|count| count.current).sum::<u64>(), memory_queries::search_index_state(connection)?))
        };
        let (known, index) = self.read(read).await?;
        let enabled = self.config.memory.enabled;
        let index = json!({ "messages": index.messages, "behind": index.behind, "made_anew": index.needs_rebuild });
        Ok(json!({ "enabled": enabled, "known": known, "index": index }))
    }

    /// Lists background commands; offline, those that were detached.
    async fn processes(&self) -> Result<Value, InspectError> {
        let rows = self.read(processes::open).await?;
        let row = |row: ProcessRow| {
            json!({
                "id": row.id,
                "label": row.label,
                "command": row.command,
                "session": row.session,
                "pid": row.pid,
                "detached": row.detached,
                "since": query::timestamp(row.started_at),
            })
        };
        Ok(rows.into_iter().filter(is_process_alive).map(row).collect())
    }

    /// Returns the next heartbeat, and the tokens that heartbeats used today.
    async fn heartbeat(&self) -> Result<Value, InspectError> {
        let (settings, now) = (heartbeat_settings(&self.config), Timestamp::now());
        let next = settings.next_check(now).filter(|_| settings.config.enabled && self.running.is_some());
        let (enabled, most) = (settings.config.enabled, settings.config.tokens_per_day);
        let used = self.read(move |connection| settings.tokens_today(connection, now)).await?;
        Ok(json!({ "enabled": enabled, "next": next, "tokens_today": used, "tokens_per_day": most }))
    }

    fn caches(&self) -> Value {
        let (none, running) = (CacheMetrics::default(), self.running.as_ref());
        let caches = running.map_or(&none, |running| &running.bus.metrics().caches).all().map(|(name, counts)| {
            let (hits, misses, entries) = (counts.hits.get(), counts.misses.get(), counts.entries.get());
            (name.to_owned(), json!({ "hits": hits, "misses": misses, "entries": entries }))
        });
        Value::Object(caches.into_iter().collect())
    }

    /// Lists the model services that messages wait for, with the reasons.
    async fn services(&self) -> Result<Value, InspectError> {
        let faults = self.read(stored_service_faults).await?;
        let row = |(provider, fault): (String, ProviderFault)| {
            let ProviderFault { code, message, since, .. } = fault;
            json!({ "provider": provider, "code": code, "message": message, "since": query::timestamp(since) })
        };
        Ok(faults.into_iter().map(row).collect())
    }

    /// Lists the providers whose circuit breaker is not closed.
    fn circuits(&self) -> Value {
        let services = self.models.services().map(|(name, provider)| (name, provider.circuit().0));
        let broken = services.filter(|(_, state)| *state != CircuitState::Closed);
        let row = |(name, state): (&str, CircuitState)| {
            let seconds = providers::seconds_open(state);
            json!({ "provider": name, "circuit": state.as_str(), "circuit_seconds": seconds })
        };
        broken.map(row).collect()
    }

    /// Lists the providers whose last call failed, with the error for the owner.
    fn failures(&self) -> Value {
        let failed = self.models.services().filter_map(|(name, provider)| Some((name, provider.last_failure()?)));
        failed.map(|(name, error)| json!({ "provider": name, "error": error })).collect()
    }

    /// Returns the tokens and costs of a range of days, and the used part of the day's budget.
    pub(super) async fn cost(&self, from: Option<&str>, to: Option<&str>) -> Result<Value, InspectError> {
        let range = CostRange::parse(from, to, &zone_or_system(&self.config), Timestamp::now());
        let range = range.map_err(InspectError::Invalid)?;
        let midnight = self.midnight();
        let read = move |connection: &Connection| {
            let used = usage::budget_use(connection, &BudgetScope::Since(midnight))?;
            Ok(Some((cost::read(connection, &range)?, used)))
        };
        let Some((mut found, used)) = self.read(read).await? else {
            return Ok(json!({ "days": [], "sessions": [], "budget": null }));
        };
        let agent = &self.config.agent;
        let budget = Some(&agent.budget).filter(|_| agent.middleware.contains(&MiddlewareName::Budget));
        let tokens: u64 = used.iter().map(|used| used.tokens.input + used.tokens.output).sum();
        found["budget"] = match budget.map(|budget| (budget.day_cost, budget.day_tokens)) {
            Some((Some(limit), _)) => {
                json!({ "kind": "cost", "used": cost::decimal(largest_amount(&used)), "limit": limit.to_string() })
            }
            Some((None, Some(limit))) => json!({ "kind": "tokens", "used": tokens, "limit": limit }),
            _ => Value::Null,
        };
        Ok(found)
    }

    /// Returns the start of the current day in the owner's time zone.
    fn midnight(&self) -> i64 {
        let now = Timestamp::now();
        let midnight = now.to_zoned(zone_or_system(&self.config)).start_of_day().map_or(now, |day| day.timestamp());
        midnight.as_millisecond()
    }

    /// Returns the sizes of the database; they are null if the file does not exist.
    fn database(&self, free: u64) -> Value {
        let path = self.home.database();
        let size = |path: &std::path::Path| std::fs::metadata(path).map(|file| file.len()).ok();
        let log = path.with_extension("db-wal");
        json!({ "path": path, "size": size(&path), "wal": size(&log), "free": free })
    }
}

/// Returns the largest amount of a currency, in millionths. Amounts of different currencies have no sum, and the budget counts each
/// currency separately.
fn largest_amount(used: &[BudgetUse]) -> u64 {
    let mut amounts = Costs::default();
    for (micros, currency) in used.iter().filter_map(|used| used.cost.as_ref()) {
        *amounts.entry(currency.clone()).or_default() += micros;
    }
    amounts.into_values().max().unwrap_or(0)
}

fn turn(turn: &LastTurn) -> Value {
    let outcome = if turn.error.is_some() { "failed" } else { &turn.state };
    json!({
        "turn": turn.turn,
        "session": turn.session,
        "outcome": outcome,
        "error": turn.error,
        "at": query::timestamp(turn.received_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::usage::TokenCounts;

    #[test]
    fn amounts_of_different_currencies_are_not_added() {
        let used = |cost: Option<(u64, &str)>| BudgetUse {
            model: String::new(),
            tokens: TokenCounts::default(),
            cost: cost.map(|(micros, currency)| (micros, currency.to_owned())),
        };
        for (costs, expected) in [
            (&[][..], 0),
            (&[None], 0),
            (&[Some((3, "USD")), Some((4, "CNY")), None, Some((2, "USD"))], 5),
            (&[Some((3, "USD")), Some((4, "CNY"))], 4),
        ] {
            let all: Vec<_> = costs.iter().copied().map(used).collect();
            assert_eq!(largest_amount(&all), expected, "{costs:?}");
        }
    }
}
