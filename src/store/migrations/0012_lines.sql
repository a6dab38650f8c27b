-- What of the memory stands in MEMORY.md, as it was last read or written: so an edit by hand is told from what is new in the
-- store. The text stands in `memories` alone.
CREATE TABLE memory_lines (
    memory     INTEGER PRIMARY KEY,
    -- Below the heading of what is private.
    is_private INTEGER NOT NULL,
    -- Of the text of the bullet.
    hash       TEXT    NOT NULL,
    place      INTEGER NOT NULL
);
