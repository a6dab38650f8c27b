-- How often messages of the session's log were changed or deleted.
ALTER TABLE sessions ADD COLUMN edits INTEGER NOT NULL DEFAULT 0;
