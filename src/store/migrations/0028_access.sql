-- A revoked token stays known by its name, so that a new one of that name does not get its chats unasked. An upload that no message
-- names goes after a day.

ALTER TABLE access_tokens ADD COLUMN revoked_at INTEGER;

ALTER TABLE page_files ADD COLUMN used_at INTEGER;
UPDATE page_files SET used_at = at;
