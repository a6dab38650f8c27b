-- What is known for longer than a conversation, and what of it each session was given. Times are UTC milliseconds.

CREATE TABLE memories (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Whose it is: 'owner', 'everyone', 'name:NAME' of [identities], or 'sender:CHANNEL:SENDER'.
    owner       TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('fact', 'preference', 'case', 'task', 'summary')),
    -- A preference's key, a case's title, a summary's session; else empty.
    name        TEXT    NOT NULL DEFAULT '',
    text        TEXT    NOT NULL,
    -- What else belongs to its kind, as JSON.
    detail      TEXT    NOT NULL DEFAULT '{}',
    origin      TEXT    NOT NULL CHECK (origin IN ('told', 'noticed', 'by_hand', 'command', 'imported')),
    -- The message that it comes from, if one.
    session     TEXT,
    seq         INTEGER,
    turn        TEXT,
    confidence  REAL    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- When it was last given to a model, and how often.
    used_at     INTEGER,
    uses        INTEGER NOT NULL DEFAULT 0,
    -- What is known instead; it stays as history until it is forgotten.
    replaced_by INTEGER,
    replaced_at INTEGER
);
CREATE INDEX memories_current ON memories (owner, kind, id) WHERE replaced_by IS NULL;
CREATE INDEX memories_named ON memories (owner, kind, name) WHERE replaced_by IS NULL AND name <> '';
CREATE INDEX memories_replaced ON memories (replaced_by) WHERE replaced_by IS NOT NULL;
CREATE INDEX memories_source ON memories (session, seq) WHERE session IS NOT NULL;

-- What stands before the log in an epoch of a session.
CREATE TABLE session_memory (
    session    TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    -- Messages below this seq are told by the summary.
    cursor     INTEGER NOT NULL DEFAULT 0,
    -- The memory of kind 'summary' that tells them.
    summary    INTEGER,
    -- What of the long-term memory its prompt holds: the snapshot's hash; null when none was taken yet.
    snapshot   TEXT,
    -- Why the rest of it is to be consolidated though it is short: 'new' (it was closed by /new), 'idle'; else null.
    due        TEXT,
    -- Consolidations that failed in a row, and when the next may be tried.
    failures   INTEGER NOT NULL DEFAULT 0,
    retry_at   INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (session, epoch)
) WITHOUT ROWID;
CREATE INDEX session_memory_due ON session_memory (retry_at) WHERE due IS NOT NULL;
CREATE INDEX session_memory_snapshot ON session_memory (snapshot) WHERE snapshot IS NOT NULL;

-- Texts that stand in prompts, each once.
CREATE TABLE snapshots (
    hash  TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    text  TEXT NOT NULL
) WITHOUT ROWID;

-- Whose a session is: the first one who wrote there; and whether others have written there since.
ALTER TABLE sessions ADD COLUMN owner TEXT;
ALTER TABLE sessions ADD COLUMN is_shared INTEGER NOT NULL DEFAULT 0;
