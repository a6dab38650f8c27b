//! `cron`: the agent's own way to jobs, for reminders and for what it promises to do later.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::asked::{AskedJob, Place};
use super::firing::check_run;
use super::jobs::{self, id_from, next_slot};
use super::moments::Moments;
use super::words::lines;
use super::{Deliver, Desk, Fired, Job, JobError, Maker, Misfire, NewJob, Scope, Target, Terms, run_now};
use crate::bus::ReplyTarget;
use crate::chat::ToolSpec;
use crate::origin::TurnOrigin;
use crate::store::jobs::JobRow;
use crate::store::{Connection, StoreError, job_runs};
use crate::tools::{Effect, Replay, Rows, Tool, ToolContext, ToolOutcome, ToolResult, WriteRows, tool_spec};

const NAME: &str = "cron";
/// Jobs that `list` shows.
const LISTED: usize = 50;
/// Jobs that are named where one is not found.
const NAMED: usize = 10;

#[derive(Deserialize, JsonSchema)]
struct Args {
    action: Action,
    /// What to say or do then; self-contained.
    message: Option<String>,
    /// prompt (default): you get it as a task then. message: sent as it stands, right for plain reminders.
    kind: Option<Kind>,
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
    deliver: Option<Deliver>,
    /// What is done about missed times.
    misfire: Option<Misfire>,
    /// Default: this chat.
    channel: Option<String>,
    chat_id: Option<String>,
    /// "this": the prompt runs with this conversation's history.
    session: Option<String>,
    model: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    Add,
    List,
    Remove,
    Enable,
    Disable,
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Prompt,
    Message,
}

/// Makes, lists and changes jobs. A change is committed together with the call's result.
pub struct CronTool {
    spec: ToolSpec,
    desk: Option<Arc<Desk>>,
}

impl CronTool {
    /// A tool that works on the jobs of `desk`.
    pub fn new(desk: Arc<Desk>) -> Self {
        Self { desk: Some(desk), ..Self::to_be_shown() }
    }

    /// A tool for lists of tools, where no gateway runs: its calls fail.
    pub fn to_be_shown() -> Self {
        let description = "Schedule a reminder, or a task for yourself, once or repeatedly; the outcome is sent to this \
                           chat. Use it whenever you promise something for later.";
        Self { spec: tool_spec::<Args>(NAME, description), desk: None }
    }
}

#[async_trait]
impl Tool for CronTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["schedule", "scheduler", "reminder", "remind", "remind_me", "set_reminder", "schedule_task", "cron_job"]
    }

    fn replay(&self) -> Replay {
        Replay::Atomic
    }

    /// What a page says must not choose who is written to.
    fn sealed_arguments(&self) -> &'static [&'static str] {
        &["action", "channel", "chat_id", "session", "job_id"]
    }

    fn check(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let args: Args = serde_json::from_value(arguments.clone()).map_err(|error| error.to_string())?;
        let names_one = args.job_id.as_deref().is_some_and(|id| !id.trim().is_empty());
        match args.action {
            Action::Add | Action::List => Ok(()),
            _ if names_one => Ok(()),
            _ => Err("job_id is missing: the id or name of the job, as action=list shows it".to_owned()),
        }
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let failed = |error: String| ToolOutcome::from(ToolResult::failed(error));
        let Some(desk) = &self.desk else { return failed("no gateway runs here".to_owned()) };
        match serde_json::from_value(arguments) {
            Ok(args) => carry_out(desk, args, context).await.unwrap_or_else(|error| failed(error.to_string())),
            Err(error) => failed(error.to_string()),
        }
    }
}

/// For whom a call runs, as far as jobs are concerned.
#[derive(Clone)]
struct Caller {
    scope: Scope,
    place: Place,
    origin: Arc<TurnOrigin>,
    turn: Uuid,
    call_id: String,
}

async fn carry_out(desk: &Arc<Desk>, args: Args, context: &ToolContext) -> Result<ToolOutcome, JobError> {
    let (now, terms, caller) = (Timestamp::now(), desk.terms.get(), Caller::of(context));
    let looked = desk.store.read(move |connection| match prepare(connection, args, &caller, &terms, now) {
        Err(JobError::Store(error)) => Err(error),
        other => Ok(other),
    });
    let (told, change) = looked.await??;
    let rows =
        |change| Effect::Rows(Rows(Arc::new(Written { desk: desk.clone(), change, now, fired: Mutex::default() })));
    Ok(ToolOutcome { result: ToolResult::ok(told), effects: change.map(rows).into_iter().collect() })
}

/// What a call changes.
#[derive(Clone, Debug, PartialEq)]
enum Change {
    Add(Box<NewJob>),
    Remove(String),
    Enable(String),
    Disable(String),
    Run(String),
}

/// Looks whether the call can be carried out; answers what the model is told, and what is to be written.
fn prepare(
    connection: &Connection,
    args: Args,
    caller: &Caller,
    terms: &Terms,
    now: Timestamp,
) -> Result<(String, Option<Change>), JobError> {
    let job = |id: Option<&str>| find(connection, &caller.scope, id.unwrap_or_default());
    match args.action {
        Action::List => {
            let jobs = jobs::list(connection, &caller.scope)?;
            let none = || "No scheduled jobs.".to_owned();
            Ok((if jobs.is_empty() { none() } else { lines(&jobs, terms, LISTED) }, None))
        }
        Action::Add => add(connection, args, caller, terms, now),
        Action::Remove => {
            let JobRow { id, name, .. } =
                find_row(connection, &caller.scope, args.job_id.as_deref().unwrap_or_default())?;
            Ok((format!("Removed job {id} ({name})"), Some(Change::Remove(id))))
        }
        Action::Enable => {
            let job = job(args.job_id.as_deref())?;
            let next = next_slot(&Moments::of(&job), now)?;
            let enabled = Job { row: JobRow { next_at: Some(next.as_millisecond()), ..job.row }, ..job };
            let next = enabled.next_in_words(terms).unwrap_or_default();
            Ok((format!("Enabled job {}; next: {next}", enabled.row.id), Some(Change::Enable(enabled.row.id))))
        }
        Action::Disable => {
            let job = job(args.job_id.as_deref())?;
            Ok((format!("Disabled job {}", job.row.id), Some(Change::Disable(job.row.id))))
        }
        Action::Run => {
            let job = job(args.job_id.as_deref())?;
            if job_runs::unfinished(connection, &job.row.id)?.is_some() {
                return Err(JobError::Wrong(format!("the last run of job {} is not done yet", job.row.id)));
            }
            check_run(connection, &job, &terms.rules, now)?;
            Ok((format!("Job {} runs now", job.row.id), Some(Change::Run(job.row.id))))
        }
    }
}

/// The job that is meant; when there is none, those that there are.
fn find(connection: &Connection, scope: &Scope, id: &str) -> Result<Job, JobError> {
    Ok(Job::read(find_row(connection, scope, id)?)?)
}

/// Its row, also of one that cannot be read.
fn find_row(connection: &Connection, scope: &Scope, id: &str) -> Result<JobRow, JobError> {
    let id = id.trim();
    match jobs::find_row(connection, scope, id) {
        Err(JobError::NotFound(_)) => {
            let jobs = jobs::list(connection, scope)?;
            let named = jobs.iter().filter_map(|job| job.as_ref().ok()).take(NAMED);
            let named: Vec<_> = named.map(|job| format!("{} ({})", job.row.id, job.row.name)).collect();
            let there =
                if named.is_empty() { "there are none".to_owned() } else { format!("there are {}", named.join(", ")) };
            Err(JobError::Wrong(format!("Job {id} not found; {there}")))
        }
        found => found,
    }
}

fn add(
    connection: &Connection,
    args: Args,
    caller: &Caller,
    terms: &Terms,
    now: Timestamp,
) -> Result<(String, Option<Change>), JobError> {
    let place = caller.at_home(connection)?;
    let mut new = args.asked()?.plan(&place, terms, now)?;
    new.id = Some(id_from(caller.turn, &caller.call_id));
    let job = jobs::preview(connection, &new, terms.settings, now)?;
    let (id, name, when) = (&job.row.id, &job.row.name, job.when(terms));
    let next = job.next_in_words(terms).unwrap_or_default();
    let told = format!("Created job '{name}' (id: {id}): {when}; next: {next}");
    Ok((told, Some(Change::Add(Box::new(new)))))
}

impl Args {
    fn asked(self) -> Result<AskedJob, JobError> {
        let (prompt, message) = match self.kind.unwrap_or(Kind::Prompt) {
            Kind::Prompt => (self.message, None),
            Kind::Message => (None, self.message),
        };
        let every = match (self.every.filter(|every| !every.trim().is_empty()), self.every_seconds) {
            (Some(_), Some(_)) => return Err(JobError::Wrong("every and every_seconds: give one of them".to_owned())),
            (every, None) => every,
            (None, Some(seconds)) => Some(format!("{seconds}s")),
        };
        Ok(AskedJob {
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
            deliver: self.deliver,
            misfire: self.misfire,
            ..AskedJob::default()
        })
    }
}

impl Caller {
    fn of(context: &ToolContext) -> Self {
        let ToolContext { channel, chat_id, trust, .. } = context;
        Self {
            scope: Scope::of(*trust, channel, chat_id),
            place: Place {
                target: Target {
                    channel: channel.clone(),
                    chat_id: chat_id.clone(),
                    session: context.session.clone(),
                    metadata: serde_json::from_str(&context.metadata).unwrap_or_default(),
                    origin: for_runs(&context.origin),
                },
                maker: Maker { trust: *trust, channel: channel.clone(), chat_id: chat_id.clone() },
            },
            origin: context.origin.clone(),
            turn: context.turn,
            call_id: context.call_id.clone(),
        }
    }

    /// A turn that runs in a session of its own makes jobs for the chat that it works for.
    fn at_home(&self, connection: &Connection) -> Result<Place, StoreError> {
        let mut place = self.place.clone();
        if !self.origin.is_errand() {
            return Ok(place);
        }
        let target = &mut place.target;
        let here = (target.channel.as_str(), target.chat_id.as_str());
        let chat = ReplyTarget::resolve(connection, target.session.as_str(), here, &self.origin)?;
        if let Some(row) = &chat.message {
            target.metadata = serde_json::from_str(&row.metadata)?;
            let mut origin = for_runs(&TurnOrigin::parse(&row.origin));
            // Who has not all tools cannot get them by way of a job.
            origin.settings.tools.clone_from(&self.origin.settings.tools);
            origin.follow_ups = self.origin.follow_ups;
            let behind = target.origin.on_behalf_of.take();
            origin.on_behalf_of = behind.or(origin.on_behalf_of);
            target.origin = origin;
        }
        (target.session, target.channel, target.chat_id) = (chat.session, chat.channel, chat.chat_id);
        Ok(place)
    }
}

/// Returns the origin that the runs of a job inherit from the turn in which it is made.
fn for_runs(origin: &TurnOrigin) -> TurnOrigin {
    let mut origin = origin.for_follow_up();
    // These were of that one message, or of that one turn.
    (origin.settings.requested_model, origin.settings.bounds, origin.reply.is_picked_up) = (None, None, false);
    origin
}

/// A change on its way into the commit of its call's result.
struct Written {
    desk: Arc<Desk>,
    change: Change,
    now: Timestamp,
    /// What a run by hand gave others to do.
    fired: Mutex<Option<Fired>>,
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.change.fmt(f)
    }
}

impl Written {
    fn run(&self, connection: &Connection, id: &str) -> Result<(), JobError> {
        let job = jobs::find(connection, &Scope::All, id)?;
        let fired = run_now(connection, &job, &self.desk.terms.get().rules, self.now)?;
        *self.fired.lock().unwrap_or_else(PoisonError::into_inner) = Some(fired);
        Ok(())
    }
}

impl WriteRows for Written {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        // The job was found in the caller's scope; here it goes by its id.
        let (all, now) = (Scope::All, self.now);
        let settings = self.desk.terms.get().settings;
        let done = match &self.change {
            Change::Add(new) => match jobs::add(connection, new, settings, now) {
                // The model was told that it is made: the name was taken since, by a call of the same response at the latest.
                Err(JobError::NameTaken { name, .. }) => jobs::numbered(connection, &name)
                    .and_then(|name| jobs::add(connection, &NewJob { name, ..(**new).clone() }, settings, now))
                    .map(|_| ()),
                added => added.map(|_| ()),
            },
            Change::Remove(id) => jobs::remove(connection, &all, id).map(|_| ()),
            Change::Enable(id) => jobs::set_enabled(connection, &all, id, true, now).map(|_| ()),
            Change::Disable(id) => jobs::set_enabled(connection, &all, id, false, now).map(|_| ()),
            Change::Run(id) => self.run(connection, id),
        };
        match done {
            Err(JobError::Store(error)) => Err(error),
            Err(error) => {
                tracing::warn!(change = ?self.change, %error, "a job has changed since the model asked for a change of it");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn written(&self) {
        if let Some(fired) = self.fired.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.desk.started(fired);
        }
        self.desk.wake();
    }
}
