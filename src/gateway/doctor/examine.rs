//! The whole examination, in the order in which one thing stands on another.

use std::time::Duration;

use daoyou_channels::finding::worst;
use daoyou_channels::{Finding, Verdict};
use serde::Serialize;
use tokio::time::timeout;

use super::check::{Check, Fix};
use super::running::{Holder, holder};
use super::{database, files, machine, memory, workspace as own_files};
use crate::config::{Fault, Loaded, Place};
use crate::control::ControlClient;
use crate::gateway::inspect::Inspector;
use crate::home::Home;
use crate::memory::Identities;
use crate::query::GatewayQuery;

/// How long the gateway may take for its own checks: the slowest of them waits for other machines.
const CHECKS: Duration = Duration::from_secs(60);

/// What is examined.
pub struct Patient {
    pub home: Home,
    /// The configuration, or everything that is wrong with it.
    pub loaded: Result<Loaded, Vec<Fault>>,
    /// Mend what is safe to mend.
    pub mends: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Nothing failed.
    pub ok: bool,
    /// How many of what is wrong `--fix` would mend.
    pub fixable: usize,
    pub version: &'static str,
    pub home: String,
    pub checks: Vec<Finding>,
}

impl Report {
    pub fn of(home: String, checks: Vec<Finding>, fixable: usize) -> Self {
        Self { ok: worst(&checks) != Verdict::Fail, fixable, version: env!("CARGO_PKG_VERSION"), home, checks }
    }
}

/// Examines, and always ends with a report.
pub async fn examine(patient: Patient) -> Report {
    let Patient { home, loaded, mends } = &patient;
    // What another user makes in a home, its owner cannot use.
    let mends = *mends && files::is_ours(home);
    let (mut findings, mut fixable) = (Vec::new(), 0);
    let mut add = |check: Check| {
        fixable += usize::from(check.fix.is_some() && check.finding.state != Verdict::Ok);
        findings.push(check.settle(home, mends));
    };
    let of_config = config(loaded);
    let is_settled = of_config.iter().any(|check| check.fix.is_some());
    of_config.into_iter().for_each(&mut add);
    let config = loaded.as_ref().map(|loaded| loaded.config.clone()).unwrap_or_default();
    let workspace = home.workspace(&config.agent.workspace);

    files::home(home).into_iter().for_each(&mut add);
    let mut held = Holder::Nobody;
    if home.dir().is_dir() {
        files::config(home).into_iter().filter(|_| !is_settled).for_each(&mut add);
        files::token(home, &config).into_iter().for_each(&mut add);
        held = holder(home).await;
        held.checks(home).into_iter().for_each(&mut add);
        files::shared(home, held.is_gateway()).into_iter().for_each(&mut add);
        let identities = Identities::new(&config.identities);
        database::checks(home, &held, &identities).await.into_iter().for_each(&mut add);
        files::workspace(home, &workspace).into_iter().for_each(&mut add);
        memory::notes(&workspace).into_iter().for_each(|finding| add(finding.into()));
        own_files::unread(&workspace).into_iter().for_each(|finding| add(finding.into()));
        files::leftovers(home).into_iter().for_each(&mut add);
    }
    machine::checks(home, config.store.reserve.0.0).into_iter().for_each(&mut add);
    for finding in inside(home, loaded, &held).await {
        add(finding.into());
    }
    add(machine::service().into());
    Report::of(home.dir().display().to_string(), findings, if mends { 0 } else { fixable })
}

fn config(loaded: &Result<Loaded, Vec<Fault>>) -> Vec<Check> {
    const NAME: &str = "config";
    match loaded {
        Err(faults) => faults.iter().map(|fault| fault_check(NAME, fault).into()).collect(),
        Ok(loaded) if loaded.warnings.is_empty() => {
            let message = match &loaded.file {
                Some(file) => format!("{}: every setting is right", file.display()),
                None => "there is no config.toml; the defaults serve".to_owned(),
            };
            vec![Finding::ok(NAME, message).into()]
        }
        Ok(loaded) => loaded.warnings.iter().map(|warning| warning_check(NAME, warning, loaded)).collect(),
    }
}

fn fault_check(name: &str, fault: &Fault) -> Finding {
    let short = Fault { allowed: String::new(), ..fault.clone() };
    let place = match &fault.place {
        Place::File { file, line: Some(line) } => format!("edit {}, line {line}", file.display()),
        Place::File { file, line: None } => format!("edit {}", file.display()),
        Place::Env(variable) => format!("set or unset the variable {variable}"),
        Place::Option(option) => format!("change the option {option}"),
        Place::Default => "edit config.toml".to_owned(),
    };
    let allowed = if fault.allowed.is_empty() { String::new() } else { format!("; allowed: {}", fault.allowed) };
    Finding::fail(name, short.to_string(), format!("{place}{allowed}"))
}

/// The one warning there is ends with the command that mends it.
fn warning_check(name: &str, warning: &str, loaded: &Loaded) -> Check {
    match (warning.split_once(": chmod 600 "), &loaded.file) {
        (Some((message, path)), Some(file)) => Check::with(
            Finding::warn(name, message, format!("chmod 600 {path}")),
            Fix::Mode { path: file.clone(), mode: 0o600 },
        ),
        _ => Finding::warn(name, warning, "edit config.toml").into(),
    }
}

/// What only the gateway's process can tell, or this one where none runs.
async fn inside(home: &Home, loaded: &Result<Loaded, Vec<Fault>>, held: &Holder) -> Vec<Finding> {
    const NAME: &str = "parts";
    const WHAT: &str = "model, sandbox, port and channels were not checked";
    match (held, loaded) {
        (Holder::Answers { client, .. }, _) => match timeout(CHECKS, asked(client)).await {
            Ok(Ok(findings)) => findings,
            Ok(Err(error)) => {
                vec![Finding::warn(NAME, format!("{WHAT}: the gateway says: {error:#}"), "restart the gateway")]
            }
            Err(_) => vec![Finding::warn(NAME, format!("{WHAT} within {CHECKS:?}"), "look at the gateway's log")],
        },
        (Holder::Silent { .. }, _) => {
            vec![Finding::warn(NAME, format!("{WHAT}: the gateway does not answer"), "restart the gateway")]
        }
        (Holder::Nobody, Ok(loaded)) => match Inspector::offline(home.clone(), loaded) {
            Ok(inspector) => Box::pin(inspector.checks()).await,
            Err(faults) => faults.0.iter().map(|fault| fault_check("config", fault)).collect(),
        },
        (Holder::Nobody, Err(_)) => {
            vec![Finding::warn(NAME, format!("{WHAT}: the configuration is wrong"), "mend the configuration first")]
        }
    }
}

async fn asked(client: &ControlClient) -> anyhow::Result<Vec<Finding>> {
    Ok(serde_json::from_value(client.get(&GatewayQuery::Checks.path()).await?)?)
}
