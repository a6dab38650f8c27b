//! `daoyou cron`.

use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::{RequestAnswer, answer_request, answer_request_with_source};
use super::environment::CommandEnvironment;
use super::files::read_text;
use super::output::{print, tr};
use super::translation::tr_fill;
use super::{CommandExit, output, render};
use crate::cli::{CronAdd, CronCommand, CronJob, Output};
use crate::gateway;
use crate::query::{JobChange, JobQuery};

const JOBS: render::TableColumns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("WHEN", "when"),
    ("NEXT", "next"),
    ("CHANNEL", "channel"),
    ("CHAT", "chat_id"),
    ("TEXT", "text"),
];
const RUNS: render::TableColumns = &[
    ("DUE", "due"),
    ("STARTED", "started"),
    ("OUTCOME", "outcome"),
    ("DELIVERY", "delivery"),
    ("TOKENS", "tokens"),
    ("COST", "cost"),
    ("TURN", "turn"),
    ("REASON", "reason"),
];

/// The largest `cron.json`, in bytes: the limit of the gateway.
const FILE_LIMIT: u64 = 32 * 1024 * 1024;

/// Runs the command.
///
/// # Errors
/// The job does not exist, or the change is invalid.
pub async fn run(command: &CronCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        CronCommand::List(output) => {
            let jobs = answer_request(JobQuery::List, environment).await?;
            print(&jobs, *output, |out| print_jobs(&jobs, out))
        }
        CronCommand::Add(args) => add(args, environment).await,
        CronCommand::Show(CronJob { job, output }) => {
            let job = answer_request(JobQuery::Show(job.clone()), environment).await?;
            print(&job, *output, |out| print_job(&job, out))
        }
        CronCommand::Remove(job) => changed(JobChange::Remove(job.job.clone()), job.output, environment).await,
        CronCommand::Enable(job) => changed(JobChange::Enable(job.job.clone()), job.output, environment).await,
        CronCommand::Disable(job) => changed(JobChange::Disable(job.job.clone()), job.output, environment).await,
        CronCommand::Run(job) => changed(JobChange::Run(job.job.clone()), job.output, environment).await,
        CronCommand::History { job: CronJob { job, output }, limit } => {
            let runs = answer_request(JobQuery::History { job: job.clone(), limit: *limit }, environment).await?;
            print(&runs, *output, |out| render::table(&runs, RUNS, "it has not run yet", out))
        }
        CronCommand::Import { file, output } => import(file, *output, environment).await,
        CronCommand::Export { .. } => {
            let file = answer_request(JobQuery::Export, environment).await?;
            print(&file, Output { json: true }, |_| Ok(()))
        }
    }
}

async fn add(args: &CronAdd, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let fields = render::without_nulls(serde_json::to_value(args)?);
    let RequestAnswer { value: job, is_running } =
        answer_request_with_source(JobChange::Add(fields), environment).await?;
    // Standard output contains only the id.
    let (when, next) = (render::text(&job["when"]), render::text(&job["next"]));
    let before = tr("; next: ", "；下次：");
    output::print_note(format_args!("{when}{before}{next}{}", no_gateway_note(is_running)));
    print(&job, args.output, |out| writeln!(out, "{}", render::text(&job["id"])))
}

/// Returns a note if no gateway is running, since the job needs one.
fn no_gateway_note(is_running: bool) -> &'static str {
    let note = tr(" (no gateway runs at the moment: jobs run when one does)", "（网关未运行：任务会在网关运行时执行）");
    if is_running { "" } else { note }
}

async fn changed(what: JobChange, output: Output, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let done = match &what {
        JobChange::Remove(_) => "removed",
        JobChange::Enable(_) => "enabled",
        JobChange::Disable(_) => "disabled",
        _ => "started",
    };
    let RequestAnswer { value: mut job, is_running } = answer_request_with_source(what, environment).await?;
    if done == "started" {
        return print_started(&mut job, is_running, output);
    }
    let note = if done == "enabled" { no_gateway_note(is_running) } else { "" };
    print(&job, output, |out| {
        let next = job["next"].as_str().map(|next| format!("{}{next}", tr("; next: ", "；下次："))).unwrap_or_default();
        let done = match done {
            "removed" => tr("removed: ", "已删除："),
            "enabled" => tr("enabled: ", "已启用："),
            _ => tr("disabled: ", "已停用："),
        };
        writeln!(out, "{done}{} {}{next}{note}", render::text(&job["id"]), render::text(&job["name"]))
    })
}

/// Prints the result of a manual run. Without a gateway, the run waits in the store.
fn print_started(job: &mut Value, is_running: bool, output: Output) -> anyhow::Result<CommandExit> {
    job["state"] = json!(if is_running { "started" } else { "queued" });
    print(job, output, |out| {
        let named = format!("{} {}", render::text(&job["id"]), render::text(&job["name"]));
        match is_running {
            true => writeln!(out, "{}{named}", tr("started: ", "已开始：")),
            false => {
                let en = "queued: {}; no gateway runs at the moment, the next one carries it out";
                writeln!(out, "{}", tr_fill(en, "已排队：{}；网关未运行，下次启动时执行", &[&named]))
            }
        }
    })
}

async fn import(file: &Path, output: Output, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let text = read_text(file, FILE_LIMIT, "cron.json")?;
    let found = answer_request(JobChange::Import(text), environment).await?;
    let printed = print(&found, output, |out| {
        for (key, word) in [("imported", "imported"), ("unchanged", "here already"), ("refused", "refused")] {
            for row in render::items(&found[key]) {
                let note = ["reason", "note"].into_iter().find_map(|key| row[key].as_str());
                let note = note.map(|note| format!(": {note}")).unwrap_or_default();
                let named = [render::text(&row["id"]), render::text(&row["name"])].join(" ");
                writeln!(out, "{word}: job {} of the file {}{note}", row["row"], named.trim())?;
            }
        }
        let count = |key: &str| render::items(&found[key]).len();
        let (new, same, refused) = (count("imported"), count("unchanged"), count("refused"));
        writeln!(out, "{new} imported, {same} here already, {refused} refused")
    })?;
    let is_whole = found["refused"].as_array().is_none_or(Vec::is_empty);
    Ok(if is_whole { printed } else { CommandExit::Failed })
}

fn print_jobs(jobs: &Value, mut out: impl Write) -> io::Result<()> {
    render::table(jobs, JOBS, "no scheduled jobs", &mut out)?;
    for job in render::items(jobs) {
        if let Some(reason) = job["error"].as_str().or(job["paused"].as_str()) {
            writeln!(out, "{} is {}: {reason}", render::text(&job["id"]), render::text(&job["state"]))?;
        }
        if job["maker_unrecorded"] == true {
            let en = "{}: an earlier version made this job in a chat and did not record for whom. It has the rights of the least \
                      trusted sender who has written there as the owner. To make it yours, remove it and add it with `daoyou cron add`";
            let zh = "{}：此任务由旧版本在聊天中创建，没有记录是为谁创建的。它只有曾在该聊天中以主人身份发言者中权限最低者的权限。\
                      要使它归你所有，请删除它，再用 `daoyou cron add` 添加";
            writeln!(out, "{}", tr_fill(en, zh, &[&render::text(&job["id"])]))?;
        }
    }
    Ok(())
}

fn print_job(job: &Value, mut out: impl Write) -> io::Result<()> {
    let zone = job["schedule"]["tz"].as_str().and_then(|name| gateway::time_zone(name).ok());
    let in_zone = |at: &Value| {
        let at: Timestamp = at.as_str()?.parse().ok()?;
        Some(at.to_zoned(zone.clone()?).strftime("%Y-%m-%d %H:%M").to_string())
    };
    for (key, value) in job.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Array(_) if key == "runs" => {}
            // `next` and `upcoming` are in the job's own time zone, which `when` names.
            _ if key == "next_at" => {}
            Value::Array(times) => {
                let times: Vec<_> = times.iter().map(|at| in_zone(at).unwrap_or_else(|| render::text(at))).collect();
                writeln!(out, "{key}: {}", times.join(", "))?;
            }
            _ => writeln!(out, "{key}: {}", render::text(value))?,
        }
    }
    writeln!(out)?;
    render::table(&job["runs"], RUNS, "it has not run yet", out)
}
