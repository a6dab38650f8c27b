//! Measures scheduled jobs: the lateness of many due jobs, and the cost of many idle jobs.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde_json::json;

use super::load::cpu_time;
use super::report::{Figure, Unit};
use super::support::until;
use super::{Bench, Bencher};

/// How long the idle gateway is observed.
const OBSERVATION: Duration = Duration::from_secs(10);

/// Measures lateness and idle cost with the number of jobs that `size` gives.
pub async fn cron(bencher: &mut Bencher) {
    for _ in 0..bencher.size.runs {
        lateness(bencher).await;
        idle(bencher).await;
    }
}

/// Creates a stopped gateway with `jobs` jobs. `due` returns the due time of the n-th job.
async fn with_jobs(jobs: usize, due: impl Fn(usize) -> Timestamp) -> Bench {
    let mut bench = Bench::start(Duration::ZERO, |setup| setup.set("cron.max_jobs", 1_000_000)).await;
    bench.gateway.stop().await;
    fill(&bench.gateway.database(), jobs, due).expect("the store can be filled");
    bench
}

/// Measures the delay between due time and start, as the store records it. The jobs are spread evenly over a minute (over a
/// tenth of it with `--quick`); each is a message to one of a hundred chats.
async fn lateness(bencher: &mut Bencher) {
    let jobs = bencher.size.jobs;
    let span = Duration::from_millis(u64::try_from(jobs * 6).unwrap_or(u64::MAX));
    let begin = Timestamp::now() + Duration::from_secs(5);
    let step = span / u32::try_from(jobs).unwrap_or(u32::MAX);
    let mut bench = with_jobs(jobs, |n| begin + step * u32::try_from(n).unwrap_or(u32::MAX)).await;
    bench.gateway.up().await;
    tokio::time::sleep(span + Duration::from_secs(5)).await;
    let wanted = i64::try_from(jobs).unwrap_or(i64::MAX);
    let database = bench.gateway.database();
    until("all jobs to have run", async || {
        let store = Connection::open(&database).ok()?;
        let runs: i64 = store.query_row("SELECT count(*) FROM job_runs", [], |row| row.get(0)).ok()?;
        (runs >= wanted).then_some(())
    })
    .await;
    let mut late = lateness_of_runs(&database).expect("the runs can be read");
    late.sort_unstable();
    let at = |percent: usize| Duration::from_millis(late[(late.len() - 1) * percent / 100]);
    let figures = [("p50", 50), ("p99", 99), ("worst", 100)].map(|(name, percent)| Figure::time(name, at(percent)));
    bencher.add(format!("cron: {jobs} jobs over {} s, lateness", span.as_secs()), figures.to_vec(), "p99 <= 100 ms");
    bench.gateway.stop().await;
}

/// Measures the idle cost of jobs that are not due for an hour.
async fn idle(bencher: &mut Bencher) {
    let jobs = bencher.size.jobs;
    let later = Timestamp::now() + Duration::from_secs(3_600);
    let mut bench = with_jobs(jobs, |n| later + Duration::from_millis(u64::try_from(n).unwrap_or(0))).await;
    bench.gateway.up().await;
    // The work after the start is not idle cost.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = cpu_time(bench.gateway.pid());
    tokio::time::sleep(OBSERVATION).await;
    let used = cpu_time(bench.gateway.pid()).saturating_sub(before);
    let share = used.as_secs_f64() / OBSERVATION.as_secs_f64() * 100.0;
    let share = vec![Figure::new("", share, Unit::Percent)];
    bencher.add(format!("cron: idle CPU with {jobs} jobs, of a core"), share, "<= 1 %");
    bencher.add(format!("cron: memory with {jobs} jobs"), bench.resident(), "");
}

/// Returns how late each run was, in milliseconds.
fn lateness_of_runs(database: &Path) -> rusqlite::Result<Vec<u64>> {
    let store = Connection::open(database)?;
    let mut statement = store.prepare("SELECT max(0, at - due) FROM job_runs")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn fill(database: &Path, jobs: usize, due: impl Fn(usize) -> Timestamp) -> rusqlite::Result<()> {
    let store = Connection::open(database)?;
    store.execute_batch("PRAGMA synchronous = OFF; BEGIN")?;
    {
        let sql = "INSERT INTO jobs (id, name, body, next_at, created_at, updated_at) VALUES (?1, ?1, ?2, ?3, 0, 0)";
        let mut insert = store.prepare(sql)?;
        for n in 0..jobs {
            // The store keeps whole milliseconds.
            let at = Timestamp::from_millisecond(due(n).as_millisecond()).unwrap_or_default();
            let chat = format!("cron-{}", n % 100);
            let body = json!({
                "schedule": {"kind": "at", "at": at},
                "task": {"kind": "message", "text": format!("job {n}")},
                "target": {"channel": "webhook:in", "chat_id": chat, "session": format!("webhook:in:{chat}")},
                "maker": {"trust": "owner", "channel": "cli", "chat_id": "direct"},
            });
            insert.execute(params![format!("job{n}"), body.to_string(), at.as_millisecond()])?;
        }
    }
    store.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
}
