-- The web page: titles of sessions, named tokens, logins, and files that were uploaded.

ALTER TABLE sessions ADD COLUMN title TEXT;

CREATE TABLE access_tokens (
    name       TEXT    NOT NULL PRIMARY KEY,
    -- The SHA-256 of the token.
    hash       BLOB    NOT NULL UNIQUE,
    -- 'admin', 'chat' or 'read'.
    scope      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    -- When it was last used, to the hour.
    used_at    INTEGER
) WITHOUT ROWID;

CREATE TABLE page_logins (
    -- The SHA-256 of the id in the cookie.
    hash       BLOB    NOT NULL PRIMARY KEY,
    -- The named token of the login; null is the token of the gateway.
    token      TEXT,
    -- The SHA-256 of the id and the token of the login: a replaced token ends it.
    seal       BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE page_files (
    id         TEXT    NOT NULL PRIMARY KEY,
    -- The token that uploaded it; empty is the owner.
    uploader   TEXT    NOT NULL,
    -- A JSON object: name, path in the workspace, media type, size.
    attachment TEXT    NOT NULL,
    at         INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX outbox_page ON outbox (chat_id, seq) WHERE channel = 'page';
