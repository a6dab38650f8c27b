-- Who started a turn and what is set for it stood as keys among the channel's metadata; it becomes a column of its own
-- (`TurnOrigin`, JSON), and what a delivered message is about becomes `context` in its body.

ALTER TABLE inbox ADD COLUMN origin TEXT NOT NULL DEFAULT '{}';
ALTER TABLE processes ADD COLUMN origin TEXT NOT NULL DEFAULT '{}';

-- Old metadata, by what holds it.
CREATE TEMP TABLE old_metadata (kind TEXT NOT NULL, id TEXT NOT NULL, old TEXT NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
INSERT INTO old_metadata SELECT 'inbox', id, metadata FROM inbox WHERE metadata <> '{}' AND json_valid(metadata);
INSERT INTO old_metadata SELECT 'processes', id, metadata FROM processes WHERE metadata <> '{}' AND json_valid(metadata);
INSERT INTO old_metadata SELECT 'jobs', id, body -> '$.target.metadata' FROM jobs
    WHERE json_valid(body) AND (body -> '$.target.metadata') IS NOT NULL;
-- What a sub-agent's report needs.
INSERT INTO old_metadata SELECT 'report:' || kind, id, old -> '$.errand.metadata' FROM old_metadata
    WHERE (old -> '$.errand.metadata') IS NOT NULL;

-- RFC 7396: applying a patch to {} leaves out whatever is null.
CREATE TEMP VIEW new_origin AS
    SELECT kind, id,
        json_patch('{}', json_object(
            'follow_ups', old -> '$.links',
            'on_behalf_of', old -> '$.on_behalf_of',
            'settings', json_patch(coalesce(old -> '$.turn', '{}'), json_object('requested_model', old -> '$.model')),
            'reply', json_object(
                'job', old -> '$.job', 'subject', old -> '$.subject', 'is_picked_up', old -> '$.pickup'))) AS origin,
        json_remove(old, '$.errand', '$.told', '$.turn', '$.links', '$.on_behalf_of', '$.model', '$.job', '$.subject',
            '$.pickup') AS metadata,
        CASE
            WHEN (old -> '$.told') IS NOT NULL THEN json_set(old -> '$.told', '$.kind', 'note')
            ELSE old -> '$.errand'
        END AS cause
    FROM old_metadata;
CREATE TEMP TABLE migrated AS
    SELECT new.kind, new.id, new.metadata,
        CASE
            WHEN new.cause IS NULL THEN replace(new.origin, '{"settings":{},"reply":{}}', '{}')
            WHEN report.id IS NULL THEN json_set(new.origin, '$.cause', json(new.cause))
            ELSE json_set(new.origin, '$.cause',
                json_set(new.cause, '$.metadata', json(report.metadata), '$.report', json(report.origin)))
        END AS origin
    FROM new_origin AS new LEFT JOIN new_origin AS report ON report.kind = 'report:' || new.kind AND report.id = new.id;
CREATE UNIQUE INDEX temp.migrated_key ON migrated (kind, id);

UPDATE inbox SET metadata = new.metadata, origin = new.origin
    FROM migrated AS new WHERE new.kind = 'inbox' AND new.id = inbox.id;
UPDATE processes SET metadata = new.metadata, origin = new.origin
    FROM migrated AS new WHERE new.kind = 'processes' AND new.id = processes.id;
UPDATE jobs SET body = json_set(body, '$.target.metadata', json(new.metadata), '$.target.origin', json(new.origin))
    FROM migrated AS new WHERE new.kind = 'jobs' AND new.id = jobs.id;

-- What became of what was said, and of the reply's own words, stays; the rest was of the message that it answers.
UPDATE outbox SET body = json_set(
        json_remove(body, '$.metadata.errand', '$.metadata.told', '$.metadata.turn', '$.metadata.links',
            '$.metadata.on_behalf_of', '$.metadata.model', '$.metadata.job', '$.metadata.subject', '$.metadata.pickup',
            '$.metadata.notice', '$.metadata.all_terminals'),
        '$.context', json_patch('{}', json_object(
            'job', body -> '$.metadata.job',
            'subject', body -> '$.metadata.subject',
            'notice', body -> '$.metadata.notice',
            'is_for_all_terminals', body -> '$.metadata.all_terminals',
            'is_picked_up', body -> '$.metadata.pickup')))
    WHERE json_valid(body) AND (body -> '$.metadata') IS NOT NULL;

DROP TABLE migrated;
DROP VIEW new_origin;
DROP TABLE old_metadata;
