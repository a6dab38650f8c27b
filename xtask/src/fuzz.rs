//! Runs the fuzz targets for a limited time each, two at once.

use std::collections::VecDeque;
use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{cargo, report, root, run, succeeds};

/// The environment variable with the time for each target in `ci`, in seconds. 0 skips the targets.
const SECONDS: &str = "DAOYOU_FUZZ_SECONDS";
const USUAL_SECONDS: u64 = 60;
const AT_ONCE: usize = 2;
/// No sanitizer, so that the stable compiler suffices: our code has no `unsafe`. Overflows are checked.
const BUILD: [&str; 5] = ["--sanitizer", "none", "--debug-assertions", "--codegen-units", "16"];
/// The interval between checks whether a target has ended.
const POLL: Duration = Duration::from_millis(200);
/// The number of output lines shown for a failed target.
const SHOWN_LINES: usize = 60;

/// Runs [`fuzz`] if cargo-fuzz is installed.
pub fn in_ci() -> Result<()> {
    let seconds = match env::var(SECONDS) {
        Ok(text) => parse(&text).with_context(|| SECONDS)?,
        Err(_) => USUAL_SECONDS,
    };
    let targets = targets()?;
    let names = targets.join(", ");
    if seconds == 0 {
        report(&format!("xtask: {SECONDS} is 0; not fuzzed: {names}"));
        return Ok(());
    }
    if !succeeds("cargo-fuzz", &["--version"]) {
        report(&format!("xtask: cargo-fuzz is not there (cargo install cargo-fuzz --locked); not fuzzed: {names}"));
        return Ok(());
    }
    fuzz_all(&targets, seconds)
}

/// Runs the targets in `args`, or all targets, for `--seconds N` each.
pub fn fuzz(args: &[&str]) -> Result<()> {
    let (seconds, named) = match args {
        ["--seconds", seconds, named @ ..] => (parse(seconds)?, named),
        named => (USUAL_SECONDS, named),
    };
    if !succeeds("cargo-fuzz", &["--version"]) {
        bail!("cargo-fuzz is not there; `cargo install cargo-fuzz --locked` installs it");
    }
    let known = targets()?;
    if let Some(wrong) = named.iter().find(|name| !known.iter().any(|known| known == *name)) {
        bail!("there is no fuzz target {wrong}; there are {}", known.join(", "));
    }
    let chosen = if named.is_empty() { known } else { named.iter().map(|name| (*name).to_owned()).collect() };
    fuzz_all(&chosen, seconds)
}

fn parse(seconds: &str) -> Result<u64> {
    seconds.parse().with_context(|| format!("{seconds:?} is not a number of seconds"))
}

/// Returns the names of the targets, each of which has seeds.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("fuzz/fuzz_targets")).context("fuzz/fuzz_targets")? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !root().join("fuzz/seeds").join(&name).is_dir() {
            bail!("the fuzz target {name} has no seeds; put some into fuzz/seeds/{name}");
        }
        names.push(name);
    }
    names.sort();
    Ok(names)
}

/// A running target.
struct RunningTarget {
    name: String,
    child: Child,
}

fn fuzz_all(targets: &[String], seconds: u64) -> Result<()> {
    // The fuzz targets use the same dependency versions as the program; their own lock file only adds to them.
    fs::copy(root().join("Cargo.lock"), root().join("fuzz/Cargo.lock")).context("fuzz/Cargo.lock")?;
    let mut build = cargo(&["fuzz", "build"]);
    build.args(BUILD);
    run(build)?;
    fs::create_dir_all(root().join("target/fuzz")).context("target/fuzz")?;
    let mut waiting: VecDeque<&String> = targets.iter().collect();
    let (mut running, mut failed) = (Vec::new(), Vec::new());
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < AT_ONCE
            && let Some(name) = waiting.pop_front()
        {
            running.push(start(name, seconds)?);
        }
        thread::sleep(POLL);
        for index in (0..running.len()).rev() {
            let Some(status) = running[index].child.try_wait().context("a fuzz target")? else { continue };
            let ended = running.swap_remove(index);
            let lines = last_lines(&log_of(&ended.name))?;
            if status.success() {
                let done = lines.iter().rev().find(|line| line.starts_with("Done ")).map_or("", String::as_str);
                report(&format!("xtask: fuzzed {}: {done}", ended.name));
            } else {
                report(&lines.join("\n"));
                failed.push(ended.name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("fuzz targets failed: {}; what made each fail is in fuzz/artifacts/TARGET", failed.join(", "));
    }
    Ok(())
}

fn log_of(name: &str) -> std::path::PathBuf {
    root().join("target/fuzz").join(name).with_extension("log")
}

fn start(name: &str, seconds: u64) -> Result<RunningTarget> {
    let corpus = root().join("fuzz/corpus").join(name);
    fs::create_dir_all(&corpus).context("fuzz/corpus")?;
    let log = File::create(log_of(name)).context("target/fuzz")?;
    let mut command: Command = cargo(&["fuzz", "run"]);
    command.args(BUILD).arg(name).arg(corpus).arg(root().join("fuzz/seeds").join(name)).arg("--");
    command.args([&format!("-max_total_time={seconds}"), "-timeout=60", "-max_len=4096", "-print_final_stats=1"]);
    // Temporary databases are discarded, so they are kept in memory where possible.
    if env::var_os("TMPDIR").is_none() && Path::new("/dev/shm").is_dir() {
        command.env("TMPDIR", "/dev/shm");
    }
    let errors = log.try_clone().context("target/fuzz")?;
    let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().context("cannot start cargo fuzz")?;
    Ok(RunningTarget { name: name.to_owned(), child })
}

fn last_lines(log: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(log).with_context(|| log.display().to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    Ok(lines[lines.len().saturating_sub(SHOWN_LINES)..].to_vec())
}
