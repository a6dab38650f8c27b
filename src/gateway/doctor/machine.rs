//! Checks of the machine: disk, clock, system, service manager.

use std::path::{Path, PathBuf};

use daoyou_channels::Finding;
use jiff::Timestamp;
use rustix::fs::statvfs;

use super::check::DoctorCheck;
use crate::home::Home;
use crate::text::format_size;

/// The earliest plausible time: 2026-01-01, in seconds.
const EARLIEST: i64 = 1_767_225_600;
/// The free bytes that a start of the gateway needs.
const START_BYTES: u64 = 64 * 1024;
/// The latest plausible time: 2100-01-01, in seconds.
const LATEST: i64 = 4_102_444_800;

/// Checks the disk of `home`, the clock and the system.
pub fn checks(home: &Home, reserve: u64) -> Vec<DoctorCheck> {
    let findings = [disk(home, reserve), clock(Timestamp::now()), system()];
    findings.into_iter().map(DoctorCheck::from).collect()
}

fn disk(home: &Home, reserve: u64) -> Finding {
    const NAME: &str = "disk";
    const MEND: &str = "free some space there, or choose another home";
    // A home that does not exist yet will be on the disk of its nearest parent.
    let folder = home.dir().ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let stat = match statvfs(folder) {
        Ok(stat) => stat,
        Err(error) => {
            let message = format!("{}: free space is unknown: {error}", folder.display());
            return Finding::warn(NAME, message, format!("df {}", folder.display()));
        }
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    space(NAME, free, reserve, stat.f_files > 0 && stat.f_favail == 0, MEND)
}

fn space(name: &str, free: u64, reserve: u64, no_files: bool, mend: &str) -> Finding {
    let (have, keep) = (format_size(free), format_size(reserve));
    if no_files {
        Finding::fail(name, "no more files can be made (no free inodes)", mend)
    } else if free < START_BYTES {
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
    if (EARLIEST..LATEST).contains(&now.as_second()) {
        Finding::ok(NAME, shown.to_string())
    } else {
        Finding::fail(NAME, format!("it cannot be {shown}"), "timedatectl set-ntp true")
    }
}

fn system() -> Finding {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Finding::ok("system", format!("Linux {}, {}", kernel.trim(), std::env::consts::ARCH))
}

/// Reports whether a systemd unit is installed; either is fine.
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
    fn little_space_and_an_implausible_clock_are_reported() {
        for (free, reserve, no_files, state) in [
            (100_000, 100_000, false, "warn"),
            (99_999, 100_000, false, "fail"),
            (200_000, 100_000, false, "ok"),
            (START_BYTES, 0, false, "ok"),
            (START_BYTES - 1, 0, false, "fail"),
            (0, 0, false, "fail"),
            (100_000, 100, true, "fail"),
        ] {
            assert_eq!(space("disk", free, reserve, no_files, "mend").state.to_string(), state, "{free} {reserve}");
        }
        for (second, state) in [(0, "fail"), (EARLIEST, "ok"), (LATEST, "fail")] {
            assert_eq!(clock(Timestamp::from_second(second).unwrap()).state.to_string(), state, "{second}");
        }
    }
}
