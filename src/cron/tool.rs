//! The tool `cron`, with which the agent schedules reminders and tasks for itself.

use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::Trust;
use jiff::Timestamp;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::firing::check_run;
use super::job_request::{JobOrigin, JobRequest};
use super::job_text::lines;
use super::jobs::{self, id_from, invalid, next_slot};
use super::run_times::RunTimes;
use super::{
    DeliveryMode, DeliveryTarget, FiringReport, Job, JobContext, JobError, JobMaker, JobScope, JobService,
    MisfirePolicy, NewJob, run_now,
};
use crate::bus::{ReplyTarget, metadata_of};
use crate::origin::{TurnCause, TurnOrigin};
use crate::store::jobs::JobRow;
use crate::store::{Connection, StoreError, job_runs};
use crate::tools::{
    AgentScope, ReplayPolicy, RowEffect, Tool, ToolContext, ToolDefinition, ToolEffect, ToolOutcome, ToolResult,
    WriteRows, with_arguments,
};

const NAME: &str = "cron";
/// The maximum number of jobs that `list` shows.
const LISTED: usize = 50;
/// The maximum number of jobs that are named when one is not found.
const NAMED: usize = 10;

#[derive(Deserialize, JsonSchema)]
struct CronArgs {
    action: CronAction,
    /// What to say or do then; self-contained.
    message: Option<String>,
    /// prompt (default): you get it as a task then. message: sent as it stands, right for plain reminders.
    kind: Option<TaskKind>,
    name: Option<String>,
    /// Once: "in 20m", "tomorrow 9:00", RFC 3339. With every: its first time.
    at: Option<String>,
    /// "2h"
    every: Option<String>,
    every_seconds: Option<u64>,
    /// 5 or 6 fields.
    cron_expr: Option<String>,
    /// IANA zone or "+08:00", if not the user's.
    tz: Option<String>,
    /// Id or name.
    job_id: Option<String>,
    /// Of a prompt. when_asked: not if you answer NO_REPLY.
    deliver: Option<DeliveryMode>,
    /// What is done about missed times.
    misfire: Option<MisfirePolicy>,
    /// Default: this chat.
    channel: Option<String>,
    chat_id: Option<String>,
    /// "this": the prompt runs with this conversation's history.
    session: Option<String>,
    model: Option<String>,
    /// Who answers the prompt.
    agent: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CronAction {
    Add,
    List,
    Remove,
    Enable,
    Disable,
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TaskKind {
    Prompt,
    Message,
}

/// Creates, lists and changes jobs. A change is committed together with the result of the call.
pub struct CronTool {
    definition: ToolDefinition,
    service: Option<Arc<JobService>>,
}

impl CronTool {
    /// Creates the tool for the jobs of `service`.
    pub fn new(service: Arc<JobService>) -> Self {
        Self { service: Some(service), ..Self::without_service() }
    }

    /// Creates a tool that can only be listed, without a gateway. Its calls fail.
    pub fn without_service() -> Self {
        let description = "Schedule a reminder, or a task for yourself, once or repeatedly; the outcome is sent to this \
                           chat. Use it whenever you promise something for later.";
        let definition = ToolDefinition {
            // Text from outside must not choose the recipient or the model, which costs money.
            literal_arguments: &["action", "agent", "model", "channel", "chat_id", "session", "job_id"],
            ..ToolDefinition::changing::<CronArgs>(NAME, description, ReplayPolicy::Atomic)
        };
        Self { definition, service: None }
    }

    /// Refuses a job on a channel where nobody reads its output, before the owner is asked to approve the call. The chat of a
    /// job's or sub-agent's turn is known only later. For an untrusted sender, a call for another channel is refused or waits,
    /// whatever that channel is.
    fn check_channel(&self, channel: Option<&str>, context: &ToolContext) -> Result<(), String> {
        let here = Some(context.channel.as_str()).filter(|_| !context.origin.runs_for_job_or_agent());
        let channel = channel.map(str::trim).filter(|channel| !channel.is_empty()).or(here);
        if context.trust == Trust::Untrusted && channel != here {
            return Ok(());
        }
        match (&self.service, channel) {
            (Some(service), Some(channel)) => {
                service.context.check_channel(channel, context.trust).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Tool for CronTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn is_restricted(&self, arguments: &Value, _: &ToolContext) -> bool {
        arguments["action"] != "list"
    }

    fn validate(&self, arguments: &Value, context: &ToolContext) -> Result<(), String> {
        let args: CronArgs = serde_json::from_value(arguments.clone()).map_err(|error| error.to_string())?;
        let names_one = args.job_id.as_deref().is_some_and(|id| !id.trim().is_empty());
        match args.action {
            CronAction::Add => self.check_channel(args.channel.as_deref(), context),
            CronAction::List => Ok(()),
            _ if names_one => Ok(()),
            _ => Err("job_id is missing: the id or name of the job, as action=list shows it".to_owned()),
        }
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let Some(service) = &self.service else { return ToolResult::failed("no gateway runs here").into() };
        with_arguments(arguments, |args| carry_out(service, args, context)).await
    }
}

/// The caller of the tool.
#[derive(Clone)]
struct ToolCaller {
    scope: JobScope,
    place: JobOrigin,
    origin: Arc<TurnOrigin>,
    agent: Arc<AgentScope>,
    turn: Uuid,
    call_id: String,
}

async fn carry_out(service: &Arc<JobService>, args: CronArgs, context: &ToolContext) -> Result<ToolOutcome, JobError> {
    let (now, job_context, caller) = (Timestamp::now(), service.context.clone(), ToolCaller::of(context));
    let prepared = service.store.read(move |connection| match prepare(connection, args, &caller, &job_context, now) {
        Err(JobError::Store(error)) => Err(error),
        other => Ok(other),
    });
    let (answer, change) = prepared.await??;
    let rows = |change| {
        ToolEffect::Rows(RowEffect(Arc::new(PendingEdit {
            service: service.clone(),
            change,
            now,
            fired: Mutex::default(),
        })))
    };
    Ok(ToolOutcome { result: ToolResult::ok(answer), effects: change.map(rows).into_iter().collect() })
}

/// The change that a call makes.
#[derive(Clone, Debug, PartialEq)]
enum JobEdit {
    Add(Box<NewJob>),
    Remove(String),
    Enable(String),
    Disable(String),
    Run(String),
}

/// Checks a call; returns the answer for the model, and the change to be written.
fn prepare(
    connection: &Connection,
    args: CronArgs,
    caller: &ToolCaller,
    job_context: &JobContext,
    now: Timestamp,
) -> Result<(String, Option<JobEdit>), JobError> {
    let id = args.job_id.clone().unwrap_or_default();
    let job = || find(connection, &caller.scope, &id);
    match args.action {
        CronAction::List => {
            let jobs = jobs::list(connection, &caller.scope)?;
            let none = || "No scheduled jobs.".to_owned();
            Ok((if jobs.is_empty() { none() } else { lines(&jobs, job_context, LISTED) }, None))
        }
        CronAction::Add => add(connection, args, caller, job_context, now),
        CronAction::Remove => {
            let JobRow { id, name, .. } = find_row(connection, &caller.scope, &id)?;
            Ok((format!("Removed job {id} ({name})"), Some(JobEdit::Remove(id))))
        }
        CronAction::Enable => {
            let job = job()?;
            let next = next_slot(&RunTimes::of(&job), now)?;
            let enabled = Job { row: JobRow { next_at: Some(next.as_millisecond()), ..job.row }, ..job };
            let next = enabled.next_in_words(job_context).unwrap_or_default();
            Ok((format!("Enabled job {}; next: {next}", enabled.row.id), Some(JobEdit::Enable(enabled.row.id))))
        }
        CronAction::Disable => {
            let job = job()?;
            Ok((format!("Disabled job {}", job.row.id), Some(JobEdit::Disable(job.row.id))))
        }
        CronAction::Run => {
            let job = job()?;
            if job_runs::unfinished(connection, &job.row.id)?.is_some() {
                return invalid(format!("the last run of job {} is not done yet", job.row.id));
            }
            check_run(connection, &job, &job_context.settings, now)?;
            Ok((format!("Job {} runs now", job.row.id), Some(JobEdit::Run(job.row.id))))
        }
    }
}

/// Finds the job; the error lists the existing ones.
fn find(connection: &Connection, scope: &JobScope, id: &str) -> Result<Job, JobError> {
    Ok(Job::read(find_row(connection, scope, id)?)?)
}

/// Finds the row, readable or not.
fn find_row(connection: &Connection, scope: &JobScope, id: &str) -> Result<JobRow, JobError> {
    let id = id.trim();
    match jobs::find_row(connection, scope, id) {
        Err(JobError::NotFound(_)) => {
            let jobs = jobs::list(connection, scope)?;
            let named = jobs.iter().filter_map(|job| job.as_ref().ok()).take(NAMED);
            let named: Vec<_> = named.map(|job| format!("{} ({})", job.row.id, job.row.name)).collect();
            let there =
                if named.is_empty() { "there are none".to_owned() } else { format!("there are {}", named.join(", ")) };
            invalid(format!("Job {id} not found; {there}"))
        }
        found => found,
    }
}

fn add(
    connection: &Connection,
    args: CronArgs,
    caller: &ToolCaller,
    job_context: &JobContext,
    now: Timestamp,
) -> Result<(String, Option<JobEdit>), JobError> {
    let place = caller.origin_of_turn(connection)?;
    let mut new = args.into_request()?.into_new_job(&place, job_context, now)?;
    // The limits of the agent that creates the job apply to its runs, whichever agent answers and whichever chat receives the
    // output.
    let (agent, target) = (new.body.agent.clone(), &mut new.body.target);
    caller.agent.delegate(agent.as_deref(), &mut target.origin.settings);
    new.id = Some(id_from(caller.turn, &caller.call_id));
    let job = jobs::preview(connection, &new, job_context.settings.config.max_jobs, now)?;
    let (id, name, when) = (&job.row.id, &job.row.name, job.when(job_context));
    let next = job.next_in_words(job_context).unwrap_or_default();
    let answer = format!("Created job '{name}' (id: {id}): {when}; next: {next}");
    Ok((answer, Some(JobEdit::Add(Box::new(new)))))
}

impl CronArgs {
    fn into_request(self) -> Result<JobRequest, JobError> {
        let (prompt, message) = match self.kind.unwrap_or(TaskKind::Prompt) {
            TaskKind::Prompt => (self.message, None),
            TaskKind::Message => (None, self.message),
        };
        let every = match (self.every.filter(|every| !every.trim().is_empty()), self.every_seconds) {
            (Some(_), Some(_)) => {
                return invalid("every and every_seconds: give one of them");
            }
            (every, None) => every,
            (None, Some(seconds)) => Some(format!("{seconds}s")),
        };
        Ok(JobRequest {
            name: self.name,
            prompt,
            message,
            at: self.at,
            every,
            cron: self.cron_expr,
            tz: self.tz,
            channel: self.channel,
            chat_id: self.chat_id,
            session: self.session,
            model: self.model,
            agent: self.agent,
            deliver: self.deliver,
            misfire: self.misfire,
            ..JobRequest::default()
        })
    }
}

impl ToolCaller {
    fn of(context: &ToolContext) -> Self {
        let ToolContext { channel, chat_id, sender, trust, .. } = context;
        let maker = JobMaker {
            trust: *trust,
            channel: channel.clone(),
            chat_id: chat_id.clone(),
            identity: context.origin.owner_identity.clone(),
        };
        Self {
            scope: JobScope::of(*trust, channel, chat_id, sender),
            place: JobOrigin {
                target: DeliveryTarget {
                    channel: channel.clone(),
                    chat_id: chat_id.clone(),
                    session: context.session.clone(),
                    metadata: metadata_of(&context.metadata),
                    origin: for_runs(&context.origin),
                },
                maker,
            },
            origin: context.origin.clone(),
            agent: context.agent.clone(),
            turn: context.turn,
            call_id: context.call_id.clone(),
        }
    }

    /// Returns the origin of a job. A turn in a separate session creates jobs for the chat that it works for.
    fn origin_of_turn(&self, connection: &Connection) -> Result<JobOrigin, StoreError> {
        let mut place = self.place.clone();
        if place.maker.is_unrecorded()
            && let Some(maker) = self.maker_of_run(connection)?
        {
            place.maker = maker;
        }
        if !self.origin.runs_for_job_or_agent() {
            return Ok(place);
        }
        let target = &mut place.target;
        let here = (target.channel.as_str(), target.chat_id.as_str());
        let chat = ReplyTarget::resolve(connection, target.session.as_str(), here, &self.origin)?;
        if let Some(row) = &chat.message {
            target.metadata = serde_json::from_str(&row.metadata)?;
            let mut origin = for_runs(&TurnOrigin::parse(&row.origin));
            // A turn without some tools must not gain them through a job.
            origin.settings.tools.clone_from(&self.origin.settings.tools);
            origin.follow_ups = self.origin.follow_ups;
            let behind = target.origin.on_behalf_of.take();
            origin.on_behalf_of = behind.or(origin.on_behalf_of);
            target.origin = origin;
        }
        (target.session, target.channel, target.chat_id) = (chat.session, chat.channel, chat.chat_id);
        Ok(place)
    }

    /// Returns the maker of the job or heartbeat whose turn this is. It is `None` for other turns, and for a job that is gone or whose
    /// maker is not recorded: an earlier version may have begun the turn, without a record of the sender.
    fn maker_of_run(&self, connection: &Connection) -> Result<Option<JobMaker>, StoreError> {
        let maker = match &self.origin.cause {
            TurnCause::Heartbeat => Some(JobOrigin::terminal().maker),
            TurnCause::Job(run) => {
                let job = crate::store::jobs::find(connection, &run.job)?.and_then(|row| Job::read(row).ok());
                job.map(|job| job.body.maker)
            }
            TurnCause::Person | TurnCause::SubAgent(_) | TurnCause::Note(_) => None,
        };
        Ok(maker.filter(|maker| !maker.is_unrecorded()))
    }
}

/// Returns the origin that the runs of a job inherit from the turn that creates the job.
fn for_runs(origin: &TurnOrigin) -> TurnOrigin {
    let mut origin = origin.for_follow_up();
    // These settings apply only to that one message or turn.
    (origin.settings.requested_model, origin.settings.bounds) = (None, None);
    // The maker of the job has it.
    origin.owner_identity = None;
    origin
}

/// A change to be written in the commit of its call's result.
struct PendingEdit {
    service: Arc<JobService>,
    change: JobEdit,
    now: Timestamp,
    /// The sessions and channels to wake after a run by hand.
    fired: Mutex<Option<FiringReport>>,
}

impl PendingEdit {
    fn run(&self, connection: &Connection, id: &str) -> Result<(), JobError> {
        let job = jobs::find(connection, id)?;
        let fired = run_now(connection, &job, &self.service.context.settings, self.now)?;
        *self.fired.lock() = Some(fired);
        Ok(())
    }
}

impl WriteRows for PendingEdit {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        *self.fired.lock() = None;
        // The job was already found in the caller's scope, so its id is enough here.
        let now = self.now;
        let max_jobs = self.service.context.settings.config.max_jobs;
        let done = match &self.change {
            JobEdit::Add(new) => match jobs::add(connection, new, max_jobs, now) {
                // The model already got a success message, but the name was taken meanwhile, for example by another call of the
                // same response.
                Err(JobError::NameTaken { name, .. }) => jobs::numbered(connection, &name)
                    .and_then(|name| jobs::add(connection, &NewJob { name, ..(**new).clone() }, max_jobs, now))
                    .map(|_| ()),
                added => added.map(|_| ()),
            },
            JobEdit::Remove(id) => jobs::remove(connection, id).map(|_| ()),
            JobEdit::Enable(id) => jobs::set_enabled(connection, id, true, now).map(|_| ()),
            JobEdit::Disable(id) => jobs::set_enabled(connection, id, false, now).map(|_| ()),
            JobEdit::Run(id) => self.run(connection, id),
        };
        match done {
            Err(JobError::Store(error)) => Err(error),
            Err(error) => {
                tracing::warn!(change = ?self.change, %error, "a job changed after the model asked to change it");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn committed(&self) {
        if let Some(fired) = self.fired.lock().take() {
            self.service.wake_started(fired);
        }
        self.service.wake();
    }
}
