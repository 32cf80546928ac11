-- One row per claim, clustered by resource and arrival: those who hold a resource and the first
-- in line lie side by side, so that a verb touches one page. No other index: every further one is
-- another page in every commit.
CREATE TABLE claim (
    namespace  TEXT    NOT NULL,
    resource   TEXT    NOT NULL,
    seq        INTEGER NOT NULL, -- arrival; whoever holds came before everyone who waits
    id         BLOB    NOT NULL,
    session    TEXT    NOT NULL,
    family     INTEGER NOT NULL, -- 0 mutex, 1 rw, 2 permits, 3 election
    mode       INTEGER NOT NULL, -- 0 exclusive, 1 shared, 2 slot
    slots      INTEGER NOT NULL, -- of mode 2: how many there are
    state      INTEGER NOT NULL, -- 0 waits, 1 holds
    token      INTEGER NOT NULL, -- while it waits: its grant's token must be greater than this
    slot       INTEGER,
    ttl_ns     INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL, -- CLOCK_BOOTTIME, as are the next two
    since_ns   INTEGER NOT NULL,
    asked_ns   INTEGER NOT NULL,
    owner      TEXT    NOT NULL,
    value      BLOB,
    PRIMARY KEY (namespace, resource, seq)
) WITHOUT ROWID, STRICT;

-- Why claims ended that did not end by their client's will, for a minute or one TTL.
CREATE TABLE gone (
    id       BLOB    NOT NULL PRIMARY KEY,
    kind     INTEGER NOT NULL, -- 0 expired, 1 evicted, 2 session lost
    reason   TEXT    NOT NULL,
    until_ns INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX gone_until ON gone (until_ns);

CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value ANY
) WITHOUT ROWID, STRICT;
