//! A job as requested through the tool, the command line or the API.

use std::time::Duration;

use daoyou_channels::clean::is_display_control;
use daoyou_channels::email;
use daoyou_channels::settings::HumanDuration;
use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{SessionKey, Trust};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::jobs::invalid;
use super::schedule::{parse_instant, slot_before_skipped, zone_name};
use super::{
    DeliveryMode, DeliveryTarget, JobBody, JobContext, JobError, JobMaker, JobTask, MisfirePolicy, NewJob, Schedule,
    ScheduleError,
};
use crate::origin::TurnOrigin;
use crate::store::StoreError;
use crate::text::truncate;

/// The longest prompt or message, in characters.
const MAX_TASK: usize = 32_000;
/// The longest name of a chat or a model, in characters.
const MAX_KEY: usize = 300;
/// The longest part of an invalid key that an error repeats, in characters.
const MAX_SHOWN: usize = 40;
/// Words for the conversation in which a job is created.
const HERE: [&str; 3] = ["this", "here", "current"];

/// A requested job. Exactly one of `prompt` and `message` is set, and exactly one of `at`, `every` and `cron`. As an exception,
/// `at` together with `every` gives the first time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobRequest {
    pub name: Option<String>,
    pub prompt: Option<String>,
    pub message: Option<String>,
    pub at: Option<String>,
    pub every: Option<String>,
    pub cron: Option<String>,
    /// Zone of `at`, `cron`, `anchor`, and `every` in whole days.
    pub tz: Option<String>,
    /// The time from which `every` counts.
    pub anchor: Option<String>,
    pub channel: Option<String>,
    pub chat_id: Option<String>,
    pub session: Option<String>,
    pub model: Option<String>,
    pub agent: Option<String>,
    pub deliver: Option<DeliveryMode>,
    pub misfire: Option<MisfirePolicy>,
    pub stale_after: Option<HumanDuration>,
    pub jitter: Option<HumanDuration>,
    /// Keeps a job of one time after its run.
    pub keep: bool,
}

/// The conversation that requests a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOrigin {
    pub target: DeliveryTarget,
    pub maker: JobMaker,
}

impl JobOrigin {
    /// Returns the owner's terminal.
    pub fn terminal() -> Self {
        let (channel, chat_id) = ("cli".to_owned(), "direct".to_owned());
        let trust = trust_of(Author::Owner, SenderListing::Owner);
        let maker = JobMaker { trust, channel: channel.clone(), chat_id: chat_id.clone(), identity: None };
        Self { target: DeliveryTarget::of_chat(channel, chat_id), maker }
    }
}

impl DeliveryTarget {
    /// Returns a chat with its own session.
    pub fn of_chat(channel: String, chat_id: String) -> Self {
        let session = SessionKey::of_chat(&channel, &chat_id);
        let mut origin = TurnOrigin::default();
        // The mails of a thread may go to several people.
        origin.settings.is_read_by_others = channel == email::NAME && email::is_thread(&chat_id);
        Self { channel, chat_id, session, metadata: Map::new(), origin }
    }
}

impl JobRequest {
    /// Reads a request from JSON.
    ///
    /// # Errors
    /// The JSON is not a request.
    pub fn from_json(value: &Value) -> Result<Self, JobError> {
        Self::deserialize(value).map_err(|error| JobError::Invalid(format!("this is not a job: {error}")))
    }

    /// Validates the request and returns the job to be created.
    ///
    /// # Errors
    /// The request is invalid; the error explains the fault and the valid values.
    pub fn into_new_job(self, place: &JobOrigin, job_context: &JobContext, now: Timestamp) -> Result<NewJob, JobError> {
        let (asked, now) = (self.trimmed(), to_millisecond(now));
        let task = asked.task()?;
        let schedule = asked.schedule(job_context, now)?;
        if matches!(task, JobTask::Prompt(_)) {
            check_interval(&schedule, job_context.settings.config.min_interval.0, now)?;
        }
        let target = asked.target(place, job_context)?;
        let session = asked.session(place)?;
        if matches!(task, JobTask::Message(_)) {
            let deliver = asked.deliver.unwrap_or_default();
            let for_prompts = [&asked.model, &asked.agent].into_iter().any(Option::is_some);
            if session.is_some() || for_prompts || deliver != DeliveryMode::Always {
                return invalid("session, model, agent and deliver are for prompts; a message is sent as it stands");
            }
        }
        if asked.model.as_deref().is_some_and(is_invalid_key) {
            return invalid(format!("model: write it as PROVIDER/MODEL, at most {MAX_KEY} characters"));
        }
        if let Some(model) = &asked.model {
            job_context.check_model(model)?;
        }
        let agent = asked.agent.as_deref().map(|name| job_context.agent(name)).transpose()?;
        let body = JobBody {
            delete_after_run: matches!(schedule, Schedule::At { .. }) && !asked.keep,
            schedule,
            task,
            target,
            maker: place.maker.clone(),
            session,
            model: asked.model,
            agent,
            deliver: asked.deliver.unwrap_or_default(),
            misfire: asked.misfire.unwrap_or_default(),
            stale_after: asked.stale_after,
            jitter: asked.jitter,
        };
        Ok(NewJob { id: None, name: asked.name.unwrap_or_default(), body })
    }

    /// Returns `job` with the given fields of a request changed. Fields that are not given stay; an empty one gets its default. A new
    /// task, time or channel replaces the former one with the fields that belong to it alone.
    ///
    /// # Errors
    /// The changed job is invalid.
    pub fn edit(job: &JobBody, fields: &Value, job_context: &JobContext, now: Timestamp) -> Result<NewJob, JobError> {
        Self::from_json(fields)?;
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
        let gives = |names: &[&str]| names.iter().any(|name| fields.get(name).is_some_and(is_text));
        let mut request = Self::of_job(job);
        if gives(&["prompt", "message"]) {
            (request.prompt, request.message) = (None, None);
        }
        if gives(&["message"]) {
            (request.session, request.model, request.agent, request.deliver) = (None, None, None, None);
        }
        if gives(&["at", "every", "cron"]) {
            // A new interval keeps the time of day.
            let keeps_anchor = request.every.is_some() && gives(&["every"]);
            (request.at, request.every, request.cron) = (None, None, None);
            request.anchor = request.anchor.filter(|_| keeps_anchor);
        }
        if fields.get("channel").is_some_and(|channel| channel.as_str() != Some(&job.target.channel)) {
            request.chat_id = None;
        }
        let mut merged = serde_json::to_value(request).map_err(StoreError::from)?;
        if let (Some(merged), Some(fields)) = (merged.as_object_mut(), fields.as_object()) {
            merged.extend(fields.clone());
        }
        let mut new = Self::from_json(&merged)?.into_new_job(&JobOrigin::terminal(), job_context, now)?;
        if ["at", "every", "cron", "tz", "anchor"].iter().all(|name| fields.get(name).is_none()) {
            new.body.schedule = job.schedule.clone();
        }
        Ok(new)
    }

    /// Returns the request that describes an existing job.
    fn of_job(job: &JobBody) -> Self {
        let (prompt, message) = match &job.task {
            JobTask::Prompt(text) => (Some(text.clone()), None),
            JobTask::Message(text) => (None, Some(text.clone())),
        };
        let mut request = Self {
            prompt,
            message,
            channel: Some(job.target.channel.clone()),
            chat_id: Some(job.target.chat_id.clone()),
            session: job.session.as_ref().map(|session| session.as_str().to_owned()),
            model: job.model.clone(),
            agent: job.agent.clone(),
            deliver: Some(job.deliver),
            misfire: Some(job.misfire),
            stale_after: job.stale_after,
            jitter: job.jitter,
            ..Self::default()
        };
        match &job.schedule {
            Schedule::At { at } => (request.at, request.keep) = (Some(at.to_string()), !job.delete_after_run),
            Schedule::Every { every, anchor } => {
                (request.every, request.anchor) = (Some(every.to_string()), Some(anchor.to_string()));
            }
            Schedule::Days { days, anchor, tz } => {
                (request.every, request.anchor) = (Some(format!("{days}d")), Some(anchor.to_string()));
                request.tz = Some(tz.clone());
            }
            Schedule::Cron { expr, tz } => (request.cron, request.tz) = (Some(expr.clone()), Some(tz.clone())),
        }
        request
    }

    /// Trims all texts but the session's key, which counts as it is written, and drops empty ones, since models and forms send empty
    /// texts for omitted fields.
    fn trimmed(mut self) -> Self {
        let all = [
            &mut self.name, &mut self.prompt, &mut self.message, &mut self.at, &mut self.every, &mut self.cron,
            &mut self.tz, &mut self.anchor, &mut self.channel, &mut self.chat_id, &mut self.model, &mut self.agent,
        ];
        for field in all {
            *field = field.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        self.session = self.session.filter(|key| !key.is_empty());
        self
    }

    fn task(&self) -> Result<JobTask, JobError> {
        let task = match (&self.prompt, &self.message) {
            (Some(prompt), None) => JobTask::Prompt(prompt.clone()),
            (None, Some(message)) => JobTask::Message(message.clone()),
            (None, None) => {
                return invalid("say what it does: a prompt, which the agent answers, or a message");
            }
            (Some(_), Some(_)) => return invalid("a prompt and a message are given; give one of them"),
        };
        let (JobTask::Prompt(text) | JobTask::Message(text)) = &task;
        match text.chars().count() {
            count if count > MAX_TASK => invalid(format!(
                "its text has {count} characters; at most {MAX_TASK} are allowed: put the rest into a file"
            )),
            _ => Ok(task),
        }
    }

    fn schedule(&self, job_context: &JobContext, now: Timestamp) -> Result<Schedule, JobError> {
        let zone = job_context.zone_of(self.tz.as_deref())?;
        if self.anchor.is_some() && self.every.is_none() {
            return invalid("anchor goes with every alone");
        }
        let schedule = match (&self.at, &self.every, &self.cron) {
            (Some(at), None, None) => Schedule::at(at, now, &zone),
            (first, Some(every), None) => {
                let every: HumanDuration =
                    every.parse().map_err(|error| JobError::Invalid(format!("every: {error}")))?;
                match (first, &self.anchor) {
                    (Some(_), Some(_)) => return invalid("at and anchor: give only one of them with every"),
                    (Some(at), None) => every_from(every, at, first_slot(every, at, now, &zone)?, now, &zone),
                    (None, Some(words)) => every_from(every, words, parse_anchor(words, now, &zone)?, now, &zone),
                    (None, None) if self.tz.is_some() => Schedule::every_from(every, now, &zone),
                    (None, None) => Schedule::every(every, now),
                }
            }
            (None, None, Some(cron)) => Schedule::cron(cron, self.tz.as_deref().unwrap_or(&zone_name(&zone))),
            (None, None, None) => {
                return invalid(
                    "say when: at (\"in 20m\", \"tomorrow 9:00\", 2026-03-08T09:00:00Z), every (\"2h\") or a cron \
                     expression (\"0 9 * * *\")",
                );
            }
            _ => return invalid("at, every and a cron expression: give exactly one of them"),
        };
        match schedule? {
            Schedule::At { at } => Ok(Schedule::At { at: to_millisecond(at) }),
            schedule => Ok(schedule),
        }
    }

    fn target(&self, place: &JobOrigin, job_context: &JobContext) -> Result<DeliveryTarget, JobError> {
        let here = &place.target;
        let channel = self.channel.as_deref().unwrap_or(&here.channel);
        let chat_id = match &self.chat_id {
            Some(chat_id) => chat_id.as_str(),
            None if channel == here.channel => &here.chat_id,
            None if channel == "cli" => "direct",
            None => return invalid(format!("channel {channel:?} needs a chat as well: where on it")),
        };
        if (channel, chat_id) == (here.channel.as_str(), here.chat_id.as_str()) {
            job_context.check_channel(channel, place.maker.trust)?;
            return Ok(here.clone());
        }
        if place.maker.trust != Trust::Owner {
            return invalid("only the owner makes jobs for another chat");
        }
        if is_invalid_key(chat_id) {
            return invalid(format!("chat: one line of at most {MAX_KEY} characters"));
        }
        job_context.check_chat(channel, chat_id)?;
        Ok(DeliveryTarget::of_chat(channel.to_owned(), chat_id.to_owned()))
    }

    fn session(&self, place: &JobOrigin) -> Result<Option<SessionKey>, JobError> {
        let Some(key) = &self.session else { return Ok(None) };
        let here = &place.target.session;
        if HERE.contains(&key.as_str()) || key == here.as_str() {
            return Ok(Some(here.clone()));
        }
        if place.maker.trust != Trust::Owner {
            return invalid("only the owner names another session; \"this\" is the one of this chat");
        }
        if !SessionKey::is_valid_choice(key) {
            let shown = truncate(key, MAX_SHOWN);
            return invalid(format!("session: {shown:?} is not a key; {}", SessionKey::RULE));
        }
        Ok(Some(SessionKey::from(key.as_str())))
    }
}

/// Refuses a prompt that repeats more often than the owner allows.
///
/// # Errors
/// Names the interval and the shortest allowed one.
pub(super) fn check_interval(schedule: &Schedule, least: Duration, now: Timestamp) -> Result<(), JobError> {
    /// The number of slots that are examined for the shortest interval.
    const INTERVAL_SLOTS: usize = 200;
    match schedule.shortest_interval(now, INTERVAL_SLOTS) {
        Some(shortest) if shortest < least => invalid(format!(
            "a prompt every {} asks the model more often than cron.min_interval = \"{}\" allows; a message, which needs no \
             model, may repeat so often",
            HumanDuration(shortest),
            HumanDuration(least)
        )),
        _ => Ok(()),
    }
}

/// Drops the precision that the store and `cron.json` do not keep.
pub(super) fn to_millisecond(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

fn is_invalid_key(text: &str) -> bool {
    text.chars().count() > MAX_KEY || text.contains(is_display_control)
}

/// Returns an interval from the time `words`, which is the moment `first`. If the clock skips that time, an interval of whole days counts
/// from an earlier slot, and so keeps the time on all other days: slots count in both directions.
fn every_from(
    every: HumanDuration,
    words: &str,
    first: Timestamp,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Schedule, ScheduleError> {
    let schedule = Schedule::every_from(every, first, zone)?;
    let Schedule::Days { days, .. } = schedule else { return Ok(schedule) };
    match slot_before_skipped(words, days, now, zone) {
        Some(anchor) => Schedule::every_from(every, to_millisecond(anchor), zone),
        None => Ok(schedule),
    }
}

/// Reads the first time of an interval. It must be at most one interval away: slots count from it in both directions, so that
/// an earlier slot would come first.
fn first_slot(every: HumanDuration, at: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, JobError> {
    let first = match Schedule::at(at, now, zone)? {
        Schedule::At { at } => to_millisecond(at),
        _ => return invalid(format!("at: {at:?} is not a time")),
    };
    let wait = Duration::try_from(first.duration_since(now)).unwrap_or_default();
    if wait > every.0 {
        return invalid(format!(
            "at: with every it is the first time, and {at:?} is more than {every} away; make the job then, or use a \
             cron expression"
        ));
    }
    Ok(first)
}

/// Reads an anchor, which may be past: slots count from it in both directions.
fn parse_anchor(words: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, JobError> {
    if let Some(anchor) = parse_instant(words, zone) {
        return Ok(to_millisecond(anchor));
    }
    match Schedule::at(words, now, zone) {
        Ok(Schedule::At { at }) => Ok(to_millisecond(at)),
        Ok(_) => invalid(format!("anchor: {words:?} is not a time")),
        Err(ScheduleError(error)) => invalid(format!("anchor: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::testing::job_context;

    fn plan(asked: serde_json::Value, trust: Trust) -> Result<NewJob, String> {
        let asked: JobRequest = serde_json::from_value(asked).map_err(|error| error.to_string())?;
        let mut place = JobOrigin::terminal();
        place.target = DeliveryTarget::of_chat("webhook:in".to_owned(), "c".to_owned());
        place.maker.trust = trust;
        let now = "2026-11-21T06:05:00Z".parse().unwrap();
        asked.into_new_job(&place, &job_context(10, &["cli", "webhook:in"]), now).map_err(|error| error.to_string())
    }

    #[test]
    fn a_long_invalid_session_is_shown_in_part() {
        let request = serde_json::json!({"prompt": "x", "every": "1h", "session": "k".repeat(5_000)});
        let error = plan(request, Trust::Owner).unwrap_err();
        assert!(error.starts_with("session: \"kkk") && error.len() < 300, "{error}");
    }

    #[test]
    fn omitted_fields_get_their_defaults() {
        use serde_json::json;
        let job = plan(json!({"prompt": " news ", "every": "2h", "name": "", "channel": ""}), Trust::Known).unwrap();
        let now = "2026-11-21T06:05:00Z".parse().unwrap();
        assert_eq!(job.body.schedule, Schedule::Every { every: HumanDuration::from_secs(7_200), anchor: now });
        assert_eq!(job.body.task, JobTask::Prompt("news".to_owned()));
        assert_eq!((job.body.target.session.as_str(), job.body.session.as_ref()), ("webhook:in:c", None));
        assert!(!job.body.delete_after_run);

        let job = plan(json!({"message": "x", "at": "2026-11-21T09:00:00Z", "channel": "cli"}), Trust::Owner).unwrap();
        assert_eq!((job.body.target.session.as_str(), job.body.delete_after_run), ("cli:direct", true));
        let job =
            plan(json!({"prompt": "x", "at": "2026-11-21T09:00:00Z", "keep": true, "session": "this"}), Trust::Known);
        let body = job.unwrap().body;
        assert_eq!(
            (body.session.as_ref().map(SessionKey::as_str), body.delete_after_run),
            (Some("webhook:in:c"), false)
        );

        let job = plan(json!({"prompt": "x", "cron": "0 9 * * *"}), Trust::Owner).unwrap();
        assert!(matches!(job.body.schedule, Schedule::Cron { tz, .. } if tz == "Asia/Shanghai"));
        let job = plan(json!({"prompt": "x", "every": "2d", "at": "tomorrow at 9"}), Trust::Owner).unwrap();
        let first = "2026-11-22T01:00:00Z".parse().unwrap();
        let shanghai = "Asia/Shanghai".to_owned();
        assert_eq!(job.body.schedule, Schedule::Days { days: 2, anchor: first, tz: shanghai });
        assert!(!job.body.delete_after_run);
        let anchored = json!({"prompt": "x", "every": "1d", "anchor": "2020-01-01T00:00:00Z"});
        assert!(matches!(plan(anchored, Trust::Owner).unwrap().body.schedule,
            Schedule::Days { days: 1, anchor, .. } if anchor.as_second() == 1_577_836_800));
    }

    #[test]
    fn an_edit_changes_the_given_fields_alone() {
        use serde_json::json;
        let (now, later) =
            ["2026-11-21T06:05:00Z", "2026-11-22T00:00:00Z"].map(|at| at.parse::<Timestamp>().unwrap()).into();
        let cron = json!({"prompt": "x", "cron": "0 9 * * *", "tz": "UTC", "deliver": "on_change", "session": "cli:a"});
        let chat = json!({"message": "x", "every": "2h", "channel": "webhook:in", "chat_id": "b", "misfire": "skip"});
        let once = json!({"prompt": "x", "at": "2026-11-23T09:00:00Z", "keep": true, "jitter": "5s"});
        for (job, fields, expected) in [
            (&cron, json!({}), cron.clone()),
            (
                &cron,
                json!({"prompt": "y"}),
                json!({"prompt": "y", "cron": "0 9 * * *", "tz": "UTC", "deliver": "on_change", "session": "cli:a"}),
            ),
            (&cron, json!({"message": "", "at": null}), cron.clone()),
            (&cron, json!({"message": "y"}), json!({"message": "y", "cron": "0 9 * * *", "tz": "UTC"})),
            (
                &cron,
                json!({"cron": "0 8 * * *", "session": "", "deliver": null}),
                json!({"prompt": "x", "cron": "0 8 * * *", "tz": "UTC"}),
            ),
            (
                &cron,
                json!({"tz": ""}),
                json!({"prompt": "x", "cron": "0 9 * * *", "deliver": "on_change", "session": "cli:a"}),
            ),
            (&chat, json!({}), chat.clone()),
            (
                &chat,
                json!({"chat_id": "c"}),
                json!({"message": "x", "every": "2h", "channel": "webhook:in", "chat_id": "c", "misfire": "skip"}),
            ),
            (&chat, json!({"channel": "cli"}), json!({"message": "x", "every": "2h", "misfire": "skip"})),
            (
                &once,
                json!({"jitter": "6s"}),
                json!({"prompt": "x", "at": "2026-11-23T09:00:00Z", "keep": true, "jitter": "6s"}),
            ),
            (&once, json!({"keep": false}), json!({"prompt": "x", "at": "2026-11-23T09:00:00Z", "jitter": "5s"})),
        ] {
            let body = |request: &Value| {
                let request = JobRequest::from_json(request).unwrap();
                request
                    .into_new_job(&JobOrigin::terminal(), &job_context(10, &["cli", "webhook:in"]), now)
                    .unwrap()
                    .body
            };
            let edited = JobRequest::edit(&body(job), &fields, &job_context(10, &["cli", "webhook:in"]), later);
            assert_eq!(edited.unwrap().body, body(&expected), "{job} {fields}");
        }
        let refused = |fields| {
            JobRequest::edit(&plan(cron.clone(), Trust::Owner).unwrap().body, &fields, &job_context(10, &["cli"]), now)
        };
        for (fields, expected) in [
            (json!({"promt": "y"}), "unknown field"),
            (json!({"prompt": ""}), "say what"),
            (json!({"cron": ""}), "say when"),
        ] {
            assert!(refused(fields).unwrap_err().to_string().contains(expected), "{expected}");
        }
    }

    #[test]
    fn an_interval_of_days_keeps_a_time_that_the_clock_skips_at_first() {
        let now: Timestamp = "2026-03-07T20:00:00Z".parse().unwrap();
        let new_york = "America/New_York";
        for (field, words, every, tz, expected) in [
            ("anchor", "tomorrow 2:30", "1d", new_york, ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]),
            ("anchor", "tomorrow 2:30", "24h", new_york, ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]),
            ("at", "tomorrow 2:30", "1d", new_york, ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]),
            ("anchor", "2026-03-08T02:30", "7d", new_york, ["2026-03-08T07:00:00Z", "2026-03-15T06:30:00Z"]),
            // The clock skips the time of several earlier slots, too.
            ("anchor", "2026-03-08 2:30", "364d", new_york, ["2026-03-08T07:00:00Z", "2027-03-07T07:30:00Z"]),
            ("anchor", "2011-12-30 9:00", "1d", "Pacific/Apia", ["2026-03-08T20:00:00Z", "2026-03-09T20:00:00Z"]),
            ("anchor", "2026-03-08T03:00:00-04:00", "1d", new_york, ["2026-03-08T07:00:00Z", "2026-03-09T07:00:00Z"]),
            ("anchor", "tomorrow 2:30", "12h", new_york, ["2026-03-08T07:00:00Z", "2026-03-08T19:00:00Z"]),
        ] {
            let asked = serde_json::json!({"message": "x", "every": every, "tz": tz, field: words});
            let asked = JobRequest::from_json(&asked).unwrap();
            let job = asked.into_new_job(&JobOrigin::terminal(), &job_context(10, &["cli"]), now).unwrap();
            let expected = expected.map(|at| at.parse::<Timestamp>().unwrap());
            assert_eq!(job.body.schedule.upcoming(now, 2), expected, "{field} {words} {every}");
        }
    }

    #[test]
    fn invalid_requests_are_refused_with_a_reason() {
        use serde_json::json;
        for (asked, trust, expected) in [
            (json!({"every": "2h"}), Trust::Owner, "say what it does"),
            (json!({"prompt": "x", "message": "y", "every": "2h"}), Trust::Owner, "give one of them"),
            (json!({"prompt": "x"}), Trust::Owner, "say when"),
            (json!({"prompt": "x", "at": " "}), Trust::Owner, "say when"),
            (json!({"prompt": "x", "cron": "0 9 * * *", "every": "1h"}), Trust::Owner, "exactly one"),
            (json!({"prompt": "x", "at": "2027-01-01T00:00:00Z", "every": "1h"}), Trust::Owner, "more than 1h away"),
            (json!({"prompt": "x", "at": "every day at 9", "every": "1d"}), Trust::Owner, "says how often, not when"),
            (json!({"prompt": "x", "at": "18:00", "every": "1d", "anchor": "18:00"}), Trust::Owner, "one of them"),
            (
                json!({"prompt": "x", "every": "1d", "anchor": "2020-01-01T00:00:00+25:00"}),
                Trust::Owner,
                "-14:00 to +14:00",
            ),
            (json!({"prompt": "x", "every": "soon"}), Trust::Owner, "every: \"soon\" is not a duration"),
            (json!({"prompt": "x", "every": "1ms"}), Trust::Owner, "too short"),
            (json!({"prompt": "x", "every": "59s"}), Trust::Owner, "cron.min_interval = \"1m\""),
            (json!({"prompt": "x", "cron": "0,30 * * * * *"}), Trust::Owner, "a prompt every 30s asks"),
            (
                json!({"prompt": "x", "cron": "0 8 * * *", "channel": "webhook:deaf", "chat_id": "c"}),
                Trust::Owner,
                "callback_url",
            ),
            (json!({"prompt": "x", "at": "2020-01-01T00:00:00Z"}), Trust::Owner, "past"),
            (json!({"prompt": "x", "cron": "0 9 * * *", "tz": "Mars/Base"}), Trust::Owner, "not a known time zone"),
            (
                json!({"prompt": "x", "cron": "CRON_TZ=Asia/Tokyo 0 9 * * *"}),
                Trust::Owner,
                "as tz (on the command line --tz)",
            ),
            (json!({"prompt": "x", "cron": "TZ=UTC 0 9 * * *"}), Trust::Owner, "the time zone is not part of it"),
            (json!({"prompt": "x", "cron": "0 9 * * *", "anchor": "now"}), Trust::Owner, "anchor goes with every"),
            (json!({"prompt": "x", "every": "1h", "anchor": "once"}), Trust::Owner, "anchor: "),
            (
                json!({"prompt": "x", "every": "1h", "channel": "emial", "chat_id": "a"}),
                Trust::Owner,
                "no channel \"emial\" that is switched on; name another channel and chat: there are cli, webhook:in",
            ),
            (json!({"prompt": "x", "every": "1h", "channel": "email"}), Trust::Owner, "needs a chat"),
            (json!({"prompt": "x", "every": "1h", "chat_id": "other"}), Trust::Known, "only the owner"),
            (json!({"prompt": "x", "every": "1h", "session": "cli:direct"}), Trust::Known, "only the owner"),
            (json!({"message": "x", "every": "1h", "deliver": "on_change"}), Trust::Owner, "are for prompts"),
            (json!({"prompt": "x", "every": "1h", "deliver": "never"}), Trust::Owner, "expected one of `always`"),
            (json!({"prompt": "x", "every": "1h", "colour": "red"}), Trust::Owner, "unknown field `colour`"),
            (json!({"prompt": "x".repeat(40_000), "every": "1h"}), Trust::Owner, "40000 characters"),
        ] {
            let error = plan(asked.clone(), trust).unwrap_err();
            assert!(error.contains(expected), "{:.80}: {error}", asked.to_string());
        }
    }
}
