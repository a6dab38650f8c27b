//! The end of a turn: one commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use daoyou_channels::backoff::Backoff;
use daoyou_channels::{ErrorInfo, SessionKey};
use uuid::Uuid;

use super::errands::{self, ErrandRules, Followed};
use super::learning::{Learning, Went};
use super::phrases::Phrases;
use super::progress::Progress;
use super::shared_view;
use super::slash::SessionChange;
use super::spending::{ModelSpending, Spending};
use super::standing::Settling;
use super::waiting::WaitingRoom;
use crate::bus::{EndedTurn, MessageBus, OutboundBody, OutboundDraft};
use crate::chat::ChatMessage;
use crate::crash;
use crate::memory;
use crate::metrics::{TurnOutcome, TurnPhase};
use crate::origin::{SessionNote, TurnOrigin};
use crate::store::inbox::{self, InboxRow, State};
use crate::store::usage::{self, Tokens};
use crate::store::{Commit, Connection, StoreError, forgetting, messages, meta, now_ms, points, turn_steps};

/// What the turn adds to its session.
#[derive(Clone, Debug)]
pub enum Append {
    Nothing,
    /// The user's message, what the journal holds after it, with open calls closed by `reason`, and the reply. The
    /// journal is read within the commit, so that a step written at the last moment is not missed.
    Turn {
        user: ChatMessage,
        reason: &'static str,
    },
    /// What the session is to know without a turn of its own; nothing is answered.
    Note(SessionNote),
}

/// How a turn ends.
#[derive(Clone, Debug)]
pub struct Ending {
    pub turn: Uuid,
    /// The messages it answers; the reply goes to the last one's chat.
    pub rows: Vec<InboxRow>,
    pub reply: String,
    /// A stable word when it failed.
    pub error: Option<&'static str>,
    /// `Done`, or `Dead` when it was given up.
    pub state: State,
    pub append: Append,
    pub change: SessionChange,
    /// What it means for the memory of its session, where the turn is added to it.
    pub settling: Option<Settling>,
    /// What is remembered of it by itself, where it is added to its session.
    pub learning: Option<Learning>,
    /// `PROVIDER/MODEL`, empty when none was asked.
    pub model: String,
    pub phrases: &'static Phrases,
}

impl Ending {
    /// Writes the end and tells who waits; a store that cannot take it is tried again until it can, and holds the
    /// session's lane meanwhile.
    pub async fn write(self, bus: &Arc<MessageBus>, rules: &ErrandRules, room: &WaitingRoom) -> Written {
        let Some(last) = self.rows.last() else { return Written::default() };
        let (session, channel) = (SessionKey::from(last.session.as_str()), last.channel.clone());
        let ids: Vec<Uuid> = self.rows.iter().map(|row| row.id).collect();
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let begun = Instant::now();
        let Ended { written, is_answered, followed } = loop {
            let (ending, bus_of_commit, rules) = (self.clone(), bus.clone(), rules.clone());
            let commit = move |connection: &Connection| ending.commit(connection, &bus_of_commit, &rules);
            match bus.store().write(Commit::Synced, commit).await {
                Ok(ended) => break ended,
                Err(StoreError::Closed) => return std::future::pending().await,
                Err(error) => {
                    tracing::error!(turn = %self.turn, %session, %error, "the end of a turn could not be written; its session waits");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        };
        crash::point("end_committed", &last.content);
        let turns = &bus.metrics().turns;
        turns.phase(TurnPhase::End, begun.elapsed());
        turns.ended(self.outcome(), since(self.rows.first().unwrap_or(last)));
        bus.inbound_ended(&session, &ids);
        if is_answered {
            bus.outbound_written(&channel, 1);
        }
        errands::wake(bus, room, followed);
        written
    }

    fn outcome(&self) -> TurnOutcome {
        match (self.state, self.error) {
            (State::Dead, _) => TurnOutcome::Dead,
            (_, None) => TurnOutcome::Done,
            (_, Some("stopped")) => TurnOutcome::Cancelled,
            (_, Some(code)) => TurnOutcome::Failed(code),
        }
    }

    fn commit(&self, connection: &Connection, bus: &MessageBus, rules: &ErrandRules) -> Result<Ended, StoreError> {
        let Some(last) = self.rows.last() else { return Ok(Ended::default()) };
        let mut ended = Ended::default();
        if inbox::finish(connection, self.turn, self.state)? == 0 {
            // Written before, by a commit whose success was not told.
            ended.written.more = !inbox::open_of_session(connection, &last.session, 1)?.is_empty();
            return Ok(ended);
        }
        let mut is_struck = false;
        match &self.append {
            Append::Nothing => {}
            Append::Turn { user, reason } => {
                (ended.written.is_learned, is_struck) =
                    self.append_messages(connection, &last.session, user, reason)?;
            }
            Append::Note(told) => append_note(connection, &last.session, self.turn, told)?,
        }
        match &self.change {
            SessionChange::None => {}
            SessionChange::NewEpoch => messages::new_epoch(connection, &last.session)?,
            SessionChange::Model(model) => messages::set_model(connection, &last.session, model.as_deref())?,
            SessionChange::NamePoint { turn, name } => points::set_name(connection, &last.session, *turn, name)?,
            SessionChange::Restore(point) => drop(points::restore(connection, point)?),
            SessionChange::Forget(id) => {
                memory::forget(connection, &[*id])?;
                ended.written.is_learned = true;
                // The words by which it was found are gone, too.
                forgetting::forget_command(connection, &self.turn.to_string(), &format!("/forget {id}"))?;
            }
        }
        ended.followed = self.follow(connection, bus, rules, last)?;
        if let Some(reply) = &ended.followed.reply {
            self.reply_draft(last, reply)?.insert(connection)?;
            ended.is_answered = true;
        }
        if is_struck {
            forgetting::forget_delivered(connection, &self.turn.to_string())?;
        }
        if meta::get(connection, meta::ALONE)?.is_some_and(|alone| alone == self.turn.to_string()) {
            meta::set(connection, meta::ALONE, "")?;
        }
        ended.written.more = !inbox::open_of_session(connection, &last.session, 1)?.is_empty();
        Ok(ended)
    }

    /// What is delivered to the chat, and what else follows.
    fn follow(
        &self,
        connection: &Connection,
        bus: &MessageBus,
        rules: &ErrandRules,
        last: &InboxRow,
    ) -> Result<Followed, StoreError> {
        if let Append::Note(_) = self.append {
            return Ok(Followed::default());
        }
        let origin = TurnOrigin::parse(&last.origin);
        if !origin.is_errand() {
            return Ok(Followed { reply: Some(self.reply.clone()), ..Followed::default() });
        }
        let end = EndedTurn { row: last, turn: self.turn, reply: &self.reply, error: self.error };
        errands::follow(connection, bus, rules, &origin.cause, &end, self.phrases)
    }

    /// Answers whether something was remembered, and whether something of it was forgotten since the turn began.
    fn append_messages(
        &self,
        connection: &Connection,
        session: &str,
        user: &ChatMessage,
        reason: &str,
    ) -> Result<(bool, bool), StoreError> {
        let steps = turn_steps::of_turn(connection, self.turn)?;
        // A journal that cannot be believed adds nothing but the message and what was said about it.
        let progress = Progress::read(&steps).unwrap_or_default();
        let spending = progress.spending.clone();
        let is_tight = progress.context.as_ref().is_some_and(|context| context.is_tight || context.squeezed > 0);
        let read_at = progress.context.as_ref().map(|context| context.forgets);
        let mut said = said(user, progress, reason, &self.reply);
        // What was found in memory for the turn may be forgotten since: then neither log nor journal keep it.
        let turn = self.turn.to_string();
        let is_struck = memory::redact_ended_turn(connection, &turn, &mut said)?;
        let forgets = forgetting::count(connection)?;
        let is_stale = read_at.is_some_and(|read_at| read_at != forgets) && shared_view::forget_found(&mut said);
        if is_struck || is_stale {
            forgetting::forget_steps(connection, &turn)?;
        }
        let bodies = said.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let roles = said.iter().map(ChatMessage::role);
        messages::append(connection, session, self.turn, roles.zip(bodies))?;
        if let Some(settling) = &self.settling {
            settling.write(connection, session, is_tight)?;
        }
        let is_learned = match &self.learning {
            Some(learning) if !is_struck => {
                let (success, model) = (self.error.is_none(), self.model.as_str());
                let went = Went { session, turn: self.turn, said: &said, reply: &self.reply, success, model };
                learning.write(connection, went)?
            }
            _ => false,
        };
        self.count(connection, session, &spending)?;
        Ok((is_learned, is_struck))
    }

    /// Counts what each model used and cost, as the journal holds it; a turn that got no answer counts as one, too.
    fn count(&self, connection: &Connection, session: &str, spending: &Spending) -> Result<(), StoreError> {
        let mut models = spending.models().peekable();
        if models.peek().is_none() && !self.model.is_empty() {
            return usage::add(connection, self.turn, session, &self.model, Tokens::default(), None);
        }
        for (model, ModelSpending { usage: used, cost }) in models {
            let tokens =
                Tokens { turns: 1, input: used.input_tokens, output: used.output_tokens, cached: used.cached_tokens };
            let cost = cost.as_ref().map(|cost| (cost.currency.as_str(), cost.micros));
            usage::add(connection, self.turn, session, model, tokens, cost)?;
        }
        Ok(())
    }

    fn reply_draft(&self, last: &InboxRow, reply: &str) -> Result<OutboundDraft, StoreError> {
        Ok(OutboundDraft {
            turn: self.turn,
            slot: "reply".to_owned(),
            channel: last.channel.clone(),
            chat_id: last.chat_id.clone(),
            body: OutboundBody {
                content: reply.to_owned(),
                session: SessionKey::from(last.session.as_str()),
                in_reply_to: Some(last.id),
                attachments: Vec::new(),
                metadata: serde_json::from_str(&last.metadata)?,
                context: TurnOrigin::parse(&last.origin).reply,
                error: self.error.map(|code| ErrorInfo { code: code.to_owned() }),
            },
        })
    }
}

/// What a written end leaves to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// The session has another message.
    pub more: bool,
    /// Something was remembered or forgotten.
    pub is_learned: bool,
}

/// What the commit of an end came to.
#[derive(Default)]
struct Ended {
    written: Written,
    /// There is something to deliver.
    is_answered: bool,
    followed: Followed,
}

fn append_note(connection: &Connection, session: &str, turn: Uuid, note: &SessionNote) -> Result<(), StoreError> {
    let said =
        [ChatMessage::User { content: note.note.clone(), images: Vec::new() }, ChatMessage::assistant(&note.said)];
    let bodies = said.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    messages::append_told(connection, session, turn, said.iter().map(ChatMessage::role).zip(bodies))
}

/// What a turn adds to its session: the user's message, what was done with open calls closed by `reason`, the reply.
pub(super) fn said(user: &ChatMessage, mut progress: Progress, reason: &str, reply: &str) -> Vec<ChatMessage> {
    progress.close_calls(reason);
    let mut said = vec![user.clone()];
    said.extend(progress.messages);
    said.push(ChatMessage::assistant(reply));
    for message in &mut said {
        // What the model thought is in the journal; the session keeps what was said, and the thoughts behind calls,
        // which some services want back in all later turns (DeepSeek's thinking mode, Gemini's signatures).
        if let ChatMessage::Assistant { reasoning, tool_calls, .. } = message
            && tool_calls.is_empty()
        {
            *reasoning = None;
        }
    }
    said
}

/// How long ago a message was accepted; a clock that was set back makes it now.
pub(super) fn since(row: &InboxRow) -> Duration {
    Duration::from_millis(u64::try_from(now_ms() - row.received_at).unwrap_or(0))
}
