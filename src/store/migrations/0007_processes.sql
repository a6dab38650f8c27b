-- Commands that run in the background. Times are UTC milliseconds.

CREATE TABLE processes (
    id         TEXT    NOT NULL PRIMARY KEY,
    -- The turn that started it, and what the announcement of its end needs.
    turn       TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    channel    TEXT    NOT NULL,
    chat_id    TEXT    NOT NULL,
    trust      TEXT    NOT NULL,
    metadata   TEXT    NOT NULL,
    label      TEXT,
    -- Its beginning, on one line.
    command    TEXT    NOT NULL,
    -- It outlives the gateway.
    detached   INTEGER NOT NULL,
    -- The shell's, and when that was born; null until it runs.
    pid        INTEGER,
    birth      TEXT,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    -- How, in words.
    ending     TEXT
) WITHOUT ROWID;
CREATE INDEX processes_open ON processes (started_at) WHERE ended_at IS NULL;
