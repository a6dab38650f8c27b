//! What the machine gives: disk, clock, system, service manager.

use std::path::{Path, PathBuf};

use daoyou_channels::Finding;
use jiff::Timestamp;
use rustix::fs::statvfs;

use super::check::Check;
use crate::gateway::inspect::format_bytes;
use crate::home::Home;

/// 2026-01-01: no machine that runs this program lives before it, in seconds.
const EPOCH: i64 = 1_767_225_600;
/// Fewer bytes than a start needs.
const LEAST: u64 = 64 * 1024;
/// 2100-01-01.
const END: i64 = 4_102_444_800;

/// The disk of `home`, the clock and the system.
pub fn checks(home: &Home, reserve: u64) -> Vec<Check> {
    let findings = [disk(home, reserve), clock(Timestamp::now()), system()];
    findings.into_iter().map(Check::from).collect()
}

fn disk(home: &Home, reserve: u64) -> Finding {
    const NAME: &str = "disk";
    const MEND: &str = "free some space there, or choose another home";
    // A home that is not there yet will be on the disk of what is.
    let folder = home.dir().ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let stat = match statvfs(folder) {
        Ok(stat) => stat,
        Err(error) => {
            let message = format!("{}: how much is free is not told: {error}", folder.display());
            return Finding::warn(NAME, message, format!("df {}", folder.display()));
        }
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    room(NAME, free, reserve, stat.f_files > 0 && stat.f_favail == 0, MEND)
}

fn room(name: &str, free: u64, reserve: u64, no_files: bool, mend: &str) -> Finding {
    let (have, keep) = (format_bytes(free), format_bytes(reserve));
    if no_files {
        Finding::fail(name, "no more files can be made (no free inodes)", mend)
    } else if free < LEAST {
        Finding::fail(name, format!("it is full ({have} are free): the gateway starts, and takes no messages"), mend)
    } else if free < reserve {
        let message = format!("{have} are free, less than store.reserve ({keep}): no message is accepted");
        Finding::fail(name, message, mend)
    } else if free / 2 < reserve {
        Finding::warn(name, format!("{have} are free; below {keep} (store.reserve) no message is accepted"), mend)
    } else {
        Finding::ok(name, format!("{have} are free"))
    }
}

fn clock(now: Timestamp) -> Finding {
    const NAME: &str = "clock";
    let shown = now.strftime("%F %H:%M:%S UTC");
    if (EPOCH..END).contains(&now.as_second()) {
        Finding::ok(NAME, shown.to_string())
    } else {
        Finding::fail(NAME, format!("it cannot be {shown}"), "timedatectl set-ntp true")
    }
}

fn system() -> Finding {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Finding::ok("system", format!("Linux {}, {}", kernel.trim(), std::env::consts::ARCH))
}

/// Whether a service manager starts the gateway; a fact, whichever way.
pub fn service() -> Finding {
    const NAME: &str = "service";
    const UNIT: &str = "daoyou.service";
    let mut folders: Vec<PathBuf> =
        ["/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"]
            .map(PathBuf::from)
            .into();
    let configured = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let own = configured.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    folders.extend(own.map(|own| own.join("systemd/user")));
    folders.push("/etc/systemd/user".into());
    match folders.iter().map(|folder| folder.join(UNIT)).find(|unit| unit.exists()) {
        Some(unit) => Finding::ok(NAME, format!("installed: {}", unit.display())),
        None => Finding::ok(NAME, "no systemd unit is installed; the gateway runs as long as it was started by hand"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_and_the_year_are_judged() {
        for (free, reserve, no_files, state) in [
            (100_000, 100_000, false, "warn"),
            (99_999, 100_000, false, "fail"),
            (200_000, 100_000, false, "ok"),
            (LEAST, 0, false, "ok"),
            (LEAST - 1, 0, false, "fail"),
            (0, 0, false, "fail"),
            (100_000, 100, true, "fail"),
        ] {
            assert_eq!(room("disk", free, reserve, no_files, "mend").state.to_string(), state, "{free} {reserve}");
        }
        for (second, state) in [(0, "fail"), (EPOCH, "ok"), (END, "fail")] {
            assert_eq!(clock(Timestamp::from_second(second).unwrap()).state.to_string(), state, "{second}");
        }
    }
}
