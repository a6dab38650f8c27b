//! A turn goes to rest: no model can be asked, its message is kept, and its sender is told once. Or it waits for turns of
//! sub-agents, of which nobody is told.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::SessionKey;
use daoyou_channels::backoff::Backoff;
use uuid::Uuid;

use super::error::{ErrorCode, TurnError};
use super::lane::LaneRunner;
use super::phrases::fill;
use super::progress::{Progress, StepBody};
use super::waiting::{Awaited, LONGEST_FAILURE_WAIT, LONGEST_OUTAGE_WAIT, LONGEST_QUOTA_WAIT};
use crate::bus::{MessageBus, OutboundBody, OutboundDraft, ServiceFault};
use crate::crash;
use crate::llm::{LlmError, LlmErrorKind};
use crate::origin::TurnOrigin;
use crate::store::inbox::{self, InboxRow, State};
use crate::store::{Commit, Connection, StoreError, meta, now_ms, spawns, turn_steps};

const SLOT: &str = "notice:waiting";
/// No turn is left alone for longer than this, whatever a service asks for: it may have said so by mistake.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// No model that could answer can be asked: its service is down, refuses the key, or takes no more requests.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    pub error: LlmError,
    /// What each of them failed with.
    pub failures: Vec<LlmError>,
    /// Those that could.
    pub providers: Vec<String>,
    /// Of the waiting room, from before they were asked.
    pub mark: u64,
}

impl Outage {
    /// The failure that the turn waits for.
    fn failure(&self) -> &LlmError {
        self.failures.iter().find(|failure| failure.is_service_condition()).unwrap_or(&self.error)
    }
}

/// A turn that is to rest.
pub(super) struct Resting<'a> {
    pub turn: Uuid,
    pub session: &'a SessionKey,
    /// The messages that it answers, as they stood when it was started.
    pub rows: &'a [InboxRow],
    pub progress: &'a Progress,
    /// A first step that is not in the store yet.
    pub context: Option<String>,
}

/// What the commit that lays a turn to rest writes.
#[derive(Clone)]
struct Laid {
    turn: Uuid,
    context: Option<String>,
    /// The step and the notice of a turn that rests for the first time.
    first: Option<(String, Option<OutboundDraft>)>,
    /// The turns whose ends it waits for.
    awaited: Vec<Uuid>,
    /// What the owner is to be told, once for each service, by the provider's name.
    owner: Vec<(String, String)>,
    bus: Arc<MessageBus>,
}

/// What came of the commit.
struct Rested {
    look_again: bool,
    /// The channel that has the owner's notices to deliver.
    tells: Vec<String>,
}

impl LaneRunner {
    /// Lays the turn to rest; answers whether it is to be looked at again at once. A store that cannot be written holds
    /// the session's lane.
    ///
    /// # Errors
    /// It is given up: it has waited for `agent.wait_for_model`.
    pub(super) async fn rest(&self, resting: Resting<'_>, outage: Outage) -> Result<bool, TurnError> {
        let Some((first, last)) = resting.rows.first().zip(resting.rows.last()) else {
            return Err(StoreError::Row("a turn without messages".to_owned()).into());
        };
        // A dead message that was revived waits anew.
        let before = resting.progress.waiting_since.filter(|_| first.state != State::Queued);
        let since = before.unwrap_or_else(now_ms);
        // A clock that was set back makes it wait longer, not without end: each step back costs what it was set back by.
        let waited = Duration::from_millis(u64::try_from(now_ms() - since).unwrap_or(0));
        let limit = self.config.wait_for_model.0;
        let left = if limit.is_zero() { Duration::MAX } else { limit.saturating_sub(waited) };
        if left.is_zero() {
            return Err(self.unavailable(last, outage.error));
        }
        let owner = outage.failures.iter().filter(|failure| failure.is_service_condition());
        let owner: Vec<_> = owner.filter_map(|failure| self.news_for_owner(failure)).collect();
        let (turn, channel) = (resting.turn, last.channel.clone());
        let laid = Laid {
            turn,
            context: resting.context,
            first: match before {
                Some(_) => None,
                None => Some((
                    serde_json::to_string(&StepBody::Waiting { since }).map_err(StoreError::from)?,
                    // Nobody waits for the answer of an errand.
                    if TurnOrigin::parse(&last.origin).is_errand() {
                        None
                    } else {
                        Some(self.notice(turn, last, outage.failure())?)
                    },
                )),
            },
            awaited: Vec::new(),
            owner,
            bus: self.bus.clone(),
        };
        let is_told = laid.first.as_ref().is_some_and(|(_, notice)| notice.is_some());
        let look_again = self.lay(laid).await;
        crash::point("waiting_committed", &last.content);
        tracing::warn!(%turn, session = %resting.session, error = %outage.error, "no model can be asked; the turn waits");
        if is_told {
            self.bus.outbound_written(&channel, 1);
        }
        let longest = outage.failures.iter().chain([&outage.error]).map(|failure| longest_wait(failure.kind)).min();
        let longest = longest.unwrap_or(LONGEST_OUTAGE_WAIT);
        let Outage { error: LlmError { retry_after, .. }, providers, mark, .. } = outage;
        let at_latest = left.min(LONGEST_WAIT);
        self.room.enter(turn, resting.session, Awaited { providers, retry_after, longest, at_latest, mark });
        Ok(look_again)
    }

    /// Lays the turn to rest until one of these turns has ended, without a deadline; answers whether it is to be looked at
    /// again at once. A store that cannot be written holds the session's lane.
    pub(super) async fn rest_until(&self, resting: Resting<'_>, awaited: Vec<Uuid>) -> bool {
        let Resting { turn, session, rows, context, .. } = resting;
        tracing::info!(%turn, %session, turns = awaited.len(), "the turn waits for sub-agents");
        // Before the commit: an end that comes right after it must find the turn asleep, to wake it.
        self.room.sleep(turn);
        let look_again =
            self.lay(Laid { turn, context, first: None, awaited, owner: Vec::new(), bus: self.bus.clone() }).await;
        if look_again {
            self.room.rouse(turn);
        }
        crash::point("waiting_committed", rows.last().map_or("", |row| row.content.as_str()));
        look_again
    }

    async fn lay(&self, laid: Laid) -> bool {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let write = laid.clone();
            match self.bus.store().write(Commit::Synced, move |connection| write.commit(connection)).await {
                Ok(Rested { look_again, tells }) => {
                    tells.iter().for_each(|channel| self.bus.outbound_written(channel, 1));
                    return look_again;
                }
                Err(StoreError::Closed) => return std::future::pending().await,
                Err(error) => {
                    tracing::error!(turn = %laid.turn, %error, "a turn could not be laid to rest; its session waits");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    /// Notes what a service failed with; answers its name and what the owner is to be told of it, if that is news.
    fn news_for_owner(&self, failure: &LlmError) -> Option<(String, String)> {
        let (LlmError { kind, provider, .. }, message) = (failure, failure.owner_words());
        let must_act = matches!(kind, LlmErrorKind::Auth | LlmErrorKind::Quota);
        let fault =
            ServiceFault { code: kind.code().to_owned(), message: message.clone(), since: now_ms(), is_told: false };
        if !self.bus.services().note(provider, fault, must_act) {
            return None;
        }
        let mend = match kind {
            LlmErrorKind::Auth => fill(self.phrases.service_key_mend, &[provider]),
            LlmErrorKind::Quota => self.phrases.service_quota_mend.to_owned(),
            _ => String::new(),
        };
        let words = self.phrases.service_words(kind.code(), provider);
        Some((provider.clone(), fill(self.phrases.service_notice, &[&words, &message, &mend])))
    }

    fn notice(&self, turn: Uuid, last: &InboxRow, error: &LlmError) -> Result<OutboundDraft, StoreError> {
        Ok(OutboundDraft {
            turn,
            slot: SLOT.to_owned(),
            channel: last.channel.clone(),
            chat_id: last.chat_id.clone(),
            body: OutboundBody {
                content: fill(self.phrases.waiting, &[&self.phrases.service_words(error.code(), &error.provider)]),
                session: SessionKey::from(last.session.as_str()),
                // It is no reply: that is still to come.
                in_reply_to: None,
                attachments: Vec::new(),
                metadata: serde_json::from_str(&last.metadata)?,
                context: TurnOrigin::parse(&last.origin).reply.notice("waiting"),
                error: None,
            },
        })
    }

    /// It has waited for `agent.wait_for_model`.
    fn unavailable(&self, last: &InboxRow, error: LlmError) -> TurnError {
        let limit = self.config.wait_for_model.to_string();
        let told = [limit, last.id.to_string(), error.to_public()];
        TurnError::new(ErrorCode::Unavailable, "turn").with(told).caused_by(error)
    }
}

/// The longest of the growing waits for a service that failed so.
fn longest_wait(kind: LlmErrorKind) -> Duration {
    match kind {
        LlmErrorKind::Auth | LlmErrorKind::Quota => LONGEST_QUOTA_WAIT,
        LlmErrorKind::RateLimit | LlmErrorKind::Server => LONGEST_FAILURE_WAIT,
        _ => LONGEST_OUTAGE_WAIT,
    }
}

impl Laid {
    /// Answers whether it was told to stop meanwhile, or has nothing to wait for any more.
    fn commit(self, connection: &Connection) -> Result<Rested, StoreError> {
        let Self { turn, context, first, awaited, owner, bus } = self;
        if let Some(context) = context {
            turn_steps::append(connection, turn, "context", &context)?;
        }
        if let Some((note, notice)) = first {
            turn_steps::append(connection, turn, "note", &note)?;
            if let Some(notice) = notice {
                notice.insert(connection)?;
            }
        }
        let mut tells = Vec::new();
        for (provider, content) in owner {
            let told = bus.tell_owner(connection, daoyou_channels::new_id(), "notice:service", content)?;
            if told.is_some() {
                bus.services().told(&provider);
            }
            tells.extend(told);
        }
        bus.services().write(connection)?;
        inbox::rest(connection, turn)?;
        if meta::get(connection, meta::ALONE)?.is_some_and(|alone| alone == turn.to_string()) {
            meta::set(connection, meta::ALONE, "")?;
        }
        let is_stopped = inbox::of_turn(connection, turn)?.iter().any(|row| row.cancel);
        Ok(Rested { look_again: is_stopped || spawns::any_over(connection, &awaited)?, tells })
    }
}
