//! `daoyou cron`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::dispatch::print;
use super::files::read_text;
use super::prepared::Prepared;
use super::reach::Reach;
use super::{Exit, output, show};
use crate::cli::{CronAdd, CronCommand, CronJob, Output};
use crate::gateway;
use crate::query::{JobChange, JobQuery};

const JOBS: show::Columns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("WHEN", "when"),
    ("NEXT", "next"),
    ("CHANNEL", "channel"),
    ("CHAT", "chat_id"),
    ("TEXT", "text"),
];
const RUNS: show::Columns = &[
    ("DUE", "due"),
    ("STARTED", "started"),
    ("OUTCOME", "outcome"),
    ("DELIVERY", "delivery"),
    ("TOKENS", "tokens"),
    ("COST", "cost"),
    ("TURN", "turn"),
    ("REASON", "reason"),
];

/// The largest `cron.json`, in bytes: what the gateway takes.
const FILE_LIMIT: u64 = 32 * 1024 * 1024;

/// Carries it out, through the gateway that runs or in the store itself.
///
/// # Errors
/// What is wrong and what would be right.
pub async fn run(command: &CronCommand, prepared: &Prepared) -> anyhow::Result<Exit> {
    match command {
        CronCommand::List(output) => {
            let jobs = look(JobQuery::List, prepared).await?;
            print(&jobs, *output, |out| list(&jobs, out))
        }
        CronCommand::Add(args) => add(args, prepared).await,
        CronCommand::Show(CronJob { job, output }) => {
            let job = look(JobQuery::Show(job.clone()), prepared).await?;
            print(&job, *output, |out| one(&job, out))
        }
        CronCommand::Remove(job) => changed(JobChange::Remove(job.job.clone()), job.output, prepared).await,
        CronCommand::Enable(job) => changed(JobChange::Enable(job.job.clone()), job.output, prepared).await,
        CronCommand::Disable(job) => changed(JobChange::Disable(job.job.clone()), job.output, prepared).await,
        CronCommand::Run(job) => changed(JobChange::Run(job.job.clone()), job.output, prepared).await,
        CronCommand::History { job: CronJob { job, output }, limit } => {
            let runs = look(JobQuery::History { job: job.clone(), limit: *limit }, prepared).await?;
            print(&runs, *output, |out| show::table(&runs, RUNS, "it has not run yet", out))
        }
        CronCommand::Import { file, output } => import(file, *output, prepared).await,
        CronCommand::Export { .. } => {
            let file = look(JobQuery::Export, prepared).await?;
            print(&file, Output { json: true }, |_| Ok(()))
        }
    }
}

async fn look(query: JobQuery, prepared: &Prepared) -> anyhow::Result<Value> {
    match Reach::find(&prepared.home).await? {
        Reach::Running(client) => client.get(&query.path()).await,
        Reach::Alone(lock) => gateway::read_jobs(&prepared.home, &lock, prepared.without_secrets()?, query).await,
    }
}

/// What was answered, and whether a gateway runs that goes by it at once.
async fn change(change: JobChange, prepared: &Prepared) -> anyhow::Result<(Value, bool)> {
    match Reach::find(&prepared.home).await? {
        Reach::Running(client) => {
            let (method, path, body) = change.request();
            Ok((client.send(method, &path, body).await?, true))
        }
        Reach::Alone(lock) => {
            Ok((gateway::change_jobs(&prepared.home, &lock, prepared.without_secrets()?, change).await?, false))
        }
    }
}

async fn add(args: &CronAdd, prepared: &Prepared) -> anyhow::Result<Exit> {
    let (job, is_running) = change(JobChange::Add(asked(args)), prepared).await?;
    // Standard output holds the id alone.
    let (when, next) = (show::text(&job["when"]), show::text(&job["next"]));
    output::note(format_args!("{when}; next: {next}{}", waits(is_running)));
    print(&job, args.output, |out| writeln!(out, "{}", show::text(&job["id"])))
}

/// What is added where nobody runs jobs at the moment.
fn waits(is_running: bool) -> &'static str {
    if is_running { "" } else { " (no gateway runs at the moment: jobs run when one does)" }
}

fn asked(args: &CronAdd) -> Value {
    let mut asked = json!({
        "name": args.name,
        "prompt": args.prompt,
        "message": args.message,
        "at": args.at,
        "every": args.every,
        "cron": args.cron,
        "tz": args.tz,
        "anchor": args.anchor,
        "channel": args.channel,
        "chat_id": args.chat,
        "session": args.session,
        "model": args.model,
        "deliver": args.deliver,
        "misfire": args.misfire,
        "stale_after": args.stale_after,
        "jitter": args.jitter,
        "keep": args.keep,
    });
    if let Value::Object(fields) = &mut asked {
        fields.retain(|_, value| !value.is_null());
    }
    asked
}

async fn changed(what: JobChange, output: Output, prepared: &Prepared) -> anyhow::Result<Exit> {
    let told = match &what {
        JobChange::Remove(_) => "removed",
        JobChange::Enable(_) => "enabled",
        JobChange::Disable(_) => "disabled",
        _ => "started",
    };
    let (mut job, is_running) = change(what, prepared).await?;
    if told == "started" {
        return started(&mut job, is_running, output);
    }
    let waits = if told == "enabled" { waits(is_running) } else { "" };
    print(&job, output, |out| {
        let next = job["next"].as_str().map(|next| format!("; next: {next}")).unwrap_or_default();
        writeln!(out, "{told}: {} {}{next}{waits}", show::text(&job["id"]), show::text(&job["name"]))
    })
}

/// Says what became of a run by hand: it waits in the store until there is a gateway.
fn started(job: &mut Value, is_running: bool, output: Output) -> anyhow::Result<Exit> {
    job["state"] = json!(if is_running { "started" } else { "queued" });
    print(job, output, |out| {
        let named = format!("{} {}", show::text(&job["id"]), show::text(&job["name"]));
        match is_running {
            true => writeln!(out, "started: {named}"),
            false => writeln!(out, "queued: {named}; no gateway runs at the moment, the next one carries it out"),
        }
    })
}

async fn import(file: &Path, output: Output, prepared: &Prepared) -> anyhow::Result<Exit> {
    let text = read_text(file, FILE_LIMIT, "cron.json")?;
    let (found, _) = change(JobChange::Import(text), prepared).await?;
    let printed = print(&found, output, |out| {
        for (key, word) in [("imported", "imported"), ("unchanged", "here already"), ("refused", "refused")] {
            for row in found[key].as_array().into_iter().flatten() {
                let said = ["reason", "note"].into_iter().find_map(|key| row[key].as_str());
                let said = said.map(|said| format!(": {said}")).unwrap_or_default();
                let named = [show::text(&row["id"]), show::text(&row["name"])].join(" ");
                writeln!(out, "{word}: job {} of the file {}{said}", row["row"], named.trim())?;
            }
        }
        let count = |key: &str| found[key].as_array().map_or(0, Vec::len);
        let (new, same, refused) = (count("imported"), count("unchanged"), count("refused"));
        writeln!(out, "{new} imported, {same} here already, {refused} refused")
    })?;
    let is_whole = found["refused"].as_array().is_none_or(Vec::is_empty);
    Ok(if is_whole { printed } else { Exit::Failed })
}

fn list(jobs: &Value, mut out: impl Write) -> io::Result<()> {
    show::table(jobs, JOBS, "no scheduled jobs", &mut out)?;
    for job in jobs.as_array().into_iter().flatten() {
        if let Some(reason) = job["error"].as_str().or(job["paused"].as_str()) {
            writeln!(out, "{} is {}: {reason}", show::text(&job["id"]), show::text(&job["state"]))?;
        }
    }
    Ok(())
}

fn one(job: &Value, mut out: impl Write) -> io::Result<()> {
    for (key, value) in job.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Array(_) if key == "runs" => {}
            Value::Array(times) => {
                let times: Vec<_> = times.iter().map(show::text).collect();
                writeln!(out, "{key}: {}", times.join(", "))?;
            }
            _ => writeln!(out, "{key}: {}", show::text(value))?,
        }
    }
    writeln!(out)?;
    show::table(&job["runs"], RUNS, "it has not run yet", out)
}
