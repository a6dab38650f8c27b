-- The rows of a message's life; ARCHITECTURE.md tells their states. Ids are UUIDs as text, times UTC milliseconds,
-- bodies JSON.

CREATE TABLE inbox (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT    NOT NULL UNIQUE,
    channel     TEXT    NOT NULL,
    external_id TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    chat_id     TEXT    NOT NULL,
    sender      TEXT    NOT NULL,
    trust       TEXT    NOT NULL,
    content     TEXT    NOT NULL,
    attachments TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    turn        TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'waiting', 'done', 'dead')),
    stalled     INTEGER NOT NULL DEFAULT 0,
    cancel      INTEGER NOT NULL DEFAULT 0,
    UNIQUE (channel, external_id)
);
CREATE INDEX inbox_open ON inbox (session, seq) WHERE state IN ('queued', 'running', 'waiting');
CREATE INDEX inbox_dead ON inbox (seq) WHERE state = 'dead';
CREATE INDEX inbox_turn ON inbox (turn);

CREATE TABLE turn_steps (
    turn TEXT    NOT NULL,
    seq  INTEGER NOT NULL,
    kind TEXT    NOT NULL,
    v    INTEGER NOT NULL,
    body TEXT    NOT NULL,
    hash TEXT    NOT NULL,
    at   INTEGER NOT NULL,
    PRIMARY KEY (turn, seq)
) WITHOUT ROWID;

CREATE TABLE sessions (
    session    TEXT    NOT NULL PRIMARY KEY,
    epoch      INTEGER NOT NULL DEFAULT 0,
    -- The first seq of this epoch, and the next one to be given.
    first_seq  INTEGER NOT NULL DEFAULT 0,
    next_seq   INTEGER NOT NULL DEFAULT 0,
    -- Chosen by /model; null is the configuration's.
    model      TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_used ON sessions (updated_at);

CREATE TABLE messages (
    session TEXT    NOT NULL,
    epoch   INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    role    TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    turn    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;

CREATE TABLE outbox (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT    NOT NULL UNIQUE,
    turn        TEXT    NOT NULL,
    slot        TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    channel     TEXT    NOT NULL,
    chat_id     TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('pending', 'sending', 'sent', 'unknown', 'dead')),
    tries       INTEGER NOT NULL DEFAULT 0,
    next_at     INTEGER NOT NULL DEFAULT 0,
    provider_id TEXT,
    last_error  TEXT,
    -- What a delivery that was cut off gets: 'same_id', 'again' or 'never'; null until it is first tried.
    resend      TEXT,
    created_at  INTEGER NOT NULL,
    UNIQUE (turn, slot)
);
CREATE INDEX outbox_open ON outbox (channel, seq) WHERE state IN ('pending', 'sending');
CREATE INDEX outbox_stuck ON outbox (seq) WHERE state IN ('unknown', 'dead');

CREATE TABLE usage (
    turn          TEXT    NOT NULL PRIMARY KEY,
    session       TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    at            INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX usage_session ON usage (session, at);
CREATE INDEX usage_at ON usage (at);

-- How far a channel that reads from a cursor has come, and what it passed over.
CREATE TABLE cursors (
    channel    TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    position   TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (channel, source)
) WITHOUT ROWID;
CREATE TABLE skipped (
    channel  TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    position TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (channel, source, position)
) WITHOUT ROWID;

CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
