-- The words that memories and messages are found by. All of it is made from other tables and can be made anew, so it is
-- taken over into no mended database. What a term is, is `memory`'s: terms stand here with blanks between them.

-- By a memory's id. What is deleted leaves nothing behind.
CREATE VIRTUAL TABLE memory_words USING fts5(words, detail = none, tokenize = 'ascii');
INSERT INTO memory_words (memory_words, rank) VALUES ('secure-delete', 1);

-- By an id of `said`. The words themselves are not kept, for the messages have them.
CREATE VIRTUAL TABLE said_words USING fts5(words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

-- The messages that can be found.
CREATE TABLE said (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    -- Whose conversation it was; empty is nobody's.
    owner   TEXT    NOT NULL,
    -- Who said it, where others write there, too.
    speaker TEXT    NOT NULL,
    UNIQUE (session, seq)
);

-- Ids that are gone from `said` and not yet from `said_words`.
CREATE TABLE unsaid (id INTEGER PRIMARY KEY);
CREATE TRIGGER messages_unsaid AFTER DELETE ON messages BEGIN
    INSERT OR IGNORE INTO unsaid SELECT id FROM said WHERE session = old.session AND seq = old.seq;
    DELETE FROM said WHERE session = old.session AND seq = old.seq;
END;

-- Whose messages there are.
CREATE TABLE said_owners (owner TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;

-- How far the log of a session is in `said`: below this seq.
CREATE TABLE indexed (
    session TEXT    NOT NULL PRIMARY KEY,
    seq     INTEGER NOT NULL
) WITHOUT ROWID;
