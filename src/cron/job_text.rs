//! Jobs as text: for the model, for a chat, for the command line.

use jiff::Timestamp;

use super::job_context::format_clock;
use super::{Job, JobContext, JobEntry, Schedule, UnreadableJob};
use crate::store::jobs::JobRow;
use crate::text::{Language, one_line, shell_word, truncate};

/// The longest reason, in characters.
const MAX_REASON: usize = 120;

impl Job {
    /// Describes the schedule.
    pub fn when(&self, job_context: &JobContext) -> String {
        self.body.schedule.describe(job_context.language, job_context.zone())
    }

    /// Formats the next slot by the job's own clock; `None` if there is none.
    pub fn next_in_words(&self, job_context: &JobContext) -> Option<String> {
        let next = Timestamp::from_millisecond(self.row.next_at?).ok()?;
        Some(format_clock(next, &self.zone(job_context.zone())))
    }
}

/// Lists each job in one short line: id, name, schedule, next run. A job that cannot be read is listed with the reason.
pub fn lines(jobs: &[JobEntry], job_context: &JobContext, limit: usize) -> String {
    format_list(jobs, job_context, limit, |row| format!("{} {}", row.id, row.name))
}

/// Lists each job for people in one short line: name (or id if it has no name), schedule, next run. A job that cannot
/// be read is listed with the reason.
pub fn lines_by_name(jobs: &[JobEntry], job_context: &JobContext, limit: usize) -> String {
    format_list(jobs, job_context, limit, |row| display_name(row).to_owned())
}

/// Returns the name of a job for people.
pub fn display_name(row: &JobRow) -> &str {
    if row.name.trim().is_empty() { &row.id } else { &row.name }
}

/// Returns [`display_name`] as a word of a command line.
pub fn shell_name(row: &JobRow) -> String {
    shell_word(display_name(row))
}

fn format_list(jobs: &[JobEntry], job_context: &JobContext, limit: usize, named: impl Fn(&JobRow) -> String) -> String {
    let mut lines: Vec<String> = jobs.iter().take(limit).map(|job| format_line(job, job_context, &named)).collect();
    match (jobs.len().saturating_sub(limit), job_context.language) {
        (0, _) => {}
        (more, Language::En) => lines.push(format!("- and {more} more")),
        (more, Language::Zh) => lines.push(format!("- 还有 {more} 个")),
    }
    lines.join("\n")
}

fn format_line(job: &JobEntry, job_context: &JobContext, named: &impl Fn(&JobRow) -> String) -> String {
    let is_zh = job_context.language == Language::Zh;
    let job = match job {
        Ok(job) => job,
        Err(unreadable) => {
            let UnreadableJob { row, error } = &**unreadable;
            let (name, error) = (named(row), truncate(&one_line(&error.to_string()), MAX_REASON));
            return if is_zh {
                format!("- {name}：无法读取（{error}）")
            } else {
                format!("- {name}: unreadable ({error})")
            };
        }
    };
    let mut line = format!("- {}{}{}", named(&job.row), if is_zh { "：" } else { ": " }, job.when(job_context));
    let is_once = matches!(job.body.schedule, Schedule::At { .. });
    match (&job.row.pause_reason, job.row.enabled, job.next_in_words(job_context)) {
        (Some(reason), _, _) if is_zh => {
            line.push_str(&format!("，已暂停（{}）", truncate(&one_line(reason), MAX_REASON)));
        }
        (Some(reason), _, _) => line.push_str(&format!("; paused ({})", truncate(&one_line(reason), MAX_REASON))),
        (None, false, _) => line.push_str(if is_zh { "，已停用" } else { "; disabled" }),
        (None, true, Some(next)) if !is_once => {
            line.push_str(&if is_zh { format!("，下次 {next}") } else { format!("; next {next}") });
        }
        (None, true, _) => {}
    }
    line
}
