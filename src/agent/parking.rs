//! Parks turns. A turn waits because no model is available, and its sender gets one notice; or it waits for sub-agents,
//! without a notice.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::settings::HumanDuration;
use uuid::Uuid;

use super::turn_start::StartedTurn;
use crate::bus::{MessageBus, NoticeKind, OutboundDraft, OutboxSlot, ProviderFault};
use crate::crash;
use crate::llm::{FallbackChain, LlmError, LlmErrorKind, ModelChoice};
use crate::phrases::{Phrases, fill};
use crate::session::retry_scheduler::{
    LONGEST_FAILURE_WAIT, LONGEST_OUTAGE_WAIT, LONGEST_QUOTA_WAIT, RetryScheduler, RetryTerms,
};
use crate::store::approvals::ApprovalState;
use crate::store::inbox::{self, InboxRow, MessageStatus};
use crate::store::outbox::InsertedOutbound;
use crate::store::questions::QuestionState;
use crate::store::{Connection, Durability, StoreError, approvals, meta, now_ms, questions, spawns, turn_steps};
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::progress::StepBody;

/// The longest wait, even if a service asks for a longer one by mistake.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// An outage: no model that could answer is available, because services are down, reject the key, or accept no more requests.
#[derive(Clone, Debug)]
pub struct ModelOutage {
    pub error: LlmError,
    /// The failure of each provider that was asked.
    pub failures: Vec<LlmError>,
    /// The providers that could answer.
    pub providers: Vec<String>,
    /// [`RetryScheduler::answer_count`] from before they were asked.
    pub answer_count: u64,
}

impl ModelOutage {
    /// Returns the outage of all models of `chain`, the last of which failed with `error`.
    pub fn of_chain(chain: &FallbackChain, error: LlmError, answer_count: u64) -> Self {
        Self { error, failures: chain.failures(), providers: chain.providers(), answer_count }
    }

    /// Returns the failure that the turn waits for.
    fn failure(&self) -> &LlmError {
        self.failures.iter().find(|failure| failure.is_service_condition()).unwrap_or(&self.error)
    }
}

/// Parks turns that have to wait.
pub struct Parking {
    pub bus: Arc<MessageBus>,
    pub retries: Arc<RetryScheduler>,
    /// `agent.wait_for_model`; zero means for ever.
    pub wait_for_model: HumanDuration,
    pub phrases: &'static Phrases,
}

/// The writes of the commit that parks a turn.
#[derive(Clone)]
struct ParkingCommit {
    turn: Uuid,
    /// The first step, if it is not in the store yet.
    context: Option<String>,
    /// The step and the notice of a turn that is parked for the first time.
    first: Option<(String, Option<OutboundDraft>)>,
    /// The turns whose ends the parked turn waits for.
    awaited: Vec<Uuid>,
    /// Notices for the owner, one for each service, by the provider's name.
    notices: Vec<(String, String)>,
    bus: Arc<MessageBus>,
}

/// The result of the commit that parks a turn.
struct ParkingResult {
    must_recheck: bool,
    /// The notice for the sender, if there is one.
    notice: Option<InsertedOutbound>,
    /// The turn waits for the owner's approval, or for an answer to a question.
    is_person_asked: bool,
    /// The channels that have to deliver the owner's notices.
    channels: Vec<String>,
    /// The providers whose failures those notices report.
    reported: Vec<String>,
}

impl Parking {
    /// Returns the callback to call for each answer of a model; see [`FallbackChain::new`]. The owner gets a notice of a refused key,
    /// which another model's answer would otherwise hide.
    pub fn on_answer(&self) -> impl Fn(&[ModelChoice], &[LlmError]) + Send + Sync + 'static {
        let (retries, bus, phrases) = (self.retries.clone(), self.bus.clone(), self.phrases);
        move |asked, failures| {
            let Some(answered) = asked.last() else { return };
            let provider = answered.provider.name();
            retries.provider_answered(provider);
            bus.service_answered(provider, &answered.model);
            let failed = failures.iter().zip(asked);
            for (failure, choice) in failed.filter(|(failure, _)| failure.kind == LlmErrorKind::Auth) {
                let refused = &failure.provider;
                let words = phrases.service_message(failure.code(), refused);
                let mend = fill(phrases.service_key_mend, &[refused]);
                let notice = fill(phrases.service_replaced, &[&words, &failure.owner_message(), provider, &mend]);
                bus.notify_refused_key(refused, &choice.model, notice);
            }
        }
    }

    /// Spreads the retries of the turns that waited for a model when the last process ended.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn restore_waits(&self) -> Result<(), StoreError> {
        let waiting = self.bus.store().read(inbox::turns_waiting_for_model).await?;
        self.retries.restore(waiting.into_iter().map(|(turn, session)| (turn, session.into())));
        Ok(())
    }

    /// Parks the turn until a model may be asked again; returns true if the turn must be checked again at once. `waiting_since` is
    /// the time when the turn was first parked, `context` a first step that is not in the store yet. While the store cannot be
    /// written, the session's lane is held.
    ///
    /// # Errors
    /// The turn is given up: it has waited for `agent.wait_for_model`, or the store permanently rejects the commit.
    pub async fn park_for_model(
        &self,
        started: &StartedTurn,
        waiting_since: Option<i64>,
        context: Option<String>,
        outage: ModelOutage,
    ) -> Result<bool, TurnError> {
        let StartedTurn { turn, session, rows, last, origin, .. } = started;
        // A revived dead letter starts a new wait.
        let is_revived = rows.first().is_some_and(|first| first.state == MessageStatus::Queued);
        let before = waiting_since.filter(|_| !is_revived);
        let since = before.unwrap_or_else(now_ms);
        // Setting the clock back lengthens the wait by the same amount.
        let waited = Duration::from_millis(u64::try_from(now_ms() - since).unwrap_or(0));
        let limit = self.wait_for_model.0;
        let left = if limit.is_zero() { Duration::MAX } else { limit.saturating_sub(waited) };
        if left.is_zero() {
            return Err(self.unavailable(last, outage.error));
        }
        let failures = outage.failures.iter().filter(|failure| failure.is_service_condition());
        let notices = failures.filter_map(|failure| self.owner_notice(failure, before.is_some())).collect();
        let first = match before {
            Some(_) => None,
            None => {
                let step = serde_json::to_string(&StepBody::Waiting { since }).map_err(StoreError::from)?;
                // No person in a chat waits for the reply of a job or a sub-agent, so no notice is sent.
                let has_reader = !origin.runs_for_job_or_agent();
                let notice = has_reader.then(|| self.notice(*turn, last, outage.failure()));
                Some((step, notice))
            }
        };
        let bus = self.bus.clone();
        let commit = ParkingCommit { turn: *turn, context, first, awaited: Vec::new(), notices, bus };
        let ParkingResult { must_recheck, notice, .. } = self.commit(commit).await?;
        crash::point("waiting_committed", &last.content);
        tracing::warn!(%turn, %session, error = %outage.error, "no model is available; the turn waits");
        if let Some(notice) = notice {
            self.bus.outbound_inserted(&last.channel, notice);
        }
        let longest = outage.failures.iter().chain([&outage.error]).map(|failure| longest_wait(failure.kind)).min();
        let longest = longest.unwrap_or(LONGEST_OUTAGE_WAIT);
        let ModelOutage { error: LlmError { retry_after, .. }, providers, answer_count, .. } = outage;
        let at_latest = left.min(LONGEST_WAIT);
        self.retries.park(*turn, session, RetryTerms { providers, retry_after, longest, at_latest, answer_count });
        Ok(must_recheck)
    }

    /// Parks the turn, without a deadline, until one of the `awaited` turns has ended, or an `awaited` approval or question has its
    /// answer. Returns true if the turn must be checked again at once. While the store cannot be written, the session's lane is
    /// held.
    ///
    /// # Errors
    /// The store permanently rejects the commit.
    pub async fn park_for_turns(
        &self,
        started: &StartedTurn,
        context: Option<String>,
        awaited: Vec<Uuid>,
    ) -> Result<bool, TurnError> {
        let StartedTurn { turn, session, rows, last, .. } = started;
        tracing::info!(%turn, %session, turns = awaited.len(), "the turn waits for sub-agents or for a person");
        // Before the commit: if an awaited turn ends right after the commit, this turn must already be registered as waiting.
        self.retries.await_others(*turn);
        let bus = self.bus.clone();
        let commit = ParkingCommit { turn: *turn, context, first: None, awaited, notices: Vec::new(), bus };
        let ParkingResult { must_recheck, is_person_asked, .. } = self.commit(commit).await?;
        if must_recheck {
            self.retries.resume(*turn);
        } else if is_person_asked {
            self.retries.report_parked();
            // Callers that wait for the reply read the question.
            self.bus.wake_waiters(&rows.iter().map(|row| row.id).collect::<Vec<_>>());
        }
        crash::point("waiting_committed", &last.content);
        Ok(must_recheck)
    }

    async fn commit(&self, commit: ParkingCommit) -> Result<ParkingResult, StoreError> {
        let turn = commit.turn;
        let work = || {
            let commit = commit.clone();
            move |connection: &Connection| commit.write(connection)
        };
        let failed =
            |error: &StoreError| tracing::error!(%turn, %error, "a turn could not be parked; its session waits");
        let result = match self.bus.store().write_until(Durability::Synced, work, failed).await {
            Err(StoreError::Closed) => return std::future::pending().await,
            other => other?,
        };
        result.reported.iter().for_each(|provider| self.bus.services().mark_reported(provider));
        result.channels.iter().for_each(|channel| self.bus.outbound_written(channel, 1));
        Ok(result)
    }

    /// Records the failure of a service for a turn; `is_retry` is true if the turn waited before. Returns the name of the service
    /// and the notice for the owner, if the owner needs one.
    fn owner_notice(&self, failure: &LlmError, is_retry: bool) -> Option<(String, String)> {
        let (LlmError { kind, provider, .. }, message) = (failure, failure.owner_message());
        let fault = ProviderFault::new(kind.code(), message.clone(), now_ms(), kind.needs_owner());
        if !self.bus.services().record_fault(provider, fault, is_retry) {
            return None;
        }
        let mend = match kind {
            LlmErrorKind::Auth => fill(self.phrases.service_key_mend, &[provider]),
            LlmErrorKind::Quota => self.phrases.service_quota_mend.to_owned(),
            _ => String::new(),
        };
        let words = self.phrases.service_message(kind.code(), provider);
        Some((provider.clone(), fill(self.phrases.service_notice, &[&words, &message, &mend])))
    }

    fn notice(&self, turn: Uuid, last: &InboxRow, error: &LlmError) -> OutboundDraft {
        let text = fill(self.phrases.waiting, &[&self.phrases.service_message(error.code(), &error.provider)]);
        let mut draft = OutboundDraft::to_sender(last, turn, OutboxSlot::notice(NoticeKind::Waiting), text);
        draft.body.context.notice = Some("waiting".to_owned());
        draft
    }

    /// Returns the error of a turn that has waited for `agent.wait_for_model`.
    fn unavailable(&self, last: &InboxRow, error: LlmError) -> TurnError {
        let limit = self.wait_for_model.to_string();
        let values = [limit, last.id.to_string(), error.to_public()];
        TurnError::new(ErrorCode::Unavailable, "turn").with(values).caused_by(error)
    }
}

/// Returns the upper limit of the growing waits for this kind of failure.
fn longest_wait(kind: LlmErrorKind) -> Duration {
    match kind {
        LlmErrorKind::Auth | LlmErrorKind::Quota => LONGEST_QUOTA_WAIT,
        LlmErrorKind::RateLimit | LlmErrorKind::Server => LONGEST_FAILURE_WAIT,
        _ => LONGEST_OUTAGE_WAIT,
    }
}

impl ParkingCommit {
    /// Parks the turn. The turn must be checked again if it was stopped meanwhile, or if nothing is left to wait for.
    fn write(&self, connection: &Connection) -> Result<ParkingResult, StoreError> {
        let Self { turn, context, first, awaited, notices, bus } = self;
        let (turn, (note, draft)) = (*turn, first.as_ref().map(|(note, draft)| (note, draft.as_ref())).unzip());
        let steps = [("context", context.as_ref()), ("note", note)];
        let steps = steps.into_iter().filter_map(|(kind, step)| Some((kind, step?.as_str())));
        turn_steps::append_all(connection, turn, steps)?;
        let notice = draft.flatten().map(|draft| draft.insert(connection)).transpose()?;
        let (mut channels, mut reported) = (Vec::new(), Vec::new());
        for (provider, content) in notices {
            // Another turn may have reported the same failure since.
            if bus.services().has_notice(connection, provider)? {
                continue;
            }
            if let Some(channel) = bus.write_owner_notice(
                connection,
                daoyou_channels::new_id(),
                OutboxSlot::notice(NoticeKind::Service),
                content.clone(),
            )? {
                channels.push(channel);
                reported.push(provider.clone());
            }
        }
        bus.services().write(connection, &reported)?;
        inbox::mark_waiting(connection, turn)?;
        meta::end_isolation(connection, turn)?;
        let (mut must_recheck, mut is_person_asked) = (inbox::is_cancelled(connection, turn)?, false);
        for id in awaited {
            if let Some(row) = approvals::find(connection, *id)? {
                is_person_asked = true;
                must_recheck |= row.state != ApprovalState::Pending;
            } else if let Some(row) = questions::find(connection, *id)? {
                is_person_asked = true;
                must_recheck |= row.state != QuestionState::Pending;
            } else {
                must_recheck |= spawns::is_over(connection, *id)?;
            }
        }
        Ok(ParkingResult { must_recheck, notice, is_person_asked, channels, reported })
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::bus::testing;
    use crate::store::{Store, outbox};

    /// A fault counts as reported only if the commit that holds its notice is written, and is reported once.
    #[tokio::test]
    async fn a_service_fault_is_reported_by_the_commit_of_its_notice() {
        let (_folder, store) = Store::temporary();
        let bus = testing::notifying_bus(store.clone(), 10);
        let fault = ProviderFault::new("llm_auth", "HTTP 401".to_owned(), 7, true);
        assert!(bus.services().record_fault("p", fault, false));
        let commit = ParkingCommit {
            turn: daoyou_channels::new_id(),
            context: None,
            first: None,
            awaited: Vec::new(),
            notices: vec![("p".to_owned(), "p rejects its key".to_owned())],
            bus: bus.clone(),
        };
        let is_reported = || bus.services().all()["p"].is_reported;
        let failing = commit.clone();
        let failed = store.write(Durability::Synced, move |connection| {
            failing.write(connection)?;
            Err::<(), _>(StoreError::Closed)
        });
        assert!(failed.await.is_err() && !is_reported(), "the notice was undone");
        for reported in [vec!["p".to_owned()], Vec::new()] {
            let commit = commit.clone();
            let written = store.write(Durability::Synced, move |connection| commit.write(connection)).await.unwrap();
            assert_eq!((written.reported, is_reported()), (reported, false));
        }
        let stored = store.read(crate::bus::stored_service_faults).await.unwrap();
        assert!(stored["p"].is_reported, "a restart sends no second notice");
    }

    /// Otherwise each wait of a revived turn would take a place of the channel's capacity until the next start.
    #[tokio::test]
    async fn the_waiting_notice_of_a_revived_turn_is_counted_once() {
        let (_folder, store) = Store::temporary();
        let (bus, turn) = (testing::bus(store.clone(), 10), Uuid::from_u128(1));
        let insert = move |connection: &Connection| {
            inbox::insert(connection, &inbox::NewInboxRow::sample(turn, "webhook:in:c"))?;
            inbox::of_turn(connection, turn)
        };
        let rows = store.write(Durability::Logged, insert).await.unwrap();
        let phrases = Phrases::of(crate::text::Language::En);
        let (wait_for_model, retries) = (HumanDuration::from_secs(60), Arc::default());
        let parking = Parking { bus: bus.clone(), retries, wait_for_model, phrases };
        let (session, last, cancel) = ("webhook:in:c".into(), rows[0].clone(), CancellationToken::new());
        let (origin, steps, agent, found_tools) = Default::default();
        let started = StartedTurn { turn, session, rows, last, origin, steps, agent, found_tools, cancel };
        let error = LlmError::new(LlmErrorKind::Server, "p", "HTTP 500");
        let failures = vec![error.clone()];
        let outage = ModelOutage { error, failures, providers: vec!["p".to_owned()], answer_count: 0 };
        for _ in 0..3 {
            // Its rows are queued, so the turn begins a new wait.
            parking.park_for_model(&started, Some(7), None, outage.clone()).await.unwrap();
            assert_eq!(bus.depths().1, 1);
        }
    }

    /// Some services refuse one model with 403, and accept the key for others.
    #[tokio::test]
    async fn only_an_answer_of_the_refused_model_makes_its_next_refusal_a_new_notice() {
        let (_folder, store) = Store::temporary();
        let bus = testing::notifying_bus(store.clone(), 10);
        for (answered, expected) in [(None, 1), (Some("other"), 1), (Some("refused"), 2), (Some("other"), 2)] {
            if let Some(model) = answered {
                bus.service_answered("p", model);
            }
            // The other model may be held back because of the refusal.
            for model in ["refused", "other"] {
                bus.notify_refused_key("p", model, "p refuses its key".to_owned());
            }
            // The tasks in the background pass their writes to the store, which does them in order.
            tokio::task::yield_now().await;
            let written = store.write(Durability::Logged, outbox::open_by_channel).await.unwrap();
            assert_eq!(written, [("webhook:in".to_owned(), expected)], "{answered:?}");
        }
    }

    #[tokio::test]
    async fn only_turns_that_wait_for_a_model_are_restored() {
        let (_folder, store) = Store::temporary();
        let bus = testing::notifying_bus(store.clone(), 10);
        let [model, answered, person] = [1, 2, 3].map(Uuid::from_u128);
        let rows = move |connection: &Connection| {
            for (turn, steps) in [(model, &["waiting"][..]), (answered, &["waiting", "response"]), (person, &[])] {
                inbox::insert(connection, &inbox::NewInboxRow::sample(turn, &turn.to_string()))?;
                for step in steps {
                    let kind = if *step == "waiting" { "note" } else { step };
                    turn_steps::append(connection, turn, kind, &format!(r#"{{"step":"{step}","since":7}}"#))?;
                }
                inbox::mark_running(connection, inbox::last_seq(connection)?)?;
                inbox::mark_waiting(connection, turn)?;
            }
            Ok(())
        };
        store.write(Durability::Logged, rows).await.unwrap();
        let retries = Arc::new(RetryScheduler::default());
        let phrases = Phrases::of(crate::text::Language::En);
        let parking = Parking { bus, retries: retries.clone(), wait_for_model: HumanDuration::from_secs(60), phrases };
        parking.restore_waits().await.unwrap();
        assert_eq!([model, answered, person].map(|turn| retries.must_wait(turn)), [true, false, false]);
        assert_eq!(retries.next_due().await.as_str(), model.to_string());
    }
}
