//! What follows from the end of a job's turn, within the commit of that end.

use crate::bus::{JobErrand, RunEnd, WhatFollows};
use crate::store::job_runs::{self, RunOutcome};
use crate::store::{Connection, StoreError, jobs};

/// Writes how the run ended, and answers what is delivered and who is told.
pub fn ended(connection: &Connection, errand: &JobErrand, run: &RunEnd<'_>) -> Result<WhatFollows, StoreError> {
    let outcome = if run.error.is_some() { RunOutcome::Error } else { RunOutcome::Ok };
    job_runs::end(connection, &errand.job, errand.due, outcome, run.error, true)?;
    if run.error.is_some() {
        jobs::count_failure(connection, &errand.job)?;
    } else {
        jobs::set_result(connection, &errand.job, run.reply)?;
    }
    Ok(WhatFollows { reply: Some(run.reply.to_owned()), ..WhatFollows::default() })
}
