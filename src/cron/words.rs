//! A job in words: for the model, for a chat, for the command line.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::terms::clock;
use super::{Job, Language, Listed, Schedule, Terms, Unreadable, time_zone};
use crate::store::jobs::JobRow;
use crate::text::one_line;

/// Of a reason, in characters.
const MAX_REASON: usize = 120;

impl Job {
    /// When it is due, in words.
    pub fn when(&self, terms: &Terms) -> String {
        self.body.schedule.describe(terms.language, terms.zone())
    }

    /// By which clock it is told when it is due next.
    fn zone(&self, terms: &Terms) -> TimeZone {
        let own = match &self.body.schedule {
            Schedule::Cron { tz, .. } => time_zone(tz).ok(),
            Schedule::At { .. } | Schedule::Every { .. } => None,
        };
        own.unwrap_or_else(|| terms.zone().clone())
    }

    /// Its next slot by its own clock; `None` when there is none.
    pub fn next_in_words(&self, terms: &Terms) -> Option<String> {
        let next = Timestamp::from_millisecond(self.row.next_at?).ok()?;
        Some(clock(next, &self.zone(terms)))
    }
}

/// One short line for each job: id, name, when, next. Those that cannot be read stand there with the reason.
pub fn lines(jobs: &[Listed], terms: &Terms, limit: usize) -> String {
    listed(jobs, terms, limit, |row| format!("{} {}", row.id, row.name))
}

/// As [`lines`], for people: jobs go by their names, and by their ids where they have none.
pub fn lines_by_name(jobs: &[Listed], terms: &Terms, limit: usize) -> String {
    listed(jobs, terms, limit, |row| called(row).to_owned())
}

/// What a job is called where people read of it.
pub fn called(row: &JobRow) -> &str {
    if row.name.trim().is_empty() { &row.id } else { &row.name }
}

/// [`called`], as a word of a command line.
pub fn called_in_shell(row: &JobRow) -> String {
    let name = called(row);
    let is_plain = name.chars().all(|c| c.is_alphanumeric() || "-_.:".contains(c));
    if is_plain { name.to_owned() } else { format!("'{}'", name.replace('\'', r"'\''")) }
}

fn listed(jobs: &[Listed], terms: &Terms, limit: usize, named: impl Fn(&JobRow) -> String) -> String {
    let mut lines: Vec<String> = jobs.iter().take(limit).map(|job| line(job, terms, &named)).collect();
    match (jobs.len().saturating_sub(limit), terms.language) {
        (0, _) => {}
        (more, Language::En) => lines.push(format!("- and {more} more")),
        (more, Language::Zh) => lines.push(format!("- 还有 {more} 个")),
    }
    lines.join("\n")
}

fn line(job: &Listed, terms: &Terms, named: &impl Fn(&JobRow) -> String) -> String {
    let is_zh = terms.language == Language::Zh;
    let job = match job {
        Ok(job) => job,
        Err(unreadable) => {
            let Unreadable { row, error } = &**unreadable;
            let (name, error) = (named(row), short(&error.to_string()));
            return if is_zh {
                format!("- {name}：无法读取（{error}）")
            } else {
                format!("- {name}: unreadable ({error})")
            };
        }
    };
    let mut line = format!("- {}{}{}", named(&job.row), if is_zh { "：" } else { ": " }, job.when(terms));
    let is_once = matches!(job.body.schedule, Schedule::At { .. });
    match (&job.row.paused, job.row.enabled, job.next_in_words(terms)) {
        (Some(reason), _, _) if is_zh => line.push_str(&format!("，已暂停（{}）", short(reason))),
        (Some(reason), _, _) => line.push_str(&format!("; paused ({})", short(reason))),
        (None, false, _) => line.push_str(if is_zh { "，已停用" } else { "; disabled" }),
        (None, true, Some(next)) if !is_once => {
            line.push_str(&if is_zh { format!("，下次 {next}") } else { format!("; next {next}") });
        }
        (None, true, _) => {}
    }
    line
}

/// On one line.
fn short(text: &str) -> String {
    one_line(text).chars().take(MAX_REASON).collect()
}
