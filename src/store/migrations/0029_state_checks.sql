-- The same states, without lists: for a list of more than two values, SQLite builds a temporary table at each write of a row.
-- Changing a constraint in the schema table: <https://www.sqlite.org/lang_altertable.html#otheralter>

PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(sql, 'state IN (''queued'', ''running'', ''waiting'', ''done'', ''dead'')',
    'state = ''queued'' OR state = ''running'' OR state = ''waiting'' OR state = ''done'' OR state = ''dead''')
WHERE type = 'table' AND name = 'inbox';

UPDATE sqlite_schema SET sql = replace(sql, 'state IN (''pending'', ''sending'', ''sent'', ''unknown'', ''dead'')',
    'state = ''pending'' OR state = ''sending'' OR state = ''sent'' OR state = ''unknown'' OR state = ''dead''')
WHERE type = 'table' AND name = 'outbox';

PRAGMA writable_schema = RESET;
