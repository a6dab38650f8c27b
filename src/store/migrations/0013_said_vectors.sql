-- What people said, as vectors of the same model as those of memories, by the id of `said`.
CREATE TABLE said_vectors (
    said   INTEGER PRIMARY KEY,
    hash   BLOB NOT NULL,
    vector BLOB NOT NULL
);
CREATE INDEX said_vectors_hash ON said_vectors (hash);

CREATE TRIGGER said_deleted_vector AFTER DELETE ON said BEGIN
    DELETE FROM said_vectors WHERE said = old.id;
END;
