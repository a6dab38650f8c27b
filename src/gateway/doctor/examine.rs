//! Runs all checks, each after the checks that it depends on.

use std::time::Duration;

use daoyou_channels::finding::worst;
use daoyou_channels::{Finding, Severity};
use serde::Serialize;
use tokio::time::timeout;

use super::check::{DoctorCheck, Repair};
use super::running::HomeHolder;
use super::{database, files, machine, memory};
use crate::config::{ConfigFault, LoadedConfig, SettingOrigin};
use crate::control::ControlClient;
use crate::gateway::inspect::Inspector;
use crate::home::Home;
use crate::memory::Identities;
use crate::query::GatewayQuery;

/// The time limit of the gateway's own checks, some of which wait for other machines.
const GATEWAY_CHECKS_LIMIT: Duration = Duration::from_secs(60);

/// The input of an examination.
pub struct DoctorInput {
    pub home: Home,
    /// The configuration, or its faults.
    pub loaded: Result<LoadedConfig, Vec<ConfigFault>>,
    /// True to make safe repairs.
    pub repairs: bool,
}

/// The report of an examination.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    /// True if no check failed.
    pub ok: bool,
    /// The number of findings that `--fix` would repair.
    pub fixable: usize,
    pub version: &'static str,
    pub home: String,
    pub checks: Vec<Finding>,
}

impl DoctorReport {
    pub fn new(home: String, checks: Vec<Finding>, fixable: usize) -> Self {
        Self { ok: worst(&checks) != Severity::Fail, fixable, version: env!("CARGO_PKG_VERSION"), home, checks }
    }
}

/// Runs all checks. There is always a report.
pub async fn examine(input: DoctorInput) -> DoctorReport {
    let DoctorInput { home, loaded, repairs } = &input;
    // The owner of a home could not use files that another user creates in it.
    let repairs = *repairs && files::is_own(home);
    let (mut findings, mut fixable) = (Vec::new(), 0);
    let mut add = |check: DoctorCheck| {
        fixable += usize::from(check.fix.is_some() && check.finding.state != Severity::Ok);
        findings.push(check.resolve(home, repairs));
    };
    let of_config = config(loaded);
    let has_repair = of_config.iter().any(|check| check.fix.is_some());
    of_config.into_iter().for_each(&mut add);
    let config = loaded.as_ref().map(|loaded| loaded.config.clone()).unwrap_or_default();
    let workspace = home.workspace(&config.agent.workspace);

    add(files::home(home));
    let mut holder = HomeHolder::Nobody;
    if home.dir().is_dir() {
        files::config_mode(home).into_iter().filter(|_| !has_repair).for_each(&mut add);
        add(files::token(home, &config));
        holder = HomeHolder::find(home, &config).await;
        holder.checks(home).into_iter().for_each(&mut add);
        files::foreign_access(home, holder.is_gateway()).into_iter().for_each(&mut add);
        let identities = Identities::new(&config.identities);
        database::checks(home, &holder, &identities).await.into_iter().for_each(&mut add);
        add(files::workspace(home, &workspace));
        memory::memory_file(&workspace).into_iter().for_each(|finding| add(finding.into()));
        files::unreadable(&workspace, home, &config).into_iter().for_each(|finding| add(finding.into()));
        files::heartbeat(&workspace, &config).into_iter().for_each(|finding| add(finding.into()));
        files::agents(loaded.as_ref().ok(), home).into_iter().for_each(|finding| add(finding.into()));
        files::leftovers(home, &holder).into_iter().for_each(&mut add);
    }
    credentials(loaded.as_ref().ok(), &holder).into_iter().for_each(|finding| add(finding.into()));
    machine::checks(home, config.store.reserve.0).into_iter().for_each(&mut add);
    for finding in gateway_checks(home, loaded, &holder).await {
        add(finding.into());
    }
    add(machine::service().into());
    DoctorReport::new(home.dir().display().to_string(), findings, if repairs { 0 } else { fixable })
}

/// Reports the systemd credentials of the configuration, which only the service can read.
fn credentials(loaded: Option<&LoadedConfig>, holder: &HomeHolder) -> Vec<Finding> {
    const NAME: &str = "config";
    let finding = |fault: &ConfigFault| match holder {
        HomeHolder::Answers { .. } => {
            let key = &fault.key;
            Finding::ok(NAME, format!("{key}: a systemd credential, which the running gateway reads itself"))
        }
        _ => Finding::warn(NAME, fault.to_string(), "start the service, and run doctor again"),
    };
    loaded.into_iter().flat_map(|loaded| &loaded.missing).map(finding).collect()
}

fn config(loaded: &Result<LoadedConfig, Vec<ConfigFault>>) -> Vec<DoctorCheck> {
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

fn fault_check(name: &str, fault: &ConfigFault) -> Finding {
    let short = ConfigFault { allowed: String::new(), ..fault.clone() };
    let place = match &fault.origin {
        SettingOrigin::File { file, line: Some(line) } => format!("edit {}, line {line}", file.display()),
        SettingOrigin::File { file, line: None } => format!("edit {}", file.display()),
        SettingOrigin::Env(variable) => format!("set or unset the variable {variable}"),
        SettingOrigin::Option(option) => format!("change the option {option}"),
        SettingOrigin::Default => "edit config.toml".to_owned(),
    };
    let allowed = if fault.allowed.is_empty() { String::new() } else { format!("; allowed: {}", fault.allowed) };
    Finding::fail(name, short.to_string(), format!("{place}{allowed}"))
}

/// Splits a warning about a file mode into the message and the repairing command.
fn warning_check(name: &str, warning: &str, loaded: &LoadedConfig) -> DoctorCheck {
    match (warning.split_once(": chmod 600 "), &loaded.file) {
        (Some((message, path)), Some(file)) => DoctorCheck::with(
            Finding::warn(name, message, format!("chmod 600 {path}")),
            Repair::Mode { path: file.clone(), mode: 0o600 },
        ),
        _ => Finding::warn(name, warning, "edit config.toml").into(),
    }
}

/// Runs the checks of a gateway's process: in the running gateway, or else in this process.
async fn gateway_checks(
    home: &Home,
    loaded: &Result<LoadedConfig, Vec<ConfigFault>>,
    holder: &HomeHolder,
) -> Vec<Finding> {
    const NAME: &str = "parts";
    const WHAT: &str = "model, sandbox, port and channels were not checked";
    let unchecked = |why: String, mend: &str| vec![Finding::warn(NAME, format!("{WHAT}{why}"), mend)];
    match (holder, loaded) {
        (HomeHolder::Answers { client, .. }, _) => match timeout(GATEWAY_CHECKS_LIMIT, remote_checks(client)).await {
            Ok(Ok(findings)) => findings,
            Ok(Err(error)) => unchecked(format!(": the gateway says: {error:#}"), "restart the gateway"),
            Err(_) => unchecked(format!(" within {GATEWAY_CHECKS_LIMIT:?}"), "look at the gateway's log"),
        },
        (HomeHolder::Silent { .. }, _) => {
            unchecked(": the gateway does not answer".to_owned(), "fix what `gateway` reports")
        }
        (HomeHolder::ReadOnly { .. }, _) => {
            unchecked(": the gateway is read-only".to_owned(), "run doctor again when its home can be written")
        }
        (HomeHolder::Command { pid }, _) => {
            unchecked(format!(": a daoyou command (pid {pid}) uses this home"), "run doctor after its end")
        }
        (HomeHolder::Nobody, Ok(loaded)) => match Inspector::offline(home.clone(), loaded) {
            Ok(inspector) => Box::pin(inspector.checks()).await,
            Err(faults) => faults.0.iter().map(|fault| fault_check("config", fault)).collect(),
        },
        (HomeHolder::Nobody, Err(_)) => {
            unchecked(": the configuration is wrong".to_owned(), "fix the configuration first")
        }
    }
}

async fn remote_checks(client: &ControlClient) -> anyhow::Result<Vec<Finding>> {
    Ok(serde_json::from_value(client.inspect(&GatewayQuery::Checks).await?)?)
}
