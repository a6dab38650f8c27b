//! Prints the table, and writes it with the machine's data to `docs/benchmarks.md`.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The unit of a number.
#[derive(Clone, Copy, PartialEq)]
pub enum Unit {
    Milliseconds,
    Megabytes,
    TurnsASecond,
    Times,
    Percent,
    Count,
    /// The count of events that must not happen; shown only if it is not zero.
    Fault,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => " ms",
            Self::Megabytes => " MB",
            Self::TurnsASecond => " turns/s",
            Self::Times => " x",
            Self::Percent => " %",
            Self::Count | Self::Fault => "",
        }
    }

    fn number(self, value: f64) -> String {
        match self {
            Self::Megabytes => format!("{value:.1}"),
            Self::TurnsASecond => format!("{value:.0}"),
            Self::Count | Self::Fault if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Milliseconds | Self::Times | Self::Percent | Self::Count | Self::Fault => format!("{value:.2}"),
        }
    }
}

/// One number of a row.
#[derive(Clone, Copy)]
pub struct Figure {
    /// The name of the figure; empty for the only figure of a row.
    pub name: &'static str,
    pub value: f64,
    pub unit: Unit,
}

impl Figure {
    pub fn new(name: &'static str, value: f64, unit: Unit) -> Self {
        Self { name, value, unit }
    }

    pub fn time(name: &'static str, time: Duration) -> Self {
        Self::new(name, time.as_secs_f64() * 1_000.0, Unit::Milliseconds)
    }

    pub fn bytes(bytes: u64) -> Self {
        Self::new("", bytes as f64 / 1e6, Unit::Megabytes)
    }
}

/// A measured program.
#[derive(Clone, Copy, PartialEq)]
pub enum Program {
    This,
    /// The program given by `--against`.
    Before,
}

/// A row of the table with its figures of each run.
struct Row {
    what: String,
    this: Vec<Vec<Figure>>,
    before: Vec<Vec<Figure>>,
    goal: &'static str,
}

/// The limits behind the numbers, found by profiling.
const FINDINGS: &str = include_str!("findings.md");

/// The results of all measurements.
#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds the result of one run. Rows of the same name are runs of the same measurement.
    #[expect(clippy::print_stdout, reason = "the bench's output")]
    pub fn add(&mut self, program: Program, what: impl Into<String>, figures: Vec<Figure>, goal: &'static str) {
        let what = what.into();
        let before = if program == Program::Before { " (before)" } else { "" };
        println!("{:<66} {:<58} {goal}", format!("{what}{before}"), shown(std::slice::from_ref(&figures)));
        let at = self.rows.iter().position(|row| row.what == what).unwrap_or_else(|| {
            self.rows.push(Row { what, this: Vec::new(), before: Vec::new(), goal });
            self.rows.len() - 1
        });
        match program {
            Program::This => self.rows[at].this.push(figures),
            Program::Before => self.rows[at].before.push(figures),
        }
    }

    /// Returns the table in Markdown; `before` names the program of the second column.
    pub fn table(&self, before: Option<&str>) -> String {
        let (title, line) = match before {
            Some(before) => (format!(" before ({before}) |"), "---|"),
            None => (String::new(), ""),
        };
        let mut table = format!("| what | measured |{title} goal |\n|---|---|{line}---|\n");
        for row in &self.rows {
            let old = before.map_or_else(String::new, |_| format!(" {} |", shown(&row.before)));
            table += &format!("| {} | {} |{old} {} |\n", row.what, shown(&row.this), row.goal);
        }
        table
    }

    /// Returns the page in Markdown.
    pub fn page(&self, runs: usize, before: Option<&str>) -> String {
        let mut page = String::from("# Benchmarks\n\nWritten by `cargo xtask bench`");
        page += ".\n\nThe driver posts messages to a webhook and reads the signed callbacks; a scripted model server answers \
                 after 0 or 50 ms.\nDriver, model server and gateway share the machine. *Overhead* is the time from when a \
                 message was due to be posted until its\ncallback was read, less the model's time. *CPU* is the gateway's \
                 alone. A turn is one message, one model call, one callback.\n";
        // Writing to a string cannot fail.
        let _ = writeln!(page, "Each figure is the median of {runs} runs, with the minimum and the maximum.\n");
        for (name, value) in machine() {
            let _ = writeln!(page, "- {name}: {value}");
        }
        page += &format!("\n{}", self.table(before));
        page + "\n" + FINDINGS
    }
}

/// Formats the figures of several runs: the median of each, and for several runs the minimum and the maximum.
fn shown(runs: &[Vec<Figure>]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    if first.is_empty() {
        return "not measured: strace is not there or may not attach".to_owned();
    }
    let figures = first.iter().enumerate().filter_map(|(at, Figure { name, unit, .. })| {
        let mut values: Vec<f64> = runs.iter().filter_map(|run| run.get(at)).map(|figure| figure.value).collect();
        values.sort_by(f64::total_cmp);
        if *unit == Unit::Fault && values.iter().all(|value| *value == 0.0) {
            return None;
        }
        let middle = unit.number(values[values.len() / 2]);
        let (least, most) = (unit.number(values[0]), unit.number(values[values.len() - 1]));
        let spread = if least == most { String::new() } else { format!(" ({least}–{most})") };
        Some(format!("{name} {middle}{}{spread}", unit.name()).trim().to_owned())
    });
    figures.collect::<Vec<_>>().join(", ")
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
