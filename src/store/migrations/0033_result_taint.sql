-- The sources of the last result, as a JSON list of names; NULL for a result of an earlier version, whose sources are unknown.
ALTER TABLE jobs ADD COLUMN result_taint TEXT;
