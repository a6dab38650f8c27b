//! The message of a run: a prompt for the model, or a text that is delivered without one.

use std::time::Duration;

use daoyou_channels::settings::HumanDuration;
use daoyou_channels::trust::{Author, trust_of};
use daoyou_channels::{InboundMessage, OutboundContext, SessionKey, Trust, TurnSettings, email};
use jiff::Timestamp;

use super::job_text::display_name;
use super::prompt::{self, PromptNames};
use super::{CronSettings, DeliveryMode, Job, JobBody, JobTask};
use crate::bus::InboundDraft;
use crate::origin::{JobTurn, OwnerIdentity, TurnCause, TurnOrigin};
use crate::store::{Connection, StoreError, inbox, job_runs};
use crate::text::minute_in_zone;

/// The sender of the message.
pub const SENDER: &str = "cron";
/// Why a job fails whose maker was the owner by an entry of `owner.identities` that is gone.
const NEEDS_OWNER: &str =
    "the sender who made it is no longer in owner.identities, and only the owner has jobs for another chat or session";

/// A slot that runs.
#[derive(Clone, Copy, Debug)]
pub struct RunSlot {
    pub due: Timestamp,
    /// The number of missed slots before this one, which the run replaces.
    pub passed_over: usize,
    /// A person started the run by hand, outside the schedule.
    pub by_hand: bool,
}

/// The work of a run.
#[derive(Clone, Debug)]
pub enum RunWork {
    /// A turn answers the message.
    Ask(InboundDraft),
    /// The text is delivered unchanged.
    Say(InboundDraft, String),
    /// The prompt cannot be rendered, for this reason.
    Fail(InboundDraft, String),
}

/// Returns the work of the run of `job` for `slot`, at the time `now`.
///
/// # Errors
/// The store cannot be read. A prompt that cannot be rendered is not an error: the run fails.
pub fn work(
    connection: &Connection,
    job: &Job,
    settings: &CronSettings,
    slot: RunSlot,
    now: Timestamp,
) -> Result<RunWork, StoreError> {
    let found = find_maker(connection, job, settings)?;
    let job = found.as_ref().unwrap_or(job);
    let trust = present_trust(job, settings);
    let draft = |content: String| draft(job, settings, slot, now, trust, content);
    let (JobTask::Message(text) | JobTask::Prompt(text)) = &job.body.task;
    if trust != Trust::Owner && needs_owner(&job.body) {
        return Ok(RunWork::Fail(draft(text.clone()), NEEDS_OWNER.to_owned()));
    }
    Ok(match &job.body.task {
        JobTask::Message(text) => RunWork::Say(draft(text.clone()), text.clone()),
        JobTask::Prompt(template) => match prompt::render(template, &names(connection, job, settings, now)?) {
            Ok(content) => {
                let mut asked = draft(content);
                if template.contains("last_result") {
                    asked.origin.taint.extend(job.result_taint());
                }
                RunWork::Ask(asked)
            }
            Err(reason) => RunWork::Fail(draft(template.clone()), reason),
        },
    })
}

/// Returns the origin data that identifies the run of `job` for `slot`.
pub fn job_turn(job: &Job, slot: RunSlot) -> JobTurn {
    JobTurn {
        job: job.row.id.clone(),
        due: slot.due.as_millisecond(),
        chat: job.body.target.session.clone(),
        by_hand: slot.by_hand,
    }
}

fn draft(
    job: &Job,
    settings: &CronSettings,
    slot: RunSlot,
    now: Timestamp,
    trust: Trust,
    content: String,
) -> InboundDraft {
    let (body, target) = (&job.body, &job.body.target);
    // The row of the run already makes the slot unique, so the message needs no id for deduplication.
    let mut message = InboundMessage::text(&target.channel, &target.chat_id, SENDER, trust, content);
    message.metadata.clone_from(&body.target.metadata);
    (message.received_at, message.session) = (now, Some(job.session()));
    // This turn uses the settings of the chat's turns, or those of the turn that created the job there.
    let TurnOrigin { settings: kept, reply, follow_ups, on_behalf_of, taint, .. } = body.target.origin.clone();
    let about = about(job, settings, slot, now);
    let settings = TurnSettings {
        model: body.model.clone().or(kept.model),
        prompt: kept.prompt,
        tools: kept.tools,
        agent: body.agent.clone().or(kept.agent),
        within: kept.within,
        about,
        fresh: body.session.is_none(),
        is_read_by_others: kept.is_read_by_others,
        ..TurnSettings::default()
    };
    let reply = OutboundContext { job: Some(display_name(&job.row).to_owned()), ..reply };
    let cause = TurnCause::Job(job_turn(job, slot));
    // A former owner who is known now has a memory of their own.
    let former_owner = body.maker.identity.as_ref().filter(|_| trust == Trust::Known);
    let on_behalf_of = on_behalf_of.or_else(|| former_owner.map(|identity| identity.sender.clone()));
    let owner_identity = body.maker.identity.clone().filter(|_| trust == Trust::Owner);
    let origin = TurnOrigin { cause, follow_ups, on_behalf_of, owner_identity, taint, settings, reply };
    InboundDraft::with_origin(message, origin)
}

/// Returns true for a job of an owner by an entry of `owner.identities` that uses another chat or session than its maker's.
fn needs_owner(JobBody { maker, target, session, .. }: &JobBody) -> bool {
    let Some(identity) = &maker.identity else { return false };
    target.channel != identity.channel
        || (&target.channel, &target.chat_id) != (&maker.channel, &maker.chat_id)
        || session.as_ref().is_some_and(|session| *session != target.session)
}

/// Returns the job with its maker if an earlier version did not record the maker: the least trusted sender who has written as the
/// owner in the conversation of the job's chat, or, without one, a sender with the name of the chat.
fn find_maker(connection: &Connection, job: &Job, settings: &CronSettings) -> Result<Option<Job>, StoreError> {
    let JobBody { maker, target, .. } = &job.body;
    if !maker.is_unrecorded() {
        return Ok(None);
    }
    let is_here = (&maker.channel, &maker.chat_id) == (&target.channel, &target.chat_id);
    let session = if is_here { target.session.clone() } else { SessionKey::of_chat(&maker.channel, &maker.chat_id) };
    let written = inbox::owners_of_session(connection, session.as_str(), &maker.channel)?;
    let people = written.iter().filter(|(_, origin)| TurnOrigin::parse(origin).is_from_person());
    let least = people
        .map(|(sender, _)| sender)
        .min_by_key(|sender| listed_trust(settings, &maker.channel, sender).unwrap_or(Trust::Untrusted));
    let mut found = job.clone();
    found.body.maker.identity = OwnerIdentity::of(&maker.channel, least.unwrap_or(&maker.chat_id));
    Ok(Some(found))
}

/// Returns the trust of a run: that of the job's maker, unless the sender for whom the job acts has lost it since.
fn present_trust(job: &Job, settings: &CronSettings) -> Trust {
    let JobBody { maker, target, .. } = &job.body;
    let sender = match maker.trust {
        Trust::Owner => maker.identity.as_ref().map(|identity| (identity.channel.as_str(), identity.sender.as_str())),
        Trust::Known => target.origin.on_behalf_of.as_deref().map(|sender| (target.channel.as_str(), sender)),
        Trust::Untrusted => None,
    };
    match sender.and_then(|(channel, sender)| listed_trust(settings, channel, sender)) {
        // A "*" may have made the sender known, so that it still covers the sender.
        None | Some(Trust::Owner) => maker.trust,
        Some(lower) => lower,
    }
}

/// Returns the trust of a sender by the lists of the channel; `None` if the channel has none: a token of the page makes its holder known.
fn listed_trust(settings: &CronSettings, channel: &str, sender: &str) -> Option<Trust> {
    let lists = settings.trust.of(channel);
    let listing = match channel {
        email::NAME => email::listing_of(&lists, sender),
        channel if channel.starts_with("webhook:") => lists.listing(sender),
        _ => return None,
    };
    Some(trust_of(Author::Holder, listing))
}

/// Returns the lines that tell the model about the run.
fn about(job: &Job, settings: &CronSettings, slot: RunSlot, now: Timestamp) -> Vec<String> {
    let Job { row, body } = job;
    let due = minute_in_zone(slot.due, &job.zone(&settings.zone));
    let first = if slot.by_hand {
        format!("This is the scheduled job {:?}, run by hand now.", row.name)
    } else {
        format!("This is the scheduled job {:?}, due {due}{}.", row.name, late(slot.due, now))
    };
    let mut lines = vec![first];
    if slot.passed_over > 0 {
        lines.push(format!(
            "It was also due {} times before that, which were missed; this run stands for them.",
            slot.passed_over
        ));
    }
    match body.deliver {
        DeliveryMode::Always => {}
        DeliveryMode::OnChange => {
            lines.push("Your answer is sent to the chat only when it is another than the last one.".to_owned());
        }
        DeliveryMode::WhenAsked => lines.push(
            "When there is nothing to tell, answer NO_REPLY and nothing else: that is kept and not sent to the chat."
                .to_owned(),
        ),
    }
    lines
}

fn late(due: Timestamp, now: Timestamp) -> String {
    let late = Duration::try_from(now.duration_since(due)).unwrap_or_default();
    let minutes = late.as_secs() / 60;
    if minutes == 0 { String::new() } else { format!(" (late by {})", HumanDuration::from_secs(minutes * 60)) }
}

fn names(
    connection: &Connection,
    job: &Job,
    settings: &CronSettings,
    now: Timestamp,
) -> Result<PromptNames, StoreError> {
    let zone = job.zone(&settings.zone);
    let last = job_runs::last_run_at(connection, &job.row.id)?.and_then(|at| Timestamp::from_millisecond(at).ok());
    Ok(PromptNames {
        time: minute_in_zone(now, &zone),
        last_run: last.map(|at| minute_in_zone(at, &zone)).unwrap_or_default(),
        last_result: job.row.result.clone().unwrap_or_default(),
        name: job.row.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use daoyou_channels::trust::{AllowList, SenderLists, TrustLists};
    use serde_json::json;

    use super::*;
    use crate::cron::jobs::{self, NewJob};
    use crate::cron::testing::{job_context, on_store};
    use crate::cron::{DeliveryTarget, JobOrigin, JobRequest};
    use crate::store::inbox::NewInboxRow;

    #[tokio::test]
    async fn a_job_loses_the_trust_that_its_sender_loses() {
        let context = job_context(10, &["webhook:in"]);
        let now: Timestamp = "2026-11-21T06:05:00Z".parse().unwrap();
        let job_by = |trust: Trust, sender: Option<&str>| {
            let mut place = JobOrigin::terminal();
            (place.target.channel, place.maker.trust) = ("webhook:in".to_owned(), trust);
            place.target.origin.on_behalf_of = sender.map(str::to_owned);
            let asked = JobRequest::from_json(&json!({"prompt": "x", "every": "1h"})).unwrap();
            asked.into_new_job(&place, &context, now).unwrap()
        };
        let known = job_by(Trust::Known, Some("bob"));
        let (old, owners) = (job_by(Trust::Known, None), job_by(Trust::Owner, None));
        let settings = context.settings.clone();
        let trust = move |new: &NewJob, listed: &[&str]| {
            let (new, mut settings) = (new.clone(), (*settings).clone());
            let trusted = AllowList::new(listed.iter().copied());
            settings.trust = TrustLists::of_one("webhook:in", SenderLists { owners: Vec::new(), trusted });
            on_store(move |connection| {
                let job = jobs::add(connection, &new, 10, now).unwrap();
                let slot = RunSlot { due: now, passed_over: 0, by_hand: false };
                match work(connection, &job, &settings, slot, now).unwrap() {
                    RunWork::Ask(draft) => draft.message.trust,
                    other => panic!("{other:?}"),
                }
            })
        };
        assert_eq!(trust(&known, &["bob"]).await, Trust::Known);
        assert_eq!(trust(&known, &["*"]).await, Trust::Known);
        assert_eq!(trust(&known, &["ann"]).await, Trust::Untrusted);
        assert_eq!(trust(&known, &[]).await, Trust::Untrusted);
        let mut of_token = known.clone();
        of_token.body.target.channel = "page".to_owned();
        assert_eq!(trust(&of_token, &[]).await, Trust::Known, "a token has no list");
        assert_eq!(trust(&old, &[]).await, Trust::Known, "the sender is not known");
        assert_eq!(trust(&owners, &[]).await, Trust::Owner);
    }

    #[tokio::test]
    async fn a_prompt_with_the_last_result_has_its_sources() {
        let context = job_context(10, &["cli"]);
        let now: Timestamp = "2026-11-21T06:05:00Z".parse().unwrap();
        for (prompt, column, expected) in [
            ("again: {{ last_result }}", Some(r#"["web:a.example"]"#), &["web:a.example"][..]),
            ("again: {{ last_result }}", Some("[]"), &[]),
            ("again: {{ last_result }}", None, &["job:j"]),
            ("again", Some(r#"["web:a.example"]"#), &[]),
        ] {
            let asked = JobRequest::from_json(&json!({"prompt": prompt, "every": "1h"})).unwrap();
            let new = asked.into_new_job(&JobOrigin::terminal(), &context, now).unwrap();
            let settings = context.settings.clone();
            let taint = on_store(move |connection| {
                let mut job = jobs::add(connection, &new, 10, now).unwrap();
                (job.row.id, job.row.result) = ("j".to_owned(), Some("sun".to_owned()));
                job.row.result_taint = column.map(str::to_owned);
                let slot = RunSlot { due: now, passed_over: 0, by_hand: false };
                match work(connection, &job, &settings, slot, now).unwrap() {
                    RunWork::Ask(draft) => draft.origin.taint,
                    other => panic!("{other:?}"),
                }
            });
            assert_eq!(taint.await.into_iter().collect::<Vec<_>>(), expected, "{prompt} {column:?}");
        }
    }

    #[tokio::test]
    async fn a_job_of_an_identity_keeps_the_owners_trust_only_as_long_as_the_identity() {
        let context = job_context(10, &["cli", "webhook:in"]);
        let now: Timestamp = "2026-11-21T06:05:00Z".parse().unwrap();
        let mut place = JobOrigin::terminal();
        place.target = DeliveryTarget::of_chat("webhook:in".to_owned(), "c".to_owned());
        let asked = JobRequest::from_json(&json!({"prompt": "x", "every": "1h"})).unwrap();
        let (maker, target) = (&mut place.maker, &place.target);
        (maker.channel, maker.chat_id) = (target.channel.clone(), target.chat_id.clone());
        maker.identity = OwnerIdentity::of("webhook:in", "me");
        let here = asked.into_new_job(&place, &context, now).unwrap();
        let (mut elsewhere, mut other_session) = (here.clone(), here.clone());
        elsewhere.body.target = DeliveryTarget::of_chat("cli".to_owned(), "direct".to_owned());
        other_session.body.session = Some("cli:direct".into());
        let mut terminals = here.clone();
        terminals.body.maker = JobOrigin::terminal().maker;
        let settings = context.settings.clone();
        let run = move |new: &NewJob, owners: &[&str], listed: &[&str]| {
            let (new, mut settings) = (new.clone(), (*settings).clone());
            let owners = owners.iter().map(|name| (*name).to_owned()).collect();
            let trusted = AllowList::new(listed.iter().copied());
            settings.trust = TrustLists::of_one("webhook:in", SenderLists { owners, trusted });
            on_store(move |connection| {
                let job = jobs::add(connection, &new, 10, now).unwrap();
                let slot = RunSlot { due: now, passed_over: 0, by_hand: false };
                match work(connection, &job, &settings, slot, now).unwrap() {
                    RunWork::Ask(draft) => Ok((draft.message.trust, draft.origin.on_behalf_of)),
                    RunWork::Fail(_, reason) => Err(reason),
                    RunWork::Say(..) => panic!("a prompt"),
                }
            })
        };
        let owner = Ok((Trust::Owner, None));
        for job in [&here, &elsewhere, &other_session] {
            assert_eq!(run(job, &["me"], &[]).await, owner);
        }
        assert_eq!(run(&here, &[], &[]).await, Ok((Trust::Untrusted, None)));
        assert_eq!(run(&here, &["you"], &["me"]).await, Ok((Trust::Known, Some("me".to_owned()))));
        for job in [&elsewhere, &other_session] {
            assert_eq!(run(job, &[], &["me"]).await, Err(NEEDS_OWNER.to_owned()));
        }
        assert_eq!(run(&terminals, &[], &[]).await, owner, "the terminal needs no entry");
    }

    /// Earlier versions did not record which of the owner's names on a channel made a job.
    #[tokio::test]
    async fn a_job_without_a_recorded_maker_has_the_least_trust_of_those_who_wrote_as_the_owner_in_its_chat() {
        let context = job_context(10, &["cli", "webhook:in"]);
        let now: Timestamp = "2026-11-21T06:05:00Z".parse().unwrap();
        let mut place = JobOrigin::terminal();
        place.target = DeliveryTarget::of_chat("webhook:in".to_owned(), "c".to_owned());
        (place.maker.channel, place.maker.chat_id) = ("webhook:in".to_owned(), "c".to_owned());
        let asked = JobRequest::from_json(&json!({"prompt": "x", "every": "1h"})).unwrap();
        let old = asked.into_new_job(&place, &context, now).unwrap();
        assert!(old.body.maker.is_unrecorded());
        let mut elsewhere = old.clone();
        elsewhere.body.target = DeliveryTarget::of_chat("cli".to_owned(), "direct".to_owned());
        let settings = context.settings.clone();
        let run = move |new: &NewJob, written: &[&str], owners: &[&str]| {
            let (new, mut settings) = (new.clone(), (*settings).clone());
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let (written, owners) = (owned(written), owned(owners));
            settings.trust = TrustLists::of_one("webhook:in", SenderLists { owners, trusted: AllowList::new(["you"]) });
            on_store(move |connection| {
                for (at, sender) in (1_u128..).zip(&written) {
                    let origin = if sender == SENDER { r#"{"cause":{"kind":"heartbeat"}}"# } else { "{}" };
                    let row = NewInboxRow::sample(uuid::Uuid::from_u128(at), "webhook:in:c");
                    let (sender, origin) = (sender.clone(), origin.to_owned());
                    inbox::insert(connection, &NewInboxRow { sender, origin, trust: "owner", ..row }).unwrap();
                }
                let job = jobs::add(connection, &new, 10, now).unwrap();
                let slot = RunSlot { due: now, passed_over: 0, by_hand: false };
                match work(connection, &job, &settings, slot, now).unwrap() {
                    RunWork::Ask(draft) => Some(draft.message.trust),
                    RunWork::Fail(..) => None,
                    RunWork::Say(..) => panic!("a prompt"),
                }
            })
        };
        for (written, owners, here, there) in [
            (&["me", SENDER][..], &["me"][..], Trust::Owner, Some(Trust::Owner)),
            (&["me", "you"], &["me", "you"], Trust::Owner, Some(Trust::Owner)),
            (&["me", "you"], &["me"], Trust::Known, None),
            (&["me", "he"], &["me"], Trust::Untrusted, None),
            (&["me"], &[], Trust::Untrusted, None),
            (&[], &["me"], Trust::Untrusted, None),
            (&[], &["c"], Trust::Owner, Some(Trust::Owner)),
        ] {
            assert_eq!(run(&old, written, owners).await, Some(here), "{written:?} {owners:?}");
            assert_eq!(run(&elsewhere, written, owners).await, there, "{written:?} {owners:?}");
        }
    }
}
