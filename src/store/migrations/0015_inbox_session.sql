-- The newest messages of one session, without reading those of all others.
CREATE INDEX inbox_session ON inbox (session, seq);
