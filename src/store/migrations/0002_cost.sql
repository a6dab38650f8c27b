-- What each model of a turn used and cost: a turn that went over to another model has a row for each. And the names that
-- people give to points of their conversations.

CREATE TABLE usage_by_model (
    turn          TEXT    NOT NULL,
    -- PROVIDER/MODEL.
    model         TEXT    NOT NULL,
    session       TEXT    NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    -- In millionths of the currency, at the price of that time; null where none was known.
    cost          INTEGER,
    currency      TEXT,
    at            INTEGER NOT NULL,
    provider      TEXT    NOT NULL GENERATED ALWAYS AS (substr(model, 1, instr(model || '/', '/') - 1)) VIRTUAL,
    PRIMARY KEY (turn, model)
) WITHOUT ROWID;
INSERT INTO usage_by_model (turn, model, session, input_tokens, output_tokens, cached_tokens, at)
    SELECT turn, model, session, input_tokens, output_tokens, cached_tokens, at FROM usage;
DROP TABLE usage;
ALTER TABLE usage_by_model RENAME TO usage;
CREATE INDEX usage_session ON usage (session, at);
CREATE INDEX usage_at ON usage (at);

CREATE TABLE point_names (
    session TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    turn    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) WITHOUT ROWID;
