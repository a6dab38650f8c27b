//! Whether a process is still the one that was meant: ids are given again, the moment of a birth is not.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal};

/// When a process of this machine was born, in words that no other process of the same id has; absent when it is gone.
pub fn birth_of(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let ticks = birth_in(&stat)?;
    // Ticks count from the start of the machine.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{}/{ticks}", boot.trim()))
}

/// Whether the process with this id is the one that was born then, and lives.
pub fn is_still(pid: i32, birth: &str) -> bool {
    birth_of(pid).is_some_and(|found| found == birth)
}

/// Sends a signal to a process group; one that is gone takes none.
pub fn end_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

/// The time of birth in a line of `/proc/PID/stat`: the name may hold anything, so what counts comes after the last
/// parenthesis (proc_pid_stat(5)). One that only waits to be collected is gone.
fn birth_in(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The state is field 3, the birth field 22.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_birth_is_found_whatever_the_name_is() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        for (stat, expected) in [
            (format!("42 (sh) S {rest}"), Some(4711)),
            (format!("42 (a) Z 9 (b) R {rest}"), Some(4711)),
            (format!("42 (sh) Z {rest}"), None),
            ("42 (sh".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(birth_in(&stat), expected, "{stat}");
        }
    }

    #[test]
    fn a_process_is_itself_and_no_other() {
        let me = i32::try_from(std::process::id()).unwrap();
        let birth = birth_of(me).unwrap();
        assert!(is_still(me, &birth) && !is_still(me, "x/1") && !is_still(i32::MAX, &birth));
    }
}
