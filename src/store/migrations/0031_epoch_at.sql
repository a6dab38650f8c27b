-- When this epoch of the session began, in UTC milliseconds; 0 for the first epoch. Messages to the chat before it belong to an earlier
-- one. For the epochs of older stores, the end of the last turn before them counts.
ALTER TABLE sessions ADD COLUMN epoch_at INTEGER NOT NULL DEFAULT 0;

UPDATE sessions SET epoch_at = ifnull((
    SELECT 1 + max(m.at, ifnull((SELECT max(o.created_at) FROM outbox o WHERE o.turn = m.turn), 0))
    FROM messages m WHERE m.session = sessions.session AND m.seq < sessions.first_seq ORDER BY m.seq DESC LIMIT 1), 0)
WHERE first_seq > 0;
