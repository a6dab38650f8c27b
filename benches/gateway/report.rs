//! The table: on the screen, and with the machine in `docs/benchmarks.md`.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// One line of the table.
pub struct Row {
    pub what: String,
    pub measured: String,
    pub goal: &'static str,
}

/// What the numbers are bound by, found by profiling.
const BOUNDS: &str = "
## What bounds it

- **Alone**, a message waits for four synced commits one after the other, and for some fifteen hand-overs between threads
  (accept, start, journal, end, sending). On a virtual machine a hand-over to a sleeping thread costs more than the work that is
  handed over: more than half of the CPU time of a turn alone is the kernel's, for switching and waking. Under load the threads
  do not sleep and callers share commits, so a turn costs a fraction of that.
- **At 64 in flight** the machine is full: driver, model server, sink and gateway share its cores, and the overhead is 64 turns
  divided by the turns a second.
- **At 1,000 turns a second offered** there is little room left for the same reason, and on a slow day of the machine none: what was
  accepted waits on disk until it is its turn. Measured side by side on such a day, the program before memory took 1.6 to 1.8 ms of CPU a
  turn there, the one with memory switched off 2.0, and with it 2.4: a conversation of two hundred messages in ten seconds is
  consolidated and searched all the time.
";

/// Everything that was measured.
#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

impl Report {
    #[expect(clippy::print_stdout, reason = "the bench's output")]
    pub fn add(&mut self, what: impl Into<String>, measured: impl Into<String>, goal: &'static str) {
        let row = Row { what: what.into(), measured: measured.into(), goal };
        println!("{:<58} {:<48} {}", row.what, row.measured, row.goal);
        self.rows.push(row);
    }

    /// The page, in Markdown.
    pub fn page(&self) -> String {
        let mut page = String::from("# Benchmarks\n\nWritten by `cargo xtask bench`");
        page += ".\n\nThe driver posts messages to a webhook and reads the signed callbacks; a scripted model server answers \
                 after 0 or 50 ms.\nDriver, model server and gateway share the machine. *Overhead* is the time from when a \
                 message was due to be posted until its\ncallback was read, less the model's time. *CPU* is the gateway's \
                 alone. A turn is one message, one model call, one callback.\n\n";
        for (name, value) in machine() {
            // A page in memory takes every line.
            let _ = writeln!(page, "- {name}: {value}");
        }
        page += "\n| what | measured | goal |\n|---|---|---|\n";
        for row in &self.rows {
            let _ = writeln!(page, "| {} | {} | {} |", row.what, row.measured, row.goal);
        }
        page += BOUNDS;
        page
    }
}

fn first_line(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.trim_start_matches([' ', '\t', ':']).trim().to_owned()
}

fn command(program: &str, args: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program).args(args).current_dir(root).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn machine() -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let changed = if command("git", &["status", "--porcelain"]).is_empty() { "" } else { ", with changes" };
    vec![
        ("Processor", first_line("/proc/cpuinfo", "model name")),
        ("Cores", cores.to_string()),
        ("Memory", first_line("/proc/meminfo", "MemTotal")),
        ("Kernel", first_line("/proc/sys/kernel/osrelease", "")),
        ("Date", jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()),
        ("Commit", command("git", &["rev-parse", "--short", "HEAD"]) + changed),
    ]
}
