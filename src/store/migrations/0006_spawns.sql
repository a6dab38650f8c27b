-- Sub-agents. Times are UTC milliseconds.

CREATE TABLE spawns (
    -- Its inbox row and turn; its session is 'spawn:' and this.
    id         TEXT    NOT NULL PRIMARY KEY,
    -- Who gave it its task.
    session    TEXT    NOT NULL,
    turn       TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    -- 1 for a sub-agent of a chat.
    depth      INTEGER NOT NULL,
    -- Whether that turn waits for its end.
    waits      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    -- Of its last end.
    ended_at   INTEGER,
    -- The error's stable word when it failed.
    error      TEXT,
    -- What it answered, cut.
    result     TEXT
) WITHOUT ROWID;
CREATE INDEX spawns_session ON spawns (session);
