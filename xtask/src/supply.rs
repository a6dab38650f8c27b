//! Checks the dependencies of the program: checks by cargo-deny, the audit page, the bill of materials.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, report, root, run, shown, succeeds};

/// The checks of `deny.toml` that need no network.
const OFFLINE_CHECKS: [&str; 3] = ["bans", "licenses", "sources"];

const NO_DENY: &str = "cargo-deny is not there (cargo install cargo-deny --locked)";
const NO_DATABASE: &str = "there is no advisory database (cargo deny fetch db)";

/// Checks licences, bans, duplicates and sources by `deny.toml`, and advisories if their database is on this machine.
/// cargo-deny takes minutes to build, so it runs only if present and is not installed here.
pub fn check() -> Result<()> {
    if !has_deny() {
        report(&format!(
            "xtask: {NO_DENY}; not checked: licences, banned and duplicate crates, sources, known vulnerabilities, \
             unmaintained and yanked crates"
        ));
        return Ok(());
    }
    let mut command = deny();
    command.args(["check", "--hide-inclusion-graph"]).args(OFFLINE_CHECKS);
    run(command)?;
    if advisory_database().is_none() {
        report(&format!("xtask: {NO_DATABASE}; not checked: known vulnerabilities, unmaintained and yanked crates"));
        return Ok(());
    }
    let mut command = deny();
    command.args(["check", "--hide-inclusion-graph", "advisories"]);
    run(command)
}

fn has_deny() -> bool {
    succeeds("cargo-deny", &["--version"])
}

/// Returns a cargo-deny command for all packages. It does not use the network, so that the same code always gives the same result.
fn deny() -> Command {
    cargo(&["deny", "--locked", "--offline", "--workspace"])
}

/// Returns the folder of cargo-deny's advisory database, if it exists.
fn advisory_database() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))?;
    let entries = fs::read_dir(home.join("advisory-dbs")).ok()?;
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    folders.filter(|path| path.join("crates").is_dir()).min()
}

/// Writes `docs/audit.md`: the results of the checks for the current commit.
pub fn audit() -> Result<()> {
    if !has_deny() {
        bail!("{NO_DENY}");
    }
    let crates = crates()?;
    let checked = DenyReport::run(&OFFLINE_CHECKS)?;
    let (advisories, failed) = advisories()?;
    let page = format!(
        "# Audit of dependencies\n\nWritten by `cargo xtask audit`; do not edit it by hand. [dependencies.md](dependencies.md) says how to \
         replace each unmaintained or unfinished crate.\n\n{}\n## Checks\n\n{}{advisories}\n\
         ## Licences\n\nA crate that offers several licences counts for each.\n\n{}\n## Crates in several versions\n\n{}\n\
         ## Crates that are pre-releases\n\n{}",
        head(&crates)?,
        checked.verdicts(&OFFLINE_CHECKS),
        licences(&crates),
        list(&checked.duplicates()),
        list(&unreleased()?),
    );
    let path = root().join("docs/audit.md");
    fs::write(&path, page).context("docs/audit.md")?;
    report("xtask: docs/audit.md is written");
    if failed || !checked.faults().is_empty() {
        bail!("a check failed; `cargo deny check` says where");
    }
    Ok(())
}

/// The external crates, as `NAME VERSION`, each with the licences that it offers.
type Crates = BTreeMap<String, Vec<String>>;

fn crates() -> Result<Crates> {
    let mut command = deny();
    command.args(["list", "--format", "json", "--layout", "crate"]);
    let listed: Value = serde_json::from_slice(&output(command)?).context("cargo deny list")?;
    let listed = listed.as_object().context("cargo deny list: no object")?;
    let read = |(key, found): (&String, &Value)| {
        // `NAME VERSION SOURCE`; our own packages have no registry as their source.
        let (name, source) = key.rsplit_once(' ')?;
        let licences = found["licenses"].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
        source.starts_with("registry+").then(|| (name.to_owned(), licences.collect()))
    };
    Ok(listed.iter().filter_map(read).collect())
}

/// Returns the table with date, commit, tools and number of crates.
fn head(crates: &Crates) -> Result<String> {
    let line = |program: &str, args: &[&str]| -> Result<String> {
        let mut command = Command::new(program);
        command.args(args).current_dir(root());
        Ok(String::from_utf8_lossy(&output(command)?).trim().to_owned())
    };
    let commit = line("git", &["rev-parse", "--short=12", "HEAD"])?;
    let is_changed =
        !line("git", &["status", "--porcelain", "--", "Cargo.lock", "*Cargo.toml", "deny.toml"])?.is_empty();
    let rows = [
        ("date", line("date", &["-u", "+%Y-%m-%d"])?),
        ("commit", commit + if is_changed { ", with changes that are not committed" } else { "" }),
        ("tools", [line("cargo", &["--version"])?, line("cargo-deny", &["--version"])?].join("; ")),
        ("crates from elsewhere", crates.len().to_string()),
    ];
    let rows = rows.map(|(what, value)| format!("| {what} | {value} |\n"));
    Ok(format!("| | |\n|---|---|\n{}", rows.concat()))
}

fn licences(crates: &Crates) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for licence in crates.values().flatten() {
        *counts.entry(licence).or_default() += 1;
    }
    let rows: String = counts.iter().map(|(licence, count)| format!("| {licence} | {count} |\n")).collect();
    format!("| licence | crates |\n|---|---:|\n{rows}")
}

/// Returns the prerelease versions in the lock file.
fn unreleased() -> Result<BTreeSet<String>> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("Cargo.lock")?;
    let value = |line: &str, key: &str| line.strip_prefix(key).map(|rest| rest.trim_matches('"').to_owned());
    let pairs = lock.lines().zip(lock.lines().skip(1));
    Ok(pairs
        .filter_map(|(first, second)| Some((value(first, "name = ")?, value(second, "version = ")?)))
        .filter(|(_, version)| version.split('+').next().is_some_and(|version| version.contains('-')))
        .map(|(name, version)| format!("{name} {version}"))
        .collect())
}

fn list(items: &BTreeSet<String>) -> String {
    if items.is_empty() {
        return "None.\n".to_owned();
    }
    items.iter().map(|item| format!("- {item}\n")).collect()
}

/// Returns the table row about advisories, and whether the check failed.
fn advisories() -> Result<(String, bool)> {
    let Some(database) = advisory_database() else {
        return Ok((format!("| advisories | not checked: {NO_DATABASE} |\n"), false));
    };
    let checked = DenyReport::run(&["advisories"])?;
    let mut command = Command::new("git");
    command.arg("-C").arg(&database).args(["log", "-1", "--format=database of %cs, %h", "HEAD"]);
    let of = String::from_utf8_lossy(&output(command)?).trim().to_owned();
    let faults = checked.faults();
    let verdict = if faults.is_empty() { "ok".to_owned() } else { faults.into_iter().collect::<Vec<_>>().join("; ") };
    let is_failed = verdict != "ok";
    Ok((format!("| advisories (vulnerabilities, unsound, unmaintained, yanked) | {verdict}; {of} |\n"), is_failed))
}

/// The diagnostics of one run of cargo-deny.
struct DenyReport(Vec<Value>);

impl DenyReport {
    fn run(checks: &[&str]) -> Result<Self> {
        let mut command = deny();
        command.args(["--format", "json", "check", "--hide-inclusion-graph"]).args(checks);
        let line = shown(&command);
        // A failed check is written to the page; only a missing report is an error here.
        let output = command.output().with_context(|| format!("cannot start {line}"))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if !lines.iter().any(|line| line["type"] == "summary") {
            bail!("{line}: {}\n{text}", output.status);
        }
        Ok(Self(lines))
    }

    fn diagnostics(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(|line| line["type"] == "diagnostic").map(|line| &line["fields"])
    }

    fn verdicts(&self, checks: &[&str]) -> String {
        let summary = self.0.iter().find(|line| line["type"] == "summary").map(|line| &line["fields"]);
        let verdict = |check: &&str| match summary.and_then(|fields| fields[*check]["errors"].as_u64()) {
            Some(0) => "ok".to_owned(),
            Some(errors) => format!("{errors} errors"),
            None => "no result".to_owned(),
        };
        let rows: String = checks.iter().map(|check| format!("| {check} | {} |\n", verdict(check))).collect();
        format!("| check | result |\n|---|---|\n{rows}")
    }

    fn faults(&self) -> BTreeSet<String> {
        let errors = self.diagnostics().filter(|fields| fields["severity"] == "error");
        errors
            .map(|fields| {
                let id = fields["advisory"]["id"].as_str().or_else(|| fields["code"].as_str()).unwrap_or("error");
                let krate = fields["advisory"]["package"].as_str().unwrap_or_default();
                format!("{id} {krate}: {}", fields["message"].as_str().unwrap_or_default())
            })
            .collect()
    }

    /// Returns `NAME: VERSION, VERSION` of each crate with several versions.
    fn duplicates(&self) -> BTreeSet<String> {
        let found = self.diagnostics().filter(|fields| fields["code"] == "duplicate");
        found
            .filter_map(|fields| {
                let entries = fields["labels"][0]["span"].as_str()?;
                let mut words = entries.lines().filter_map(|entry| {
                    let mut words = entry.split(' ');
                    Some((words.next()?, words.next()?))
                });
                let (name, first) = words.next()?;
                let versions: Vec<_> = [first].into_iter().chain(words.map(|(_, version)| version)).collect();
                Some(format!("{name}: {}", versions.join(", ")))
            })
            .collect()
    }
}

/// Returns the output of a command; fails if the command fails.
fn output(mut command: Command) -> Result<Vec<u8>> {
    let line = shown(&command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {line}"))?;
    if !output.status.success() {
        bail!("{line}: {}", output.status);
    }
    Ok(output.stdout)
}

/// Writes the bill of materials (CycloneDX 1.5) of each package into `target/sbom`.
pub fn sbom() -> Result<()> {
    if !succeeds("cargo-cyclonedx", &["cyclonedx", "--version"]) {
        bail!("cargo-cyclonedx is not there; `cargo install cargo-cyclonedx --locked` installs it");
    }
    let folder = root().join("target/sbom");
    fs::create_dir_all(&folder).context("target/sbom")?;
    let mut command = Command::new("git");
    command.args(["log", "-1", "--format=%ct"]).current_dir(root());
    let at = String::from_utf8_lossy(&output(command)?).trim().to_owned();
    let mut command = cargo(&["cyclonedx", "--format", "json", "--spec-version", "1.5", "--all", "--all-features"]);
    // The same commit gives the same file.
    command.env("SOURCE_DATE_EPOCH", at);
    run(command)?;
    for (package, path) in [("daoyou", "."), ("daoyou-channels", "channels"), ("xtask", "xtask")] {
        let name = format!("{package}.cdx.json");
        let written = root().join(path).join(&name);
        move_bom(&written, &folder.join(&name)).with_context(|| name)?;
    }
    report("xtask: target/sbom holds a bill of materials for each package");
    Ok(())
}

/// Moves a bill of materials and removes this machine's folder from its references.
fn move_bom(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(from)?;
    let here = format!("file://{}", root().display());
    let text = text.replace(&here, "file:///daoyou");
    let read: Value = serde_json::from_str(&text)?;
    if read["bomFormat"] != "CycloneDX" || read["components"].as_array().is_none_or(Vec::is_empty) {
        bail!("cargo-cyclonedx wrote no bill of materials");
    }
    fs::write(to, text)?;
    Ok(fs::remove_file(from)?)
}
