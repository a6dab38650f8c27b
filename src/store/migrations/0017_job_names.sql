-- The history of jobs by their name, the newest first.

CREATE INDEX job_runs_name ON job_runs (name, seq);
