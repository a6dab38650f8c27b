-- Bullets of MEMORY.md stand below the name of whose they are.
CREATE TABLE lines_by_owner (
    memory     INTEGER PRIMARY KEY,
    -- Whose section it stood in.
    owner      TEXT    NOT NULL,
    -- Of the text of the bullet.
    hash       TEXT    NOT NULL,
    place      INTEGER NOT NULL
);
INSERT INTO lines_by_owner (memory, owner, hash, place)
    SELECT memory, CASE WHEN is_private THEN 'owner' ELSE 'everyone' END, hash, place FROM memory_lines;
DROP TABLE memory_lines;
ALTER TABLE lines_by_owner RENAME TO memory_lines;

-- Summaries are looked for by whose they are and by their session, in all states.
CREATE INDEX memories_summaries ON memories (owner, id) WHERE kind = 'summary';
CREATE INDEX memories_of_sessions ON memories (name, id) WHERE kind = 'summary';
CREATE INDEX session_memory_summaries ON session_memory (summary) WHERE summary IS NOT NULL;

-- Forgetting, forking and searching look for the messages of one turn.
CREATE INDEX messages_turn ON messages (session, turn);
