-- The tools that the model of a conversation has found: from then on their specifications are in its requests.
CREATE TABLE session_tools (
    session TEXT    NOT NULL,
    epoch   INTEGER NOT NULL,
    tool    TEXT    NOT NULL,
    PRIMARY KEY (session, epoch, tool)
);
