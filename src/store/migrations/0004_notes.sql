-- What channels keep for themselves: a mail's thread, how often somebody wrote within the hour.
CREATE TABLE notes (
    channel    TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (channel, kind, key)
) WITHOUT ROWID;
