-- Turns whose outputs in files are to be removed, a row each: many may be struck at once.
CREATE TABLE forgotten_outputs (
    turn TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;

INSERT OR IGNORE INTO forgotten_outputs
SELECT value FROM json_each((SELECT value FROM meta WHERE key = 'forgotten_outputs' AND json_valid(value)));

DELETE FROM meta WHERE key = 'forgotten_outputs';

-- What a turn that is forgotten ran and gave to sub-agents is found by these.
CREATE INDEX spawns_turn ON spawns (turn);
CREATE INDEX processes_turn ON processes (turn);
