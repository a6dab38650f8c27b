-- When a session was last used by somebody, where what it was told without being asked came later; null is updated_at.
ALTER TABLE sessions ADD COLUMN used_at INTEGER;

-- By which [identities] it was last looked whether a session of several is one person's.
ALTER TABLE sessions ADD COLUMN read_by TEXT;
