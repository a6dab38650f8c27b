-- Questions of turns to the people whose messages they answer (`ask_user`). `channel`, `sender` and `trust` are those of that message;
-- `state` is pending, answered, expired or cancelled; `answer` is the id of the message that answered. A session has at most one that
-- waits. Times are UTC milliseconds.
CREATE TABLE questions (
    id         TEXT    NOT NULL PRIMARY KEY,
    turn       TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    channel    TEXT    NOT NULL,
    sender     TEXT    NOT NULL,
    trust      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    answer     TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at   INTEGER
);
CREATE UNIQUE INDEX questions_pending ON questions (session) WHERE state = 'pending';
