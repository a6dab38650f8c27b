-- Scheduled prompts and their runs. Times are UTC milliseconds.

CREATE TABLE jobs (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    -- What it does and when, as JSON. A row that cannot be read harms no other.
    body       TEXT    NOT NULL,
    enabled    INTEGER NOT NULL DEFAULT 1,
    -- Its next slot; null when it has none.
    next_at    INTEGER,
    -- In a row, up to now.
    failures   INTEGER NOT NULL DEFAULT 0,
    -- Why it was disabled, when daoyou did it.
    paused     TEXT,
    -- What the last run that went well answered, cut.
    result     TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX jobs_due ON jobs (next_at) WHERE enabled = 1 AND next_at IS NOT NULL;
CREATE INDEX jobs_name ON jobs (name);

CREATE TABLE job_runs (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    job     TEXT    NOT NULL,
    -- The job's, which may be gone.
    name    TEXT    NOT NULL,
    -- The slot; for a run by hand the moment.
    due     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    -- The inbox row that answers it; null when none was made.
    turn    TEXT,
    -- What was decided when the slot came, and when its turn ended: 'started', 'ok', 'error', 'skipped', 'missed'.
    outcome TEXT    NOT NULL CHECK (outcome IN ('started', 'ok', 'error', 'skipped', 'missed')),
    -- Why, in words: an error's code, what it was skipped for.
    reason  TEXT,
    ended   INTEGER,
    -- Whether the run's answer was for the chat: 0 when it was kept.
    sends   INTEGER NOT NULL DEFAULT 1,
    -- As it was last seen, for when the outbox row is gone.
    delivery TEXT,
    UNIQUE (job, due)
);
CREATE INDEX job_runs_turn ON job_runs (turn) WHERE turn IS NOT NULL;
-- Few at any time: those whose turn has not ended.
CREATE INDEX job_runs_started ON job_runs (job) WHERE outcome = 'started';
