//! `/api/cron`.

use std::sync::Arc;

use axum::extract::{Path, Query};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use daoyou_channels::settings::HumanDuration;
use daoyou_channels::text::truncate;
use daoyou_channels::{HttpError, limit_body};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::response::{ApiResult, parse_body, run_detached};
use crate::cron::{JobContext, JobError, JobService};
use crate::http::limits::IMPORT_BODY_LIMIT;
use crate::http::state::{AppState, SharedState};
use crate::offline;
use crate::query::jobs::{self, AppliedJobChange, HISTORY_LIMIT};
use crate::query::{JobChange, JobQuery};
use crate::text::language_of;
use crate::text::time_expression::{DueTime, TimeExpression, TimeParseError};

/// The longest description of a job in words, in bytes.
const MAX_DESCRIPTION: usize = 2_000;

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/cron", get(async |state: SharedState| read(&state, JobQuery::List).await).post(add))
        .route("/api/cron/preview", post(preview))
        .route("/api/cron/export", get(async |state: SharedState| read(&state, JobQuery::Export).await))
        .route(
            "/api/cron/import",
            limit_body(
                post(async |state: SharedState, text: String| apply(&state, JobChange::Import(text)).await),
                IMPORT_BODY_LIMIT,
            ),
        )
        .route(
            "/api/cron/{job}",
            get(async |state: SharedState, Path(job)| read(&state, JobQuery::Show(job)).await)
                .patch(edit)
                .delete(async |state: SharedState, Path(job)| apply(&state, JobChange::Remove(job)).await),
        )
        .route("/api/cron/{job}/enable", post_change(JobChange::Enable))
        .route("/api/cron/{job}/disable", post_change(JobChange::Disable))
        .route("/api/cron/{job}/run", post_change(JobChange::Run))
        .route("/api/cron/{job}/history", get(history))
}

/// Makes a change to the job that the path names.
fn post_change(change: fn(String) -> JobChange) -> MethodRouter<Arc<AppState>> {
    post(async move |state: SharedState, Path(job)| apply(&state, change(job)).await)
}

#[derive(Deserialize)]
struct HistoryParams {
    limit: Option<u32>,
}

async fn history(state: SharedState, Path(job): Path<String>, Query(params): Query<HistoryParams>) -> ApiResult {
    read(&state, JobQuery::History { job, limit: params.limit.unwrap_or(HISTORY_LIMIT) }).await
}

async fn edit(state: SharedState, Path(job): Path<String>, text: String) -> ApiResult {
    apply(&state, JobChange::Edit { job, fields: parse_body(&text)? }).await
}

/// Parses a job, described in words or by its fields, and returns its fields and next run times.
async fn preview(state: SharedState, text: String) -> ApiResult {
    let context = state.jobs.get().context.clone();
    let now = Timestamp::now();
    let mut request: Value = parse_body(&text)?;
    if let Some(words) = request.as_object_mut().and_then(|fields| fields.remove("text")) {
        let words = words.as_str().ok_or_else(|| HttpError::unprocessable("text: it is not text"))?.to_owned();
        let given = request.as_object_mut().map(std::mem::take).unwrap_or_default();
        request = job_in_words(&words, given, &context, now).map_err(HttpError::unprocessable)?;
    }
    Ok(Json(jobs::preview(&request, &context, now)?))
}

/// Returns the fields of a job that is described in words, in addition to the `given` fields.
///
/// # Errors
/// The error says what was understood.
fn job_in_words(
    words: &str,
    mut given: Map<String, Value>,
    context: &JobContext,
    now: Timestamp,
) -> Result<Value, String> {
    if words.len() > MAX_DESCRIPTION {
        return Err(format!("text: at most {MAX_DESCRIPTION} bytes are allowed"));
    }
    let words = words.trim();
    let ordered = after_reminder_phrase(words);
    let text = ordered.unwrap_or(words);
    let (when, note) = split(text).map_err(|misread| match misread {
        Some(misread) => format!("the time is not understood as a whole: {misread}"),
        None => {
            format!("no time is understood in {:?}; write it as \"every Monday at 9: the news\"", truncate(words, 200))
        }
    })?;
    if let Some(unread) = words_before_colon(text, &note) {
        return Err(format!(
            "{:?} before the colon is not understood as a part of the time; write only the time before the colon, and all else after it",
            truncate(unread, 200)
        ));
    }
    let zone = context.zone_of(given.get("tz").and_then(Value::as_str)).map_err(|error| error.to_string())?;
    let due = when.due(Some(now.to_zoned(zone.clone()).datetime())).ok_or("there is no such date")?;
    let mut set = |key: &str, value: String| drop(given.insert(key.to_owned(), Value::String(value)));
    match due {
        DueTime::In(seconds) => set("at", format!("in {}", HumanDuration::from_secs(seconds))),
        DueTime::At(at) => set("at", at.strftime("%Y-%m-%d %H:%M").to_string()),
        DueTime::Every { seconds, first } => {
            set("every", HumanDuration::from_secs(seconds).to_string());
            if let Some(first) = first {
                set("at", first.strftime("%Y-%m-%d %H:%M").to_string());
            }
        }
        DueTime::Cron(expression) => set("cron", expression),
    }
    if !given.contains_key("message") && !given.contains_key("prompt") {
        if note.is_empty() {
            return Err(format!("it says when, and not what is to be done: {:?}", truncate(words, 200)));
        }
        // A reminder needs no model: its text is the message.
        let inner = after_reminder_phrase(&note).map(|rest| rest.strip_prefix("to ").unwrap_or(rest).to_owned());
        let kind = if ordered.is_some() || inner.is_some() { "message" } else { "prompt" };
        given.insert(kind.to_owned(), Value::String(inner.unwrap_or(note)));
    }
    Ok(Value::Object(given))
}

/// Splits a text into a time and a note.
///
/// # Errors
/// As [`offline::split_reminder`].
fn split(text: &str) -> Result<(TimeExpression, String), Option<TimeParseError>> {
    let read = |text: &str| offline::split_reminder(text, language_of(text));
    // A date in digits stands alone.
    let date = text.split_once(' ').filter(|(lead, rest)| {
        matches!(lead.to_ascii_lowercase().as_str(), "at" | "on") && rest.starts_with(|c: char| c.is_ascii_digit())
    });
    read(text).or_else(|misread| date.and_then(|(_, rest)| read(rest).ok()).ok_or(misread))
}

/// Returns the words between a time and the colon before what is to be done, if there are any: they may belong to the time.
fn words_before_colon<'a>(text: &str, note: &'a str) -> Option<&'a str> {
    // Words with which a note begins, whatever follows.
    const LEADS: [&str; 5] = ["to", "that", "about", "去", "要"];
    let time = text.strip_suffix(note)?.trim_end();
    let is_marked = time.ends_with([':', '：'])
        || LEADS.iter().any(|lead| {
            time.get(time.len().saturating_sub(lead.len())..).is_some_and(|end| end.eq_ignore_ascii_case(lead))
        });
    if is_marked || after_reminder_phrase(note).is_some() {
        return None;
    }
    // No colon of a clock or of an address.
    let is_colon = |at: usize, c: char| {
        c == '：' || (c == ':' && !note[at + 1..].starts_with(|next: char| next.is_ascii_digit() || next == '/'))
    };
    let line = note.lines().next()?;
    let (at, _) = line.char_indices().find(|(at, c)| is_colon(*at, *c))?;
    Some(line[..at].trim()).filter(|words| !words.is_empty())
}

/// Returns the text after the phrase with which people ask for a reminder, if the text begins with such a phrase.
fn after_reminder_phrase(text: &str) -> Option<&str> {
    const PHRASES: [&str; 4] = ["please remind me", "remind me", "请提醒我", "提醒我"];
    PHRASES.iter().find_map(|phrase| {
        let (head, rest) = text.split_at_checked(phrase.len())?;
        // "remind me" is not the beginning of "remind members".
        let ends_in_word = phrase.is_ascii() && rest.starts_with(|c: char| c.is_ascii_alphabetic());
        (head.eq_ignore_ascii_case(phrase) && !ends_in_word).then(|| rest.trim_start())
    })
}

async fn add(state: SharedState, text: String) -> ApiResult {
    apply(&state, JobChange::Add(parse_body(&text)?)).await
}

pub(super) async fn read(state: &AppState, query: JobQuery) -> ApiResult {
    let service = state.jobs.get();
    Ok(Json(jobs::read(&service.store, query, service.context.clone()).await?))
}

pub(super) async fn apply(state: &AppState, change: JobChange) -> ApiResult {
    let service = state.jobs.get();
    run_detached(async move { Ok(Json(change_jobs(&service, change).await?)) }).await
}

/// Makes a change, and wakes the parts that it affects.
///
/// # Errors
/// The errors of [`jobs::apply`].
pub async fn change_jobs(service: &JobService, change: JobChange) -> Result<Value, JobError> {
    let AppliedJobChange { answer, fired } = jobs::apply(&service.store, change, service.context.clone()).await?;
    if let Some(fired) = fired {
        service.wake_started(fired);
    }
    service.wake();
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_between_the_time_and_its_colon_are_refused() {
        for (text, unread) in [
            ("every 90 minutes from 8:15: x", Some("from 8:15")),
            ("every 90 minutes starting at 8: x", Some("starting at 8")),
            ("every 15 minutes during work hours: ping", Some("during work hours")),
            ("every 15 minutes, during work hours: ping", Some("during work hours")),
            ("every day at 9 (Berlin time): x", Some("(Berlin time)")),
            ("每15分钟，工作时间内: ping", Some("工作时间内")),
            ("每15分钟，工作时间内：喝水", Some("工作时间内")),
            ("every Monday at 9: the news: short", None),
            ("every Monday at 9 read the news", None),
            ("every Monday at 9 to read: the news", None),
            ("every Monday at 9 remind me to call Bob: urgent", None),
            ("every Monday at 9 read https://example.org/", None),
            ("every Monday at 9 \"water: plants\"", None),
            ("每天早上8点提醒我：喝水", None),
            ("at 2027-01-01 10:00: lunch", None),
            ("on 2027-01-01 at 10:00: lunch", None),
        ] {
            let (_, note) = split(text).unwrap_or_else(|misread| panic!("{text}: {misread:?}"));
            assert_eq!(words_before_colon(text, &note), unread, "{text}: {note}");
        }
    }

    #[test]
    fn a_reminder_begins_with_a_whole_phrase() {
        for (text, expected) in [
            ("remind me every Monday: tea", Some("every Monday: tea")),
            ("Please remind me at 9: tea", Some("at 9: tea")),
            ("请提醒我9点喝茶", Some("9点喝茶")),
            ("提醒我call mom", Some("call mom")),
            ("remind members every Monday", None),
            ("remind", None),
            ("道", None),
        ] {
            assert_eq!(after_reminder_phrase(text), expected, "{text}");
        }
    }
}
