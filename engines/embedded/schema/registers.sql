-- A deleted or expired register keeps its row: version and fence must never come back.
CREATE TABLE register (
    namespace    TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    value        BLOB,             -- NULL is a tombstone
    version      INTEGER NOT NULL,
    stamp        INTEGER,          -- the bits of an unsigned number
    fence        TEXT    NOT NULL, -- JSON: [[slot, source, [exclusive, shared, written]], ...]
    -- When the value goes away: by the boot clock within the boot it was written in, by the wall
    -- clock after it, the only one that outlives a reboot.
    expires_boot BLOB,
    expires_ns   INTEGER,
    expires_wall INTEGER,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID, STRICT;
