-- Standard names for tables, columns and keys. Only the schema and the keys of `meta` change: no table is rewritten. No table or index
-- moves in the file, because the repair of a database without its first page expects them where a new database has them.

-- These triggers are created again below, with the new names.
DROP TRIGGER messages_unsaid;
DROP TRIGGER said_deleted_vector;
DROP TRIGGER said_vectors_deleted_code;
DROP TRIGGER memories_given_code;

ALTER TABLE said RENAME TO indexed_messages;
ALTER TABLE said_words RENAME TO message_words;
ALTER TABLE said_owners RENAME TO message_owners;
ALTER TABLE said_codes RENAME TO message_codes;
ALTER TABLE said_vectors RENAME TO message_vectors;
ALTER TABLE message_vectors RENAME COLUMN said TO message;
ALTER TABLE unsaid RENAME TO index_deletions;
ALTER TABLE indexed RENAME TO index_progress;
ALTER TABLE memory_codes RENAME COLUMN held TO live_count;
ALTER TABLE message_codes RENAME COLUMN held TO live_count;

ALTER TABLE skipped RENAME TO skipped_messages;
ALTER TABLE point_names RENAME TO checkpoint_names;
ALTER TABLE jobs RENAME COLUMN paused TO pause_reason;
ALTER TABLE job_runs RENAME COLUMN ended TO ended_at;
ALTER TABLE processes RENAME COLUMN birth TO start_identity;
ALTER TABLE processes RENAME COLUMN ending TO outcome;
ALTER TABLE page_logins RENAME COLUMN seal TO token_binding;
ALTER TABLE session_memory RENAME COLUMN due TO due_reason;
ALTER TABLE sessions RENAME COLUMN read_by TO identities_digest;

-- SQLite cannot rename an index, and creating one reads the whole table:
-- <https://www.sqlite.org/lang_altertable.html#otheralter>
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET name = new.name, sql = replace(sqlite_schema.sql, 'INDEX ' || old || ' ', 'INDEX ' || new.name || ' ')
FROM (
    SELECT 'said_codes_owner' AS old, 'message_codes_owner' AS name
    UNION ALL SELECT 'said_vectors_hash', 'message_vectors_hash'
    UNION ALL SELECT 'said_vectors_place', 'message_vectors_place'
    UNION ALL SELECT 'memories_named', 'memories_name'
    UNION ALL SELECT 'sessions_used', 'sessions_updated_at'
    UNION ALL SELECT 'skipped_at', 'skipped_messages_at'
) AS new WHERE sqlite_schema.type = 'index' AND sqlite_schema.name = old;
PRAGMA writable_schema = RESET;

CREATE TRIGGER messages_deleted_index AFTER DELETE ON messages BEGIN
    INSERT OR IGNORE INTO index_deletions SELECT id FROM indexed_messages WHERE session = old.session AND seq = old.seq;
    DELETE FROM indexed_messages WHERE session = old.session AND seq = old.seq;
END;
CREATE TRIGGER indexed_messages_deleted_vector AFTER DELETE ON indexed_messages BEGIN
    DELETE FROM message_vectors WHERE message = old.id;
END;
CREATE TRIGGER message_vectors_deleted_code AFTER DELETE ON message_vectors WHEN old.place > 0 BEGIN
    UPDATE message_codes SET live_count = live_count - 1, codes = CAST(
        substr(codes, 1, old.place % 256 * 72) || zeroblob(72) || substr(codes, old.place % 256 * 72 + 73) AS BLOB)
    WHERE id = old.place / 256;
    DELETE FROM message_codes WHERE id = old.place / 256 AND live_count <= 0;
END;
CREATE TRIGGER memories_moved_code AFTER UPDATE OF owner ON memories WHEN new.owner <> old.owner BEGIN
    UPDATE memory_vectors SET place = NULL WHERE memory = old.id;
END;

UPDATE OR REPLACE meta SET key = new.name
FROM (
    SELECT 'alone' AS old, 'isolated_turn' AS name
    UNION ALL SELECT 'words', 'index_version'
    UNION ALL SELECT 'words_memories', 'index_next_memory'
    UNION ALL SELECT 'words_removed', 'index_purge'
    UNION ALL SELECT 'forgets', 'forget_count'
    UNION ALL SELECT 'vectors_said', 'vectors_messages'
) AS new WHERE meta.key = old;
