//! Measures the release build from outside: messages enter by webhook and replies leave by callback. `cargo xtask bench`
//! prints the table and writes `docs/benchmarks.md`.
//!
//! - `--quick`: few turns and one run, so the numbers are rough; writes nothing.
//! - `--only PART`: measures one part; writes nothing.
//! - `--set KEY=VALUE`: measures with this configuration value; writes nothing.
//! - `--against PROGRAM --against-name NAME`: also measures starts with an empty store, idling and speeds of another build, alternating
//!   between both. Configuration keys that the other program does not know are left out for it.
//! - `--growth MESSAGES`: one owner sends that many messages; prints a separate section.
//! - `--tools`: measures the tools.
//! - `--skills [--folder DIR]`: measures skills and MCP servers.
//! - `--page`: measures the page and streams of events.

#[expect(clippy::allow_attributes, reason = "the stories use the rest")]
#[allow(dead_code, unused_imports, clippy::print_stdout, reason = "a tool box: the bench uses a part of it")]
#[path = "../../tests/support/mod.rs"]
mod support;

mod cron;
mod fill;
mod growth;
mod load;
mod mcp;
mod page;
mod report;
mod sentences;
mod skills;
mod tools;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use load::{Load, Measured, Offer};
use report::{Figure, Program, Report, Unit};
use serde_json::json;
use support::gateway::Message;
use support::model::ModelOptions;
use support::processes::resident_bytes;
use support::{Gateway, Hook, Model, Reply, Setup, Sink, until};
use tokio::io::{AsyncBufReadExt, BufReader};

/// The amount of work for each part.
struct Size {
    quick: bool,
    runs: usize,
    alone: usize,
    in_flight: usize,
    offered_secs: usize,
    starts: usize,
    stored_messages: usize,
    traced: usize,
    sessions: usize,
    /// The numbers of messages of a session, in ascending order.
    histories: &'static [usize],
    jobs: usize,
}

impl Size {
    fn of(quick: bool) -> Self {
        if quick {
            return Self {
                quick,
                runs: 1,
                alone: 50,
                in_flight: 500,
                offered_secs: 3,
                starts: 3,
                stored_messages: 100_000,
                traced: 50,
                sessions: 1_000,
                histories: &[100, 2_000],
                jobs: 1_000,
            };
        }
        Self {
            quick,
            runs: 3,
            alone: 500,
            in_flight: 5_000,
            offered_secs: 10,
            starts: 7,
            stored_messages: 1_000_000,
            traced: 200,
            sessions: 10_000,
            histories: &[100, 1_000, 10_000, 100_000],
            jobs: 10_000,
        }
    }
}

/// A running gateway with its model and its callback receiver.
struct Bench {
    gateway: Gateway,
    model: Model,
    sink: Sink,
    latency: Duration,
}

impl Bench {
    async fn start(latency: Duration, change: impl FnOnce(Setup) -> Setup) -> Self {
        let mut bench = Self::stopped(latency, change).await;
        bench.gateway.up().await;
        bench
    }

    async fn stopped(latency: Duration, change: impl FnOnce(Setup) -> Setup) -> Self {
        let model = Model::with(ModelOptions { strict: false, latency }).await;
        let sink = Sink::signed().await;
        let mut setup = Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)).set("log.level", "warn");
        for (key, value) in settings() {
            setup = setup.set(&key, value);
        }
        let gateway = Gateway::new(without_unknown_keys(change(setup)));
        Self { gateway, model, sink, latency }
    }

    async fn run(&self, turns: usize, sessions: usize, offer: Offer) -> Measured {
        self.run_in(turns, sessions, offer, |n| format!("chat-{n}")).await
    }

    async fn run_in(&self, turns: usize, sessions: usize, offer: Offer, chat: impl Fn(usize) -> String) -> Measured {
        let load = Load { gateway: &self.gateway, sink: &self.sink, model_latency: self.latency, chat: &chat };
        load.run(turns, sessions, offer).await
    }

    fn resident(&self) -> Vec<Figure> {
        vec![Figure::bytes(resident_bytes(self.gateway.pid()))]
    }
}

/// Removes the keys that the program of `setup` does not know, if it is another one: an older program refuses them.
fn without_unknown_keys(mut setup: Setup) -> Setup {
    let Some(program) = setup.program.clone() else { return setup };
    let home = tempfile::tempdir().expect("a temporary folder");
    let file = home.path().join("config.toml");
    loop {
        std::fs::write(&file, setup.render(1)).expect("the folder is ours");
        let mut check = std::process::Command::new(&program);
        check.args(["config", "check", "--config"]).arg(&file).env("DAOYOU_HOME", home.path());
        let checked = check.output().expect("the program starts");
        // A fault is `FILE:LINE: KEY: unknown key; …`.
        let faults = [checked.stdout, checked.stderr].concat();
        let faults = String::from_utf8_lossy(&faults);
        let places = faults.lines().filter_map(|line| Some(line.split_once(": unknown key")?.0));
        let unknown: Vec<_> = places.filter_map(|place| Some(place.rsplit_once(": ")?.1)).collect();
        if unknown.is_empty() {
            return setup;
        }
        setup = unknown.into_iter().fold(setup, Setup::without);
    }
}

/// The programs to measure, the amount of work, and the results.
struct Bencher {
    size: Size,
    /// The program given by `--against`.
    before: Option<PathBuf>,
    report: Report,
    faults: Faults,
}

impl Bencher {
    /// Returns the programs to measure, one after the other.
    fn programs(&self) -> Vec<(Program, Option<PathBuf>)> {
        let before = self.before.clone().map(|program| (Program::Before, Some(program)));
        [(Program::This, None)].into_iter().chain(before).collect()
    }

    /// Adds a row for `self.program`.
    fn add(&mut self, what: impl Into<String>, figures: Vec<Figure>, goal: &'static str) {
        self.report.add(Program::This, what, figures, goal);
    }

    fn add_speed(&mut self, program: Program, what: impl Into<String>, measured: &Measured, goal: &'static str) {
        // Faults of the other program do not count.
        if program == Program::This {
            self.faults.count(measured);
        }
        self.report.add(program, what, speed(measured), goal);
    }
}

fn speed(measured: &Measured) -> Vec<Figure> {
    vec![
        Figure::time("p50", measured.percentile(50)),
        Figure::time("p99", measured.percentile(99)),
        Figure::new("", measured.turns_a_second(), Unit::TurnsASecond),
        Figure::new("CPU", measured.cpu_ms_a_turn(), Unit::Milliseconds),
        Figure::new("refused", measured.refused as f64, Unit::Fault),
        Figure::new("lost", measured.lost as f64, Unit::Fault),
        Figure::new("twice", measured.duplicate as f64, Unit::Fault),
    ]
}

#[tokio::main]
async fn main() {
    if std::env::args().any(|argument| argument == "--tools") {
        return tools::tools().await;
    }
    if std::env::args().any(|argument| argument == "--skills") {
        skills::skills().await;
        return mcp::mcp().await;
    }
    if std::env::args().any(|argument| argument == "--page") {
        return page::page().await;
    }
    if let Some(messages) = arguments("--growth").next() {
        return growth::growth(messages.parse().expect("--growth takes a number of messages")).await;
    }
    let size = Size::of(std::env::args().any(|arg| arg == "--quick"));
    let only = arguments("--only").next();
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let before = arguments("--against").next().map(PathBuf::from);
    let mut bencher = Bencher { size, before, report: Report::default(), faults: Faults::default() };
    if wanted("starts") {
        starts(&mut bencher).await;
    }
    if wanted("turns") {
        turns(&mut bencher).await;
    }
    if wanted("speeds") {
        for latency in [Duration::ZERO, Duration::from_millis(50)] {
            speeds(&mut bencher, latency).await;
        }
    }
    if wanted("sessions") {
        sessions(&mut bencher).await;
    }
    if wanted("history") {
        history(&mut bencher).await;
    }
    if wanted("isolation") {
        isolation(&mut bencher).await;
    }
    if wanted("fsyncs") {
        fsyncs(&mut bencher).await;
    }
    if wanted("cron") {
        cron::cron(&mut bencher).await;
    }
    finish(bencher, only.is_none());
}

/// Prints the table. Writes the page if everything was measured with default settings.
#[expect(clippy::print_stdout, reason = "the bench's output")]
fn finish(mut bencher: Bencher, is_all: bool) {
    let Faults { refused, lost, duplicate } = bencher.faults;
    for (what, count) in [
        ("messages refused, in all runs", refused),
        ("accepted messages lost, in all runs", lost),
        ("replies that came twice, in all runs", duplicate),
    ] {
        bencher.add(what, vec![Figure::new("", count as f64, Unit::Count)], "0");
    }
    let name = arguments("--against-name").next().unwrap_or_else(|| "another build".to_owned());
    let name = bencher.before.as_ref().map(|_| name.as_str());
    println!("\n{}", bencher.report.table(name));
    assert_eq!((lost, duplicate), (0, 0), "messages were lost or answered twice");
    if is_all && !bencher.size.quick && settings().next().is_none() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        std::fs::create_dir_all(&docs).expect("the project's folder can be written");
        let page = bencher.report.page(bencher.size.runs, name);
        std::fs::write(docs.join("benchmarks.md"), page).expect("the project's folder can be written");
    }
}

/// Returns the argument after each `name` on the command line.
fn arguments(name: &'static str) -> impl Iterator<Item = String> {
    std::env::args().zip(std::env::args().skip(1)).filter(move |(before, _)| before == name).map(|(_, value)| value)
}

/// Returns the configuration values that `--set KEY=VALUE` (the value in TOML) sets in every gateway.
fn settings() -> impl Iterator<Item = (String, toml::Value)> {
    arguments("--set").map(|setting| {
        let (key, value) = setting.split_once('=').expect("--set takes KEY=VALUE");
        (key.to_owned(), value.parse().expect("the value after --set KEY= is one of TOML"))
    })
}

/// Counts of events that must not happen, over all runs.
#[derive(Clone, Copy, Default)]
struct Faults {
    refused: usize,
    lost: usize,
    duplicate: usize,
}

impl Faults {
    fn count(&mut self, measured: &Measured) {
        self.refused += measured.refused;
        self.lost += measured.lost;
        self.duplicate += measured.duplicate;
    }
}

/// Returns the median of several start times.
async fn start_time(bench: &mut Bench, times: usize) -> Duration {
    let mut taken = Vec::new();
    for _ in 0..times {
        let begun = Instant::now();
        bench.gateway.up().await;
        taken.push(begun.elapsed());
        bench.gateway.stop().await;
    }
    taken.sort();
    taken[taken.len() / 2]
}

/// Measures the time from start to ready with an empty store and a full one, and the idle memory.
async fn starts(bencher: &mut Bencher) {
    let (times, stored) = (bencher.size.starts, bencher.size.stored_messages);
    let mut benches = Vec::new();
    for (program, path) in bencher.programs() {
        let bench = Bench::stopped(Duration::ZERO, |setup| setup.program(path)).await;
        benches.push((program, bench));
    }
    for _ in 0..bencher.size.runs {
        for (program, bench) in &mut benches {
            bench.gateway.up().await;
            bencher.report.add(*program, "memory, idle", bench.resident(), "<= 28 MB");
            bench.gateway.stop().await;
            let taken = start_time(bench, times).await;
            let row = "start to ready, an empty store";
            bencher.report.add(*program, row, vec![Figure::time("", taken)], "< 100 ms");
        }
    }
    // Another program may have another format of the store, which cannot be filled here.
    benches.retain(|(program, _)| *program == Program::This);
    for (_, bench) in &benches {
        fill::fill(&bench.gateway.database(), 1_000, stored / 1_000).expect("the store can be filled");
    }
    for _ in 0..bencher.size.runs {
        for (program, bench) in &mut benches {
            let taken = start_time(bench, times).await;
            let row = format!("start to ready, {stored} stored messages");
            bencher.report.add(*program, row, vec![Figure::time("", taken)], "< 100 ms");
        }
    }
}

/// Measures the cost of a turn in continuing conversations: 20 in flight over 100 sessions, with memory.
async fn turns(bencher: &mut Bencher) {
    const SESSIONS: usize = 100;
    let turns = bencher.size.in_flight;
    for _ in 0..bencher.size.runs {
        for (program, path) in bencher.programs() {
            let bench = Bench::start(Duration::ZERO, |setup| setup.program(path)).await;
            bench.run(turns / 10, SESSIONS, Offer::InFlight(20)).await;
            let measured = bench.run(turns, SESSIONS, Offer::InFlight(20)).await;
            bencher.add_speed(program, "20 in flight over 100 sessions", &measured, "CPU <= 0.45 ms");
        }
    }
}

/// Measures one turn at a time, 64 at a time, and a thousand a second.
async fn speeds(bencher: &mut Bencher, latency: Duration) {
    let model = format!("model {} ms", latency.as_millis());
    let Size { alone, in_flight, offered_secs, runs, .. } = bencher.size;
    for _ in 0..runs {
        for (program, path) in bencher.programs() {
            let bench = Bench::start(latency, |setup| setup.program(path)).await;
            bench.run(20, 20, Offer::InFlight(4)).await;
            let measured = bench.run(alone, alone, Offer::InFlight(1)).await;
            let row = format!("{model}: 1 in flight");
            bencher.add_speed(program, row, &measured, "p50 <= 2 ms, CPU <= 1 ms");
            let measured = bench.run_in(in_flight, 1_000, Offer::InFlight(64), |n| format!("many-{n}")).await;
            let row = format!("{model}: 64 in flight");
            bencher.add_speed(program, row, &measured, "p99 <= 15 ms, CPU <= 1 ms");
            let turns = 1_000 * offered_secs;
            let measured = bench.run_in(turns, 100, Offer::Rate(1_000), |n| format!("offered-{n}")).await;
            let row = format!("{model}: 1,000 turns/s offered over 100 sessions");
            bencher.add_speed(program, row, &measured, "1,000 turns/s");
            let row = format!("{model}: memory after {} turns", alone + in_flight + turns);
            bencher.report.add(program, row, bench.resident(), "");
        }
    }
}

/// Measures the cost of a turn with few sessions and with many. All sessions have the same history, which is longer than
/// the window and indexed. No session gets enough turns to be summarised.
async fn sessions(bencher: &mut Bencher) {
    const FEW: usize = 100;
    const PAST: usize = 60;
    const TURNS: usize = 1_000;
    for _ in 0..bencher.size.runs {
        let mut costs = Vec::new();
        for sessions in [FEW, bencher.size.sessions] {
            let mut bench = Bench::start(Duration::ZERO, |setup| setup).await;
            bench.gateway.stop().await;
            fill::fill(&bench.gateway.database(), sessions, PAST).expect("the store can be filled");
            bench.gateway.up().await;
            // One-time work after a start is not part of the cost of a turn.
            bench.run(FEW, FEW, Offer::InFlight(10)).await;
            let used = sessions.min(TURNS);
            let measured = bench.run_in(TURNS, used, Offer::InFlight(10), |n| format!("past-{n}")).await;
            costs.push(measured.cpu_ms_a_turn());
            bencher.add_speed(Program::This, format!("{sessions} sessions: 10 in flight"), &measured, "");
            let row = format!("{sessions} sessions: memory");
            bencher.add(row, bench.resident(), "<= 2 KB a session");
        }
        let factor = Figure::new("", costs[1] / costs[0].max(1e-9), Unit::Times);
        bencher.add(format!("CPU a turn, many sessions against {FEW}"), vec![factor], "<= 1.2 x");
    }
}

/// Measures the cost of a turn in sessions of the window's length and in long ones, all indexed.
async fn history(bencher: &mut Bencher) {
    const SESSIONS: usize = 10;
    let mut benches = Vec::new();
    for &messages in bencher.size.histories {
        let mut bench = Bench::start(Duration::ZERO, |setup| setup).await;
        bench.gateway.stop().await;
        fill::fill(&bench.gateway.database(), SESSIONS, messages).expect("the store can be filled");
        benches.push((messages, bench));
    }
    let turns = bencher.size.in_flight / 5;
    for _ in 0..bencher.size.runs {
        let mut costs = Vec::new();
        for (messages, bench) in &mut benches {
            bench.gateway.up().await;
            // The first reads after a start are not part of the cost of a turn.
            bench.run_in(turns / 5, SESSIONS, Offer::InFlight(4), |n| format!("past-{n}")).await;
            let measured = bench.run_in(turns, SESSIONS, Offer::InFlight(4), |n| format!("past-{n}")).await;
            costs.push(measured.cpu_ms_a_turn());
            bencher.add_speed(Program::This, format!("history of {messages} messages: 4 in flight"), &measured, "");
            bench.gateway.stop().await;
        }
        let (first, last) = (costs.first().copied().unwrap_or(0.0), costs.last().copied().unwrap_or(0.0));
        let factor = Figure::new("", last / first.max(1e-9), Unit::Times);
        bencher.add("CPU a turn, the longest history against 100", vec![factor], "<= 1.1 x");
    }
}

/// Measures turns of other sessions, with and without a session's command that runs for five minutes.
async fn isolation(bencher: &mut Bencher) {
    let turns = bencher.size.in_flight / 5;
    for _ in 0..bencher.size.runs {
        let bench = Bench::start(Duration::ZERO, |setup| setup).await;
        let folder = bench.gateway.workspace();
        bench.model.on("wait long", [Reply::tool("exec", &json!({"command": "touch begun; sleep 300"}))]);
        bench.run(100, 100, Offer::InFlight(10)).await;
        let alone = bench.run(turns, 100, Offer::InFlight(10)).await;
        bench.gateway.accept("in", &Message::new("wait long").chat("long")).await;
        until("the command to run", async || folder.join("begun").exists().then_some(())).await;
        let with_command = bench.run(turns, 100, Offer::InFlight(10)).await;
        bencher.add_speed(Program::This, "no command runs: 10 in flight", &alone, "");
        bencher.add_speed(Program::This, "a command of 5 minutes runs: 10 in flight", &with_command, "");
        let [with_command, alone] = [&with_command, &alone].map(|measured| measured.percentile(99).as_secs_f64());
        let factor = Figure::new("", with_command / alone.max(1e-9), Unit::Times);
        bencher.add("p99 beside a command of 5 minutes against alone", vec![factor], "<= 1.1 x");
    }
}

/// Counts with strace how often a turn waits for the disk.
async fn fsyncs(bencher: &mut Bencher) {
    for _ in 0..bencher.size.runs {
        for in_flight in [1, 64] {
            let bench = Bench::start(Duration::ZERO, |setup| setup).await;
            let turns = bencher.size.traced * if in_flight == 1 { 1 } else { 10 };
            let count = count_fsyncs(&bench, turns, in_flight).await;
            let figure = count.map(|count| Figure::new("", count as f64 / turns as f64, Unit::Count));
            let row = format!("fsyncs a turn, {in_flight} in flight");
            bencher.add(row, figure.into_iter().collect(), "<= 2 alone");
        }
    }
}

async fn count_fsyncs(bench: &Bench, turns: usize, in_flight: usize) -> Option<usize> {
    let pid = bench.gateway.pid().to_string();
    let mut strace = tokio::process::Command::new("strace");
    // One line for each call. seccomp-bpf cannot be used on a running process.
    strace.args(["-f", "-e", "trace=fdatasync,fsync", "-p", &pid]);
    strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = strace.spawn().ok()?;
    let mut lines = BufReader::new(child.stderr.take()?).lines();
    let attached = tokio::time::timeout(Duration::from_secs(5), lines.next_line()).await;
    if !attached.is_ok_and(|line| line.is_ok_and(|line| line.is_some_and(|line| line.contains("attached")))) {
        return None;
    }
    let (seen, mut count) = tokio::sync::watch::channel(0_usize);
    let reader = tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            // strace splits a call into two parts if another thread's line interrupts it; only the first part counts.
            if line.contains("sync(") {
                seen.send_modify(|count| *count += 1);
            }
        }
    });
    bench.run(turns, in_flight, Offer::InFlight(in_flight)).await;
    // The last lines may still be in the pipe, because strace writes the end of each call before the thread continues.
    let mut last = *count.borrow_and_update();
    until("strace to fall silent", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = *count.borrow_and_update();
        let silent = now == last;
        last = now;
        silent.then_some(())
    })
    .await;
    child.kill().await.ok()?;
    reader.abort();
    Some(last)
}
