//! Checks of the database file and its contents.

use std::fs;
use std::time::Duration;

use daoyou_channels::Finding;

use super::check::{DoctorCheck, Repair};
use super::memory;
use super::running::HomeHolder;
use crate::gateway::inspect::format_age;
use crate::home::Home;
use crate::memory::Identities;
use crate::store::inspection::{DatabaseInspection, DatabaseIntegrity, inspect};
use crate::store::losses::Loss;
use crate::store::overview::StoreOverview;
use crate::store::{StoreError, backup, now_ms};
use crate::text::format_size;

const NAME: &str = "database";
/// The time limit of the search for damage.
const SEARCH_LIMIT: Duration = Duration::from_secs(10);
/// The size in bytes from which on a write-ahead log counts as not checkpointed for too long.
const LARGE_LOG: u64 = 256_000_000;
/// The size of free pages, in bytes, from which on they are reported if they are also half of the file.
const MUCH_FREE: u64 = 100_000_000;
/// The minimum waits that are reported, in milliseconds.
const LONG_INBOUND: i64 = 15 * 60_000;
const LONG_OUTBOUND: i64 = 60 * 60_000;
/// The tolerated lead of a time in the store over the clock, in milliseconds.
const MAX_LEAD: i64 = 120_000;

/// Checks the file without changing it.
pub async fn checks(home: &Home, holder: &HomeHolder, identities: &Identities) -> Vec<DoctorCheck> {
    let path = home.database();
    // Read before the database, which may accept messages meanwhile.
    let accepted = backup::accepted(&path);
    if !path.exists() {
        return vec![
            missing(accepted, 0)
                .unwrap_or_else(|| Finding::ok(NAME, "there is none yet; the first start makes it"))
                .into(),
        ];
    }
    let file = path.clone();
    let inspection = tokio::task::spawn_blocking(move || inspect(&file, SEARCH_LIMIT)).await;
    let inspection = match inspection.map_err(|error| StoreError::Row(error.to_string())) {
        Ok(Ok(inspection)) => inspection,
        Ok(Err(error)) | Err(error) => return vec![unreadable(&error).into()],
    };
    let sound = soundness(&inspection);
    let index = memory::index(&inspection, holder.is_gateway(), identities);
    let mut findings = vec![size(home, &inspection)];
    findings.extend(inspection.seq.and_then(|seq| missing(accepted, seq)));
    if inspection.format < inspection.known {
        let message = format!("its format is {}; the next start brings it to {}", inspection.format, inspection.known);
        findings.push(Finding::warn(NAME, message, "daoyou backup FILE, then start the gateway"));
    }
    if let Some(overview) = &inspection.overview {
        findings.extend(overview.losses.iter().map(loss_finding));
        findings.extend(queues(overview, holder.is_gateway(), now_ms()));
        findings.extend(clock(overview, now_ms()));
    }
    std::iter::once(sound).chain(index).chain(findings.into_iter().map(DoctorCheck::from)).collect()
}

/// Reports that the database, which knows messages up to `seq`, lacks some of the `accepted` ones.
fn missing(accepted: i64, seq: i64) -> Option<Finding> {
    let missing = accepted.checked_sub(seq).filter(|missing| *missing > 0)?;
    let message = format!("{missing} accepted messages are missing from it: it was deleted, emptied or replaced");
    let mend =
        "stop the gateway, then put the file back or run daoyou restore FILE; a start begins anew and reports the loss";
    Some(Finding::fail(NAME, message, mend))
}

/// Reports a loss, or that a salvaged database is complete.
fn loss_finding(loss: &Loss) -> Finding {
    if loss.is_complete {
        return Finding::ok("repaired", loss.description.clone());
    }
    Finding::warn("lost", loss.description.clone(), "ask the senders to send again, then daoyou status --acknowledge")
}

fn unreadable(error: &StoreError) -> Finding {
    let mend = match error {
        StoreError::Newer { .. } => {
            "update daoyou, or restore a backup of this version's: daoyou restore FILE".to_owned()
        }
        _ => format!("{REPAIR_ADVICE}; or, while it is stopped, daoyou restore FILE"),
    };
    Finding::fail(NAME, error.to_string(), mend)
}

/// The repair of a damaged file.
const REPAIR_ADVICE: &str =
    "daoyou gateway: its start keeps the file aside, takes over what can be read, and says what is lost";

fn soundness(inspection: &DatabaseInspection) -> DoctorCheck {
    let finding = match &inspection.soundness {
        DatabaseIntegrity::Damaged(words) => {
            let words = words.join("; ").replace('\n', " ");
            let mend = "stop the gateway, then daoyou doctor --fix, which keeps the file aside and takes over what can be read; or daoyou restore FILE";
            let finding = Finding::fail(NAME, format!("it is damaged: {words}"), mend);
            return DoctorCheck::with(finding, Repair::SalvageDatabase(words));
        }
        DatabaseIntegrity::Sound { tables, read, compared } if compared == tables => {
            Finding::ok(NAME, format!("sound: all {read} tables read and compared with their indexes"))
        }
        DatabaseIntegrity::Sound { tables, read, compared } => Finding::ok(
            NAME,
            format!(
                "no damage found within {SEARCH_LIMIT:?}: {read} of {tables} tables read, {compared} compared with their indexes"
            ),
        ),
    };
    finding.into()
}

fn size(home: &Home, inspection: &DatabaseInspection) -> Finding {
    const NAME: &str = "database size";
    let whole = inspection.pages.saturating_mul(inspection.page_bytes);
    let empty = inspection.free_pages.saturating_mul(inspection.page_bytes);
    let log = fs::metadata(home.database().with_extension("db-wal")).map_or(0, |log| log.len());
    let message = format!("{}, {} of it empty; log {}", format_size(whole), format_size(empty), format_size(log));
    if log > LARGE_LOG {
        Finding::warn(NAME, message, "restart the gateway, which writes the log back")
    } else if empty > MUCH_FREE && empty > whole / 2 {
        let mend = "a running gateway returns this space to the disk when idle; see store.vacuum in config.toml";
        Finding::warn(NAME, message, mend)
    } else {
        Finding::ok(NAME, message)
    }
}

fn queues(overview: &StoreOverview, runs: bool, now: i64) -> Vec<Finding> {
    let outbound: usize = overview.outbound.iter().map(|(_, messages)| messages).sum();
    let waiting = |name: &str, count: usize, [one, more]: [&str; 2], oldest: Option<i64>, long: i64, advice: &str| {
        let Some(oldest) = oldest.filter(|_| count > 0) else { return Finding::ok(name, format!("no {more}")) };
        let what = if count == 1 { one } else { more };
        let message = format!("{count} {what}, the oldest for {}", format_age(oldest, now));
        match (now - oldest > long, runs) {
            (false, _) => Finding::ok(name, message),
            (true, true) => Finding::warn(name, message, advice),
            (true, false) => Finding::warn(name, message, "daoyou gateway"),
        }
    };
    let mut findings = vec![
        waiting(
            "inbound",
            overview.inbound,
            ["message waits for an answer", "messages wait for an answer"],
            overview.oldest_inbound,
            LONG_INBOUND,
            "daoyou turns list, and /stop in the chat that hangs",
        ),
        waiting(
            "outbound",
            outbound,
            ["reply waits to be delivered", "replies wait to be delivered"],
            overview.oldest_outbound,
            LONG_OUTBOUND,
            "daoyou queue list, and daoyou channels test NAME",
        ),
    ];
    const DEAD: &str = "daoyou queue list, then daoyou queue retry ID or daoyou queue drop ID";
    findings.push(match (overview.stuck, overview.dead) {
        (0, 0) => Finding::ok("dead letters", "none"),
        (stuck, 0) => Finding::warn("dead letters", format!("{stuck} replies could not be delivered"), DEAD),
        (0, dead) => Finding::warn("dead letters", format!("{dead} messages were given up"), DEAD),
        (stuck, dead) => Finding::warn(
            "dead letters",
            format!("{stuck} replies could not be delivered, and {dead} messages were given up"),
            DEAD,
        ),
    });
    findings
}

/// Reports a store with times in the future: the clock was set back.
fn clock(overview: &StoreOverview, now: i64) -> Option<Finding> {
    let newest = overview.newest.filter(|newest| *newest > now.saturating_add(MAX_LEAD))?;
    let message =
        format!("the newest message is {} ahead of this machine's clock: it went back", format_age(now, newest));
    Some(Finding::warn("clock of the store", message, "timedatectl set-ntp true"))
}

#[cfg(test)]
mod tests {
    use daoyou_channels::Severity;

    use super::*;
    use crate::store::losses::LossKind;

    #[test]
    fn a_salvaged_database_without_losses_is_ok() {
        for (is_complete, name, state) in [(true, "repaired", Severity::Ok), (false, "lost", Severity::Warn)] {
            let loss = Loss { is_complete, ..Loss::new(LossKind::Salvaged, Vec::new(), "it was damaged".to_owned()) };
            let found = loss_finding(&loss);
            assert_eq!((found.name.as_str(), found.state), (name, state));
        }
    }

    #[test]
    fn long_waits_are_reported() {
        let now = 10_000_000_000;
        let minutes = |minutes: i64| Some(now - minutes * 60_000);
        let base = StoreOverview::default;
        let inbound = |oldest| StoreOverview { inbound: 3, oldest_inbound: minutes(oldest), ..base() };
        let outbound = |oldest| {
            let outbound = vec![("cli".to_owned(), 2)];
            StoreOverview { outbound, oldest_outbound: minutes(oldest), ..base() }
        };
        for (overview, runs, states, words) in [
            (base(), true, "ok ok ok", "no messages"),
            (inbound(14), true, "ok ok ok", "3 messages wait"),
            (inbound(16), true, "warn ok ok", "for 16m"),
            (inbound(16), false, "warn ok ok", "daoyou gateway"),
            (outbound(59), true, "ok ok ok", "2 replies wait"),
            (outbound(61), true, "ok warn ok", "for 1h 1m"),
            (StoreOverview { stuck: 1, dead: 2, ..base() }, true, "ok ok warn", "queue retry ID"),
        ] {
            let findings = queues(&overview, runs, now);
            let got: Vec<String> = findings.iter().map(|finding| finding.state.to_string()).collect();
            assert_eq!(got.join(" "), states, "{findings:?}");
            assert!(format!("{findings:?}").contains(words), "{words}: {findings:?}");
        }
        for (newest, state) in [(None, None), (minutes(-1), None), (minutes(-3), Some(Severity::Warn))] {
            let found = clock(&StoreOverview { newest, ..base() }, now).map(|finding| finding.state);
            assert_eq!(found, state);
        }
    }
}
