//! The words for the state of a run in `daoyou cron history`.

use crate::store::job_runs::JobRunRow;

/// Returns the outcome of a run: `ok`, `error`, `queued` (it waits for a gateway or for other turns), `running`, `skipped` (the
/// previous run was not done) or `missed` (no gateway ran).
pub fn outcome(run: &JobRunRow) -> &'static str {
    let has_ended = matches!(run.state.as_deref(), Some("done" | "dead"));
    match run.outcome.as_str() {
        "ok" => "ok",
        "skipped" => "skipped",
        "missed" => "missed",
        "started" if run.state.as_deref() == Some("queued") => "queued",
        "started" if !has_ended => "running",
        _ => "error",
    }
}

/// Returns the state of the run's output: `sent`; `pending`, on its way; `failed`, tried and not delivered so far, or not
/// known to have arrived; `dead`, given up; `none`, nothing is to be sent.
pub fn delivery(run: &JobRunRow) -> &'static str {
    if !run.sends || matches!(outcome(run), "skipped" | "missed" | "queued" | "running") {
        return "none";
    }
    match run.delivery.as_deref() {
        Some("sent") => "sent",
        Some("pending") if run.tries == 0 => "pending",
        Some("sending") if run.tries <= 1 => "pending",
        Some("pending" | "sending" | "unknown") => "failed",
        // If the outbound row is gone without a trace, a person dropped it.
        _ => "dead",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_and_delivery_of_a_run_are_one_word_each() {
        let run = |outcome: &str, state: Option<&str>, sends, delivery: Option<&str>, tries| JobRunRow {
            job: "j".to_owned(),
            name: "n".to_owned(),
            due: 0,
            at: 0,
            ended_at: None,
            turn: None,
            outcome: outcome.to_owned(),
            reason: None,
            sends,
            state: state.map(str::to_owned),
            delivery: delivery.map(str::to_owned),
            tries,
            last_error: None,
            input_tokens: 0,
            output_tokens: 0,
            cost: None,
            currency: None,
        };
        for (given, expected) in [
            (run("started", Some("queued"), true, None, 0), ("queued", "none")),
            (run("started", Some("waiting"), true, None, 0), ("running", "none")),
            (run("started", Some("done"), true, None, 0), ("error", "dead")),
            (run("skipped", None, false, None, 0), ("skipped", "none")),
            (run("missed", None, false, None, 0), ("missed", "none")),
            (run("ok", Some("done"), false, None, 0), ("ok", "none")),
            (run("ok", Some("done"), true, Some("pending"), 0), ("ok", "pending")),
            (run("ok", Some("done"), true, Some("sending"), 1), ("ok", "pending")),
            (run("ok", Some("done"), true, Some("pending"), 1), ("ok", "failed")),
            (run("ok", Some("done"), true, Some("sending"), 2), ("ok", "failed")),
            (run("ok", Some("done"), true, Some("unknown"), 1), ("ok", "failed")),
            (run("ok", Some("done"), true, Some("dead"), 7), ("ok", "dead")),
            (run("ok", Some("done"), true, None, 0), ("ok", "dead")),
            (run("error", Some("dead"), true, Some("sent"), 1), ("error", "sent")),
        ] {
            assert_eq!((outcome(&given), delivery(&given)), expected, "{given:?}");
        }
    }
}
