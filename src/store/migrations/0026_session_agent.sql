-- The agent that /agent has chosen for a session; null is that of its chat.
ALTER TABLE sessions ADD COLUMN agent TEXT;
