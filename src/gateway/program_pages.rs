//! Gives back the resident memory of program code that only the start needed.

use std::fs;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Unmaps the pages of the program file that this process has used so far. What is used again is mapped again from the page cache,
/// in a few microseconds.
///
/// Most of the code runs at the start only, and the kernel maps 64 KiB around each page that is used: without this, more than half
/// of the program stays in the resident memory of an idle gateway.
pub(super) fn release_program_pages() {
    let read = fs::read_link("/proc/self/exe").and_then(|program| {
        let mappings = fs::read_to_string("/proc/self/smaps")?;
        Ok(unmodified_mappings(&mappings, &program.to_string_lossy()))
    });
    match read {
        Ok(mappings) => mappings.into_iter().for_each(release),
        Err(error) => tracing::debug!(%error, "the mappings of the program cannot be read"),
    }
}

#[expect(unsafe_code, reason = "no library has a safe function for this")]
fn release(mapping: Range<usize>) {
    // SAFETY: the range is one private mapping of the program file that nothing writes: it is read-only, and no page of it was ever
    // modified. `DontNeed` discards only modifications (madvise(2)): the next access reads the same bytes from the file.
    let released =
        unsafe { madvise(std::ptr::with_exposed_provenance_mut(mapping.start), mapping.len(), Advice::LinuxDontNeed) };
    if let Err(error) = released {
        tracing::debug!(%error, "pages of the program could not be released");
    }
}

/// Returns the address ranges of the private read-only mappings of the file `program` of which no page is modified, from the text of
/// `/proc/PID/smaps` (proc_pid_smaps(5)). The loader modifies the pages of one read-only mapping when it relocates addresses; those
/// pages count as anonymous, or as swapped.
fn unmodified_mappings(smaps: &str, program: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut is_found = false;
    for line in smaps.lines() {
        let mut fields = line.split_whitespace();
        let Some(first) = fields.next() else { continue };
        if let Some((start, end)) = first.split_once('-') {
            let is_private_read_only = fields.next().is_some_and(|modes| matches!(modes, "r-xp" | "r--p"));
            is_found = is_private_read_only && line.ends_with(&format!(" {program}"));
            let ends = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16));
            if let (true, (Ok(start), Ok(end))) = (is_found, ends) {
                found.push(start..end);
            }
        } else if is_found && matches!(first, "Anonymous:" | "Swap:") && fields.next() != Some("0") {
            found.pop();
            is_found = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unmodified_read_only_mappings_of_the_program_are_found() {
        let smaps = "\
            1000-3000 r--p 00000000 fe:00 77                         /opt/d a/daoyou\n\
            Size:                  8 kB\nAnonymous:             0 kB\nSwap:                  0 kB\n\
            3000-9000 r-xp 00002000 fe:00 77                         /opt/d a/daoyou\n\
            Anonymous:             0 kB\nSwap:                  0 kB\nVmFlags: rd ex mr mw me\n\
            9000-a000 r--p 00008000 fe:00 77                         /opt/d a/daoyou\n\
            Anonymous:             4 kB\nSwap:                  0 kB\n\
            a000-b000 r--p 00009000 fe:00 77                         /opt/d a/daoyou\n\
            Anonymous:             0 kB\nSwap:                  4 kB\n\
            b000-c000 rw-p 0000a000 fe:00 77                         /opt/d a/daoyou\n\
            Anonymous:             0 kB\nSwap:                  0 kB\n\
            c000-d000 r--s 00000000 fe:00 77                         /opt/d a/daoyou\n\
            Anonymous:             0 kB\nSwap:                  0 kB\n\
            d000-e000 r-xp 00000000 fe:00 78                         /lib/libc.so.6\n\
            Anonymous:             0 kB\nSwap:                  0 kB\n\
            e000-f000 rw-p 00000000 00:00 0 \n\
            Anonymous:             0 kB\nSwap:                  0 kB\n\
            f000-f800 r--p 00000000 fe:00 79                         /opt/d a/other/opt/d a/daoyou\n\
            Anonymous:             0 kB\nSwap:                  0 kB\n";
        assert_eq!(unmodified_mappings(smaps, "/opt/d a/daoyou"), [0x1000..0x3000, 0x3000..0x9000]);
    }

    #[test]
    fn released_pages_are_no_longer_resident_and_the_program_goes_on() {
        let resident_file_pages = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
        };
        let before = resident_file_pages();
        release_program_pages();
        let after = resident_file_pages();
        // How much is mapped again at once, around the code that runs, depends on the kernel.
        assert!(after < before, "{after} of {before} kB are resident");
    }
}
