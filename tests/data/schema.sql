-- user_version 34

-- index approvals_pending on approvals
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE state = 'pending'

-- index inbox_dead on inbox
CREATE INDEX inbox_dead ON inbox (seq) WHERE state = 'dead'

-- index inbox_open on inbox
CREATE INDEX inbox_open ON inbox (session, seq) WHERE state NOT IN ('done', 'dead')

-- index inbox_session on inbox
CREATE INDEX inbox_session ON inbox (session, seq)

-- index inbox_turn on inbox
CREATE INDEX inbox_turn ON inbox (turn)

-- index job_runs_name on job_runs
CREATE INDEX job_runs_name ON job_runs (name, seq)

-- index job_runs_started on job_runs
CREATE INDEX job_runs_started ON job_runs (job) WHERE outcome = 'started'

-- index job_runs_turn on job_runs
CREATE INDEX job_runs_turn ON job_runs (turn) WHERE turn IS NOT NULL

-- index jobs_due on jobs
CREATE INDEX jobs_due ON jobs (next_at) WHERE enabled = 1 AND next_at IS NOT NULL

-- index jobs_name on jobs
CREATE INDEX jobs_name ON jobs (name)

-- index memories_current on memories
CREATE INDEX memories_current ON memories (owner, kind, id) WHERE replaced_by IS NULL

-- index memories_name on memories
CREATE INDEX memories_name ON memories (owner, kind, name) WHERE replaced_by IS NULL AND name <> ''

-- index memories_of_sessions on memories
CREATE INDEX memories_of_sessions ON memories (name, id) WHERE kind = 'summary'

-- index memories_replaced on memories
CREATE INDEX memories_replaced ON memories (replaced_by) WHERE replaced_by IS NOT NULL

-- index memories_source on memories
CREATE INDEX memories_source ON memories (session, seq) WHERE session IS NOT NULL

-- index memories_summaries on memories
CREATE INDEX memories_summaries ON memories (owner, id) WHERE kind = 'summary'

-- index memory_codes_owner on memory_codes
CREATE INDEX memory_codes_owner ON memory_codes (owner)

-- index memory_vectors_hash on memory_vectors
CREATE INDEX memory_vectors_hash ON memory_vectors (hash)

-- index memory_vectors_place on memory_vectors
CREATE INDEX memory_vectors_place ON memory_vectors (place)

-- index message_codes_owner on message_codes
CREATE INDEX message_codes_owner ON "message_codes" (owner)

-- index message_vectors_hash on message_vectors
CREATE INDEX message_vectors_hash ON "message_vectors" (hash)

-- index message_vectors_place on message_vectors
CREATE INDEX message_vectors_place ON "message_vectors" (place)

-- index messages_turn on messages
CREATE INDEX messages_turn ON messages (turn)

-- index notes_age on notes
CREATE INDEX notes_age ON notes (channel, kind, updated_at)

-- index outbox_open on outbox
CREATE INDEX outbox_open ON outbox (channel, seq) WHERE state IN ('pending', 'sending')

-- index outbox_page on outbox
CREATE INDEX outbox_page ON outbox (chat_id, seq) WHERE channel = 'page'

-- index outbox_stuck on outbox
CREATE INDEX outbox_stuck ON outbox (seq) WHERE state IN ('unknown', 'dead')

-- index processes_open on processes
CREATE INDEX processes_open ON processes (started_at) WHERE ended_at IS NULL

-- index processes_turn on processes
CREATE INDEX processes_turn ON processes (turn)

-- index questions_pending on questions
CREATE UNIQUE INDEX questions_pending ON questions (session) WHERE state = 'pending'

-- index session_memory_due on session_memory
CREATE INDEX session_memory_due ON session_memory (retry_at) WHERE due_reason IS NOT NULL

-- index session_memory_snapshot on session_memory
CREATE INDEX session_memory_snapshot ON session_memory (snapshot) WHERE snapshot IS NOT NULL

-- index session_memory_summaries on session_memory
CREATE INDEX session_memory_summaries ON session_memory (summary) WHERE summary IS NOT NULL

-- index sessions_updated_at on sessions
CREATE INDEX sessions_updated_at ON sessions (updated_at)

-- index skipped_messages_at on skipped_messages
CREATE INDEX skipped_messages_at ON "skipped_messages" (at)

-- index spawns_session on spawns
CREATE INDEX spawns_session ON spawns (session)

-- index spawns_turn on spawns
CREATE INDEX spawns_turn ON spawns (turn)

-- index sqlite_autoindex_access_tokens_2 on access_tokens


-- index sqlite_autoindex_approvals_1 on approvals


-- index sqlite_autoindex_approvals_2 on approvals


-- index sqlite_autoindex_approvals_3 on approvals


-- index sqlite_autoindex_inbox_1 on inbox


-- index sqlite_autoindex_inbox_2 on inbox


-- index sqlite_autoindex_indexed_messages_1 on indexed_messages


-- index sqlite_autoindex_job_runs_1 on job_runs


-- index sqlite_autoindex_outbox_1 on outbox


-- index sqlite_autoindex_outbox_2 on outbox


-- index sqlite_autoindex_questions_1 on questions


-- index sqlite_autoindex_session_taints_1 on session_taints


-- index sqlite_autoindex_session_tools_1 on session_tools


-- index usage_at on usage
CREATE INDEX usage_at ON usage (at)

-- index usage_session on usage
CREATE INDEX usage_session ON usage (session, at)

-- table access_tokens on access_tokens
CREATE TABLE access_tokens (
    name       TEXT    NOT NULL PRIMARY KEY,
    -- The SHA-256 of the token.
    hash       BLOB    NOT NULL UNIQUE,
    -- 'admin', 'chat' or 'read'.
    scope      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    -- When it was last used, to the hour.
    used_at    INTEGER
, revoked_at INTEGER) WITHOUT ROWID

-- table approvals on approvals
CREATE TABLE approvals (
    id         TEXT    NOT NULL PRIMARY KEY,
    code       TEXT    NOT NULL UNIQUE,
    turn       TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    tool       TEXT    NOT NULL,
    arguments  TEXT    NOT NULL,
    taint      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    reason     TEXT    NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at   INTEGER,
    for_session INTEGER NOT NULL DEFAULT 0,
    UNIQUE (turn, call_id)
)

-- table checkpoint_names on checkpoint_names
CREATE TABLE "checkpoint_names" (
    session TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    turn    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) WITHOUT ROWID

-- table cursors on cursors
CREATE TABLE cursors (
    channel    TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    position   TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (channel, source)
) WITHOUT ROWID

-- table forgotten_outputs on forgotten_outputs
CREATE TABLE forgotten_outputs (
    turn TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID

-- table inbox on inbox
CREATE TABLE inbox (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT    NOT NULL UNIQUE,
    channel     TEXT    NOT NULL,
    external_id TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    chat_id     TEXT    NOT NULL,
    sender      TEXT    NOT NULL,
    trust       TEXT    NOT NULL,
    content     TEXT    NOT NULL,
    attachments TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    turn        TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state = 'queued' OR state = 'running' OR state = 'waiting' OR state = 'done' OR state = 'dead'),
    stalled     INTEGER NOT NULL DEFAULT 0,
    cancel      INTEGER NOT NULL DEFAULT 0, origin TEXT NOT NULL DEFAULT '{}',
    UNIQUE (channel, external_id)
)

-- table index_deletions on index_deletions
CREATE TABLE "index_deletions" (id INTEGER PRIMARY KEY)

-- table index_progress on index_progress
CREATE TABLE "index_progress" (
    session TEXT    NOT NULL PRIMARY KEY,
    seq     INTEGER NOT NULL
) WITHOUT ROWID

-- table indexed_messages on indexed_messages
CREATE TABLE "indexed_messages" (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    -- Whose conversation it was; empty is nobody's.
    owner   TEXT    NOT NULL,
    -- Who said it, where others write there, too.
    speaker TEXT    NOT NULL,
    UNIQUE (session, seq)
)

-- table job_runs on job_runs
CREATE TABLE job_runs (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    job     TEXT    NOT NULL,
    -- The job's, which may be gone.
    name    TEXT    NOT NULL,
    -- The slot; for a run by hand the moment.
    due     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    -- The inbox row that answers it; null when none was made.
    turn    TEXT,
    -- What was decided when the slot came, and when its turn ended: 'started', 'ok', 'error', 'skipped', 'missed'.
    outcome TEXT    NOT NULL CHECK (outcome IN ('started', 'ok', 'error', 'skipped', 'missed')),
    -- Why, in words: an error's code, what it was skipped for.
    reason  TEXT,
    ended_at   INTEGER,
    -- Whether the run's answer was for the chat: 0 when it was kept.
    sends   INTEGER NOT NULL DEFAULT 1,
    -- As it was last seen, for when the outbox row is gone.
    delivery TEXT,
    UNIQUE (job, due)
)

-- table jobs on jobs
CREATE TABLE jobs (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    -- What it does and when, as JSON. A row that cannot be read harms no other.
    body       TEXT    NOT NULL,
    enabled    INTEGER NOT NULL DEFAULT 1,
    -- Its next slot; null when it has none.
    next_at    INTEGER,
    -- In a row, up to now.
    failures   INTEGER NOT NULL DEFAULT 0,
    -- Why it was disabled, when daoyou did it.
    pause_reason     TEXT,
    -- What the last run that went well answered, cut.
    result     TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
, result_taint TEXT) WITHOUT ROWID

-- table memories on memories
CREATE TABLE memories (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Whose it is: 'owner', 'everyone', 'name:NAME' of [identities], or 'sender:CHANNEL:SENDER'.
    owner       TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('fact', 'preference', 'case', 'task', 'summary')),
    -- A preference's key, a case's title, a summary's session; else empty.
    name        TEXT    NOT NULL DEFAULT '',
    text        TEXT    NOT NULL,
    -- What else belongs to its kind, as JSON.
    detail      TEXT    NOT NULL DEFAULT '{}',
    origin      TEXT    NOT NULL CHECK (origin IN ('told', 'noticed', 'by_hand', 'command', 'imported')),
    -- The message that it comes from, if one.
    session     TEXT,
    seq         INTEGER,
    turn        TEXT,
    confidence  REAL    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- When it was last given to a model, and how often.
    used_at     INTEGER,
    uses        INTEGER NOT NULL DEFAULT 0,
    -- What is known instead; it stays as history until it is forgotten.
    replaced_by INTEGER,
    replaced_at INTEGER
)

-- table memory_codes on memory_codes
CREATE TABLE memory_codes (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT    NOT NULL,
    -- How many of them are still there.
    live_count  INTEGER NOT NULL,
    -- 256 at most, of 72 bytes each: the id, little endian, and the code; zeros where one is gone.
    codes BLOB    NOT NULL
)

-- table memory_lines on memory_lines
CREATE TABLE "memory_lines" (
    memory     INTEGER PRIMARY KEY,
    -- Whose section it stood in.
    owner      TEXT    NOT NULL,
    -- Of the text of the bullet.
    hash       TEXT    NOT NULL,
    place      INTEGER NOT NULL
)

-- table memory_vectors on memory_vectors
CREATE TABLE memory_vectors (
    memory INTEGER PRIMARY KEY,
    -- The beginning of the text's SHA-256: no text is asked for twice.
    hash   BLOB NOT NULL,
    -- f32, little endian, of length 1; empty where the model takes no such text.
    vector BLOB NOT NULL
, place INTEGER)

-- table memory_words on memory_words
CREATE VIRTUAL TABLE memory_words USING fts5(words, detail = none, tokenize = 'ascii')

-- table memory_words_config on memory_words_config
CREATE TABLE 'memory_words_config'(k PRIMARY KEY, v) WITHOUT ROWID

-- table memory_words_content on memory_words_content
CREATE TABLE 'memory_words_content'(id INTEGER PRIMARY KEY, c0)

-- table memory_words_data on memory_words_data
CREATE TABLE 'memory_words_data'(id INTEGER PRIMARY KEY, block BLOB)

-- table memory_words_docsize on memory_words_docsize
CREATE TABLE 'memory_words_docsize'(id INTEGER PRIMARY KEY, sz BLOB)

-- table memory_words_idx on memory_words_idx
CREATE TABLE 'memory_words_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID

-- table message_codes on message_codes
CREATE TABLE "message_codes" (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT    NOT NULL,
    live_count  INTEGER NOT NULL,
    codes BLOB    NOT NULL
)

-- table message_owners on message_owners
CREATE TABLE "message_owners" (owner TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID

-- table message_vectors on message_vectors
CREATE TABLE "message_vectors" (
    message   INTEGER PRIMARY KEY,
    hash   BLOB NOT NULL,
    vector BLOB NOT NULL
, place INTEGER)

-- table message_words on message_words
CREATE VIRTUAL TABLE "message_words" USING fts5(words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii')

-- table message_words_config on message_words_config
CREATE TABLE "message_words_config"(k PRIMARY KEY, v) WITHOUT ROWID

-- table message_words_data on message_words_data
CREATE TABLE "message_words_data"(id INTEGER PRIMARY KEY, block BLOB)

-- table message_words_docsize on message_words_docsize
CREATE TABLE "message_words_docsize"(id INTEGER PRIMARY KEY, sz BLOB, origin INTEGER)

-- table message_words_idx on message_words_idx
CREATE TABLE "message_words_idx"(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID

-- table messages on messages
CREATE TABLE messages (
    session TEXT    NOT NULL,
    epoch   INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    role    TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    turn    TEXT    NOT NULL,
    at      INTEGER NOT NULL, digest BLOB,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID

-- table meta on meta
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID

-- table notes on notes
CREATE TABLE notes (
    channel    TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (channel, kind, key)
) WITHOUT ROWID

-- table outbox on outbox
CREATE TABLE outbox (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT    NOT NULL UNIQUE,
    turn        TEXT    NOT NULL,
    slot        TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    channel     TEXT    NOT NULL,
    chat_id     TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state = 'pending' OR state = 'sending' OR state = 'sent' OR state = 'unknown' OR state = 'dead'),
    tries       INTEGER NOT NULL DEFAULT 0,
    next_at     INTEGER NOT NULL DEFAULT 0,
    provider_id TEXT,
    last_error  TEXT,
    -- What a delivery that was cut off gets: 'same_id', 'again' or 'never'; null until it is first tried.
    resend      TEXT,
    created_at  INTEGER NOT NULL,
    UNIQUE (turn, slot)
)

-- table page_files on page_files
CREATE TABLE page_files (
    id         TEXT    NOT NULL PRIMARY KEY,
    -- The token that uploaded it; empty is the owner.
    uploader   TEXT    NOT NULL,
    -- A JSON object: name, path in the workspace, media type, size.
    attachment TEXT    NOT NULL,
    at         INTEGER NOT NULL
, used_at INTEGER) WITHOUT ROWID

-- table page_logins on page_logins
CREATE TABLE page_logins (
    -- The SHA-256 of the id in the cookie.
    hash       BLOB    NOT NULL PRIMARY KEY,
    -- The named token of the login; null is the token of the gateway.
    token      TEXT,
    -- The SHA-256 of the id and the token of the login: a replaced token ends it.
    token_binding       BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL
) WITHOUT ROWID

-- table processes on processes
CREATE TABLE processes (
    id         TEXT    NOT NULL PRIMARY KEY,
    -- The turn that started it, and what the announcement of its end needs.
    turn       TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    channel    TEXT    NOT NULL,
    chat_id    TEXT    NOT NULL,
    trust      TEXT    NOT NULL,
    metadata   TEXT    NOT NULL,
    label      TEXT,
    -- Its beginning, on one line.
    command    TEXT    NOT NULL,
    -- It outlives the gateway.
    detached   INTEGER NOT NULL,
    -- The shell's, and when that was born; null until it runs.
    pid        INTEGER,
    start_identity      TEXT,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    -- How, in words.
    outcome     TEXT
, origin TEXT NOT NULL DEFAULT '{}') WITHOUT ROWID

-- table questions on questions
CREATE TABLE questions (
    id         TEXT    NOT NULL PRIMARY KEY,
    turn       TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    channel    TEXT    NOT NULL,
    sender     TEXT    NOT NULL,
    trust      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    answer     TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at   INTEGER
)

-- table session_memory on session_memory
CREATE TABLE session_memory (
    session    TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    -- Messages below this seq are told by the summary.
    cursor     INTEGER NOT NULL DEFAULT 0,
    -- The memory of kind 'summary' that tells them.
    summary    INTEGER,
    -- What of the long-term memory its prompt holds: the snapshot's hash; null when none was taken yet.
    snapshot   TEXT,
    -- Why the rest of it is to be consolidated though it is short: 'new' (it was closed by /new), 'idle'; else null.
    due_reason        TEXT,
    -- Consolidations that failed in a row, and when the next may be tried.
    failures   INTEGER NOT NULL DEFAULT 0,
    retry_at   INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL, overlap INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session, epoch)
) WITHOUT ROWID

-- table session_taints on session_taints
CREATE TABLE session_taints (
    session TEXT    NOT NULL,
    epoch   INTEGER NOT NULL,
    source  TEXT    NOT NULL,
    PRIMARY KEY (session, epoch, source)
)

-- table session_tools on session_tools
CREATE TABLE session_tools (
    session TEXT    NOT NULL,
    epoch   INTEGER NOT NULL,
    tool    TEXT    NOT NULL,
    PRIMARY KEY (session, epoch, tool)
)

-- table sessions on sessions
CREATE TABLE sessions (
    session    TEXT    NOT NULL PRIMARY KEY,
    epoch      INTEGER NOT NULL DEFAULT 0,
    -- The first seq of this epoch, and the next one to be given.
    first_seq  INTEGER NOT NULL DEFAULT 0,
    next_seq   INTEGER NOT NULL DEFAULT 0,
    -- Chosen by /model; null is the configuration's.
    model      TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
, owner TEXT, is_shared INTEGER NOT NULL DEFAULT 0, used_at INTEGER, identities_digest TEXT, agent TEXT, title TEXT, epoch_at INTEGER NOT NULL DEFAULT 0, edits INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID

-- table skipped_messages on skipped_messages
CREATE TABLE "skipped_messages" (
    channel  TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    position TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (channel, source, position)
) WITHOUT ROWID

-- table snapshots on snapshots
CREATE TABLE snapshots (
    hash  TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    text  TEXT NOT NULL
) WITHOUT ROWID

-- table spawns on spawns
CREATE TABLE spawns (
    -- Its inbox row and turn; its session is 'spawn:' and this.
    id         TEXT    NOT NULL PRIMARY KEY,
    -- Who gave it its task.
    session    TEXT    NOT NULL,
    turn       TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    -- 1 for a sub-agent of a chat.
    depth      INTEGER NOT NULL,
    -- Whether that turn waits for its end.
    waits      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    -- Of its last end.
    ended_at   INTEGER,
    -- The error's stable word when it failed.
    error      TEXT,
    -- What it answered, cut.
    result     TEXT
) WITHOUT ROWID

-- table sqlite_sequence on sqlite_sequence
CREATE TABLE sqlite_sequence(name,seq)

-- table turn_steps on turn_steps
CREATE TABLE turn_steps (
    turn TEXT    NOT NULL,
    seq  INTEGER NOT NULL,
    kind TEXT    NOT NULL,
    v    INTEGER NOT NULL,
    body TEXT    NOT NULL,
    hash TEXT    NOT NULL,
    at   INTEGER NOT NULL,
    PRIMARY KEY (turn, seq)
) WITHOUT ROWID

-- table usage on usage
CREATE TABLE "usage" (
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
) WITHOUT ROWID

-- trigger indexed_messages_deleted_vector on indexed_messages
CREATE TRIGGER indexed_messages_deleted_vector AFTER DELETE ON indexed_messages BEGIN
    DELETE FROM message_vectors WHERE message = old.id;
END

-- trigger memories_deleted_vector on memories
CREATE TRIGGER memories_deleted_vector AFTER DELETE ON memories BEGIN
    DELETE FROM memory_vectors WHERE memory = old.id;
END

-- trigger memories_moved_code on memories
CREATE TRIGGER memories_moved_code AFTER UPDATE OF owner ON memories WHEN new.owner <> old.owner BEGIN
    UPDATE memory_vectors SET place = NULL WHERE memory = old.id;
END

-- trigger memories_replaced_vector on memories
CREATE TRIGGER memories_replaced_vector AFTER UPDATE OF replaced_by ON memories WHEN new.replaced_by IS NOT NULL BEGIN
    DELETE FROM memory_vectors WHERE memory = old.id;
END

-- trigger memory_vectors_deleted_code on memory_vectors
CREATE TRIGGER memory_vectors_deleted_code AFTER DELETE ON memory_vectors WHEN old.place > 0 BEGIN
    UPDATE memory_codes SET live_count = live_count - 1, codes = CAST(
        substr(codes, 1, old.place % 256 * 72) || zeroblob(72) || substr(codes, old.place % 256 * 72 + 73) AS BLOB)
    WHERE id = old.place / 256;
    DELETE FROM memory_codes WHERE id = old.place / 256 AND live_count <= 0;
END

-- trigger memory_vectors_moved_code on memory_vectors
CREATE TRIGGER memory_vectors_moved_code AFTER UPDATE OF place ON memory_vectors WHEN old.place > 0 BEGIN
    UPDATE memory_codes SET live_count = live_count - 1, codes = CAST(
        substr(codes, 1, old.place % 256 * 72) || zeroblob(72) || substr(codes, old.place % 256 * 72 + 73) AS BLOB)
    WHERE id = old.place / 256;
    DELETE FROM memory_codes WHERE id = old.place / 256 AND live_count <= 0;
END

-- trigger message_vectors_deleted_code on message_vectors
CREATE TRIGGER message_vectors_deleted_code AFTER DELETE ON message_vectors WHEN old.place > 0 BEGIN
    UPDATE message_codes SET live_count = live_count - 1, codes = CAST(
        substr(codes, 1, old.place % 256 * 72) || zeroblob(72) || substr(codes, old.place % 256 * 72 + 73) AS BLOB)
    WHERE id = old.place / 256;
    DELETE FROM message_codes WHERE id = old.place / 256 AND live_count <= 0;
END

-- trigger messages_deleted_index on messages
CREATE TRIGGER messages_deleted_index AFTER DELETE ON messages BEGIN
    INSERT OR IGNORE INTO index_deletions SELECT id FROM indexed_messages WHERE session = old.session AND seq = old.seq;
    DELETE FROM indexed_messages WHERE session = old.session AND seq = old.seq;
END

