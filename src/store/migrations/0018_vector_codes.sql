-- Short codes of vectors, many in one row: what may be near is found without reading the vectors. Made of them in the same
-- commit, and made anew from them where one has no place.
CREATE TABLE memory_codes (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT    NOT NULL,
    -- How many of them are still there.
    held  INTEGER NOT NULL,
    -- 256 at most, of 72 bytes each: the id, little endian, and the code; zeros where one is gone.
    codes BLOB    NOT NULL
);
CREATE INDEX memory_codes_owner ON memory_codes (owner);

CREATE TABLE said_codes (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT    NOT NULL,
    held  INTEGER NOT NULL,
    codes BLOB    NOT NULL
);
CREATE INDEX said_codes_owner ON said_codes (owner);

-- Where a vector's code stands: the row's id * 256 and its place in it; 0 is nowhere, for an empty vector has none.
ALTER TABLE memory_vectors ADD COLUMN place INTEGER;
ALTER TABLE said_vectors ADD COLUMN place INTEGER;
CREATE INDEX memory_vectors_place ON memory_vectors (place);
CREATE INDEX said_vectors_place ON said_vectors (place);

-- A code goes with its vector, and when it gets another place.
CREATE TRIGGER memory_vectors_deleted_code AFTER DELETE ON memory_vectors WHEN old.place > 0 BEGIN
    UPDATE memory_codes SET held = held - 1, codes = CAST(
        substr(codes, 1, old.place % 256 * 72) || zeroblob(72) || substr(codes, old.place % 256 * 72 + 73) AS BLOB)
    WHERE id = old.place / 256;
    DELETE FROM memory_codes WHERE id = old.place / 256 AND held <= 0;
END;
CREATE TRIGGER memory_vectors_moved_code AFTER UPDATE OF place ON memory_vectors WHEN old.place > 0 BEGIN
    UPDATE memory_codes SET held = held - 1, codes = CAST(
        substr(codes, 1, old.place % 256 * 72) || zeroblob(72) || substr(codes, old.place % 256 * 72 + 73) AS BLOB)
    WHERE id = old.place / 256;
    DELETE FROM memory_codes WHERE id = old.place / 256 AND held <= 0;
END;
CREATE TRIGGER said_vectors_deleted_code AFTER DELETE ON said_vectors WHEN old.place > 0 BEGIN
    UPDATE said_codes SET held = held - 1, codes = CAST(
        substr(codes, 1, old.place % 256 * 72) || zeroblob(72) || substr(codes, old.place % 256 * 72 + 73) AS BLOB)
    WHERE id = old.place / 256;
    DELETE FROM said_codes WHERE id = old.place / 256 AND held <= 0;
END;

-- Codes stand by their owners.
CREATE TRIGGER memories_given_code AFTER UPDATE OF owner ON memories WHEN new.owner <> old.owner BEGIN
    UPDATE memory_vectors SET place = NULL WHERE memory = old.id;
END;
