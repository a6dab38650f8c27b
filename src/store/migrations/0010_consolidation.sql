-- How many messages before the cursor are given as they were said though the summary tells them too: those that an idle
-- conversation ended with.
ALTER TABLE session_memory ADD COLUMN overlap INTEGER NOT NULL DEFAULT 0;
