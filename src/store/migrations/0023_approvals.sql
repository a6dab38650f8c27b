-- What a turn has read from others than the owner, and the calls that wait for the owner's approval. Times are UTC milliseconds.

-- `code` is what people type; `epoch` is that of the session, in which the sources in `taint` (names, as a JSON array) were read;
-- `state` is pending, approved, denied, expired or cancelled; `reason` is why the owner denied it;
-- `for_session` approves the tool for the rest of that epoch.
CREATE TABLE approvals (
    id         TEXT    NOT NULL PRIMARY KEY,
    code       TEXT    NOT NULL UNIQUE,
    turn       TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    tool       TEXT    NOT NULL,
    arguments  TEXT    NOT NULL,
    taint      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    reason     TEXT    NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at   INTEGER,
    for_session INTEGER NOT NULL DEFAULT 0,
    UNIQUE (turn, call_id)
);
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE state = 'pending';

-- The sources of a conversation's content that are not the owner's.
CREATE TABLE session_taints (
    session TEXT    NOT NULL,
    epoch   INTEGER NOT NULL,
    source  TEXT    NOT NULL,
    PRIMARY KEY (session, epoch, source)
);
