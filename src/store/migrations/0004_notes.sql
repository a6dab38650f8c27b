-- What channels keep for themselves: a mail's thread, how often somebody wrote within the hour.
CREATE TABLE notes (
    channel    TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (channel, kind, key)
) WITHOUT ROWID;
-- What is older than its kind is kept is found without reading the rest.
CREATE INDEX notes_age ON notes (channel, kind, updated_at);
CREATE INDEX skipped_at ON skipped (at);
