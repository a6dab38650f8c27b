-- What memories mean, as numbers of the model that `meta` names under 'vectors'; made of texts, and made anew from them.
CREATE TABLE memory_vectors (
    memory INTEGER PRIMARY KEY,
    -- The beginning of the text's SHA-256: no text is asked for twice.
    hash   BLOB NOT NULL,
    -- f32, little endian, of length 1; empty where the model takes no such text.
    vector BLOB NOT NULL
);
CREATE INDEX memory_vectors_hash ON memory_vectors (hash);

-- What is forgotten or replaced is found no more, whoever writes it.
CREATE TRIGGER memories_deleted_vector AFTER DELETE ON memories BEGIN
    DELETE FROM memory_vectors WHERE memory = old.id;
END;
CREATE TRIGGER memories_replaced_vector AFTER UPDATE OF replaced_by ON memories WHEN new.replaced_by IS NOT NULL BEGIN
    DELETE FROM memory_vectors WHERE memory = old.id;
END;
