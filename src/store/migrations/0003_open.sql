-- The same rows in other words: for a list of more than two values SQLite makes a table anew, here at each write of a row.

DROP INDEX inbox_open;
CREATE INDEX inbox_open ON inbox (session, seq) WHERE state NOT IN ('done', 'dead');
