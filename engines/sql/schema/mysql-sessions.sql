-- Version {version}: what session locks (GET_LOCK) need beside the server's own locks.
--
-- What stands in /*M! … */ is for MariaDB alone, what stands in /*!80000 … */ for MySQL alone.

DELIMITER //

SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'
//
-- What is known of claims that are session locks: written late, and for whoever looks. The locks decide.
CREATE TABLE IF NOT EXISTS palisade_session (
    id BINARY(16) NOT NULL PRIMARY KEY,
    -- The connection that holds or waits. It has a lock of this name for as long as it lives.
    seat VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    number BIGINT NOT NULL,
    namespace VARBINARY(580) NOT NULL,
    resource VARBINARY(580) NOT NULL,
    family TINYINT NOT NULL,
    -- NULL while it waits.
    token BIGINT,
    since BIGINT NOT NULL,
    owner MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    value LONGBLOB,
    KEY palisade_session_number (number),
    KEY palisade_session_namespace (namespace)
) ENGINE = InnoDB
//
-- MariaDB counts tokens of session locks by a sequence, which needs no commit. What it has given last may be
-- forgotten by a crash, so that whoever comes first after one leaves all of that behind. On MySQL a row of palisade_lane counts.
CREATE TABLE IF NOT EXISTS palisade_lifted (
    one TINYINT NOT NULL PRIMARY KEY,
    -- Where the sequence was set to last.
    n BIGINT NOT NULL
) ENGINE = InnoDB
//
INSERT IGNORE INTO palisade_lifted VALUES (1, 0)
//
DROP PROCEDURE IF EXISTS palisade_make_number
//
CREATE PROCEDURE palisade_make_number()
BEGIN
    /*M! CREATE SEQUENCE IF NOT EXISTS palisade_number CACHE 1000 ENGINE = InnoDB;
    -- Emptied when the server starts: which server the sequence was lifted for since.
    CREATE TABLE IF NOT EXISTS palisade_run (
        server VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
    ) ENGINE = MEMORY; */
    DO 0;
END
//
CALL palisade_make_number()
//
DROP PROCEDURE palisade_make_number
//
DROP PROCEDURE IF EXISTS palisade_lift
//
-- Leaves all numbers up to p_floor behind, for good once it returns. What a sequence does is on the disk with the next commit.
CREATE PROCEDURE palisade_lift(IN p_floor BIGINT)
BEGIN
    /*M! EXECUTE IMMEDIATE CONCAT('SELECT SETVAL(palisade_number, ', p_floor, ') INTO @palisade_lifted'); */
    UPDATE palisade_lifted SET n = GREATEST(n + 1, p_floor);
END
//
DROP PROCEDURE IF EXISTS palisade_sit
//
-- Begins a session that will hold locks: gives it the lock that shows that it lives, and sees to it that numbers rise. Says
-- whether it has that lock, which session this is, and who counts.
--
-- Numbers are left behind after a start of the server, and when the clock is ahead by more than a minute: on a replica
-- that was promoted, or in a dump that was restored, the last of them may be missing.
CREATE PROCEDURE palisade_sit(IN p_seat VARCHAR(64) CHARACTER SET ascii)
BEGIN
    DECLARE v_has INT DEFAULT GET_LOCK(p_seat, 0);
    /*M!
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    DECLARE v_server VARCHAR(255) CHARACTER SET utf8mb4 DEFAULT CONCAT(@@server_id, '@', @@hostname, ':', @@port);
    DECLARE v_next BIGINT;
    IF NOT EXISTS (SELECT 1 FROM palisade_run WHERE server = v_server) THEN
        SELECT GREATEST(NEXTVAL(palisade_number), n) + 1048576 INTO v_next FROM palisade_lifted;
        CALL palisade_lift(GREATEST(v_next, v_now));
        -- Only now, so that nobody who finds it comes too early.
        DELETE FROM palisade_run;
        INSERT INTO palisade_run VALUES (v_server);
    ELSE
        SELECT NEXTVAL(palisade_number) INTO v_next;
        IF v_next < v_now - 60000000 THEN
            CALL palisade_lift(v_now);
        END IF;
    END IF; */
    SELECT v_has, CONNECTION_ID(), origin FROM palisade_meta;
END
//
DROP PROCEDURE IF EXISTS palisade_take
//
-- Takes a lock, waiting for it for so many seconds, and then draws its token; NULL if it was not obtained. No table is
-- open while it waits: a backup would wait as well.
CREATE PROCEDURE palisade_take(IN p_lock VARCHAR(64) CHARACTER SET ascii, IN p_number BIGINT, IN p_seconds INT)
BEGIN
    DECLARE v_n, v_top BIGINT;
    IF GET_LOCK(p_lock, p_seconds) = 1 THEN
        /*M! SELECT NEXTVAL(palisade_number); */
        /*!80000
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        CALL palisade_lock(p_number & 1152921504606846975, v_n, v_top);
        COMMIT;
        SELECT v_n + 1; */
    ELSE
        SELECT NULL;
    END IF;
END
//
DROP PROCEDURE IF EXISTS palisade_session_token
//
-- A token above p_floor for a lock that is held.
CREATE PROCEDURE palisade_session_token(IN p_number BIGINT, IN p_floor BIGINT)
BEGIN
    DECLARE v_n, v_top BIGINT;
    /*M!
    SELECT NEXTVAL(palisade_number) INTO v_n;
    IF v_n <= p_floor THEN
        CALL palisade_lift(p_floor);
        SELECT NEXTVAL(palisade_number) INTO v_n;
    END IF; */
    /*!80000
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    CALL palisade_lock(p_number & 1152921504606846975, v_n, v_top);
    CALL palisade_draw(p_number & 1152921504606846975, p_floor, v_n, v_top);
    COMMIT; */
    SELECT v_n;
END
//
DROP PROCEDURE IF EXISTS palisade_note
//
-- Notes what is known of claims, and forgets those that are gone: lists of ids in hexadecimal digits, and of id, seat,
-- number, resource in hexadecimal digits, family, token, for how many microseconds it has been so, whether there is a
-- value, and owner and value in hexadecimal digits, which are looked up by themselves: a long text among what is joined has the server write to
-- the disk.
CREATE PROCEDURE palisade_note(
    IN p_namespace VARBINARY(580), IN p_gone LONGTEXT CHARACTER SET utf8mb4, IN p_notes LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    DELETE palisade_session FROM
        JSON_TABLE(p_gone, '$[*]' COLUMNS (id CHAR(32) PATH '$')) AS gone
        STRAIGHT_JOIN palisade_session ON palisade_session.id = UNHEX(gone.id);
    REPLACE INTO palisade_session
        SELECT UNHEX(id), seat, number, p_namespace, UNHEX(resource), family, token, v_now - age,
            CONVERT(UNHEX(JSON_UNQUOTE(JSON_EXTRACT(p_notes, CONCAT('$[', at - 1, '][8]')))) USING utf8mb4),
            IF(valued = 1, UNHEX(JSON_UNQUOTE(JSON_EXTRACT(p_notes, CONCAT('$[', at - 1, '][9]')))), NULL)
        FROM JSON_TABLE(p_notes, '$[*]' COLUMNS (
            at FOR ORDINALITY, id CHAR(32) PATH '$[0]', seat VARCHAR(64) PATH '$[1]', number BIGINT PATH '$[2]',
            resource VARCHAR(1160) PATH '$[3]', family INT PATH '$[4]', token BIGINT PATH '$[5]', age BIGINT PATH '$[6]',
            valued INT PATH '$[7]')) AS noted;
    COMMIT;
END
//
DROP PROCEDURE IF EXISTS palisade_sessions
//
-- What is noted of the lock with this number, or of all of a namespace if there is none: by which session, and whether that
-- one lives and has the lock. Each row, and one if nothing is noted, also says which session has the lock with this number.
-- p_locks is how the names of locks begin.
--
-- The locks are read before the notes: what is noted of a claim is forgotten before its lock can be another's.
CREATE PROCEDURE palisade_sessions(
    IN p_namespace VARBINARY(580), IN p_number BIGINT, IN p_locks VARCHAR(64) CHARACTER SET ascii
)
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    -- MySQL takes no NULL for a name; nobody has a lock called so.
    DECLARE v_holder BIGINT DEFAULT IS_USED_LOCK(COALESCE(CONCAT(p_locks, LPAD(LOWER(HEX(p_number)), 16, '0')), 'palisade'));
    SELECT v_holder, IS_USED_LOCK(COALESCE(noted.seat, 'palisade')), noted.seat, noted.number,
        COALESCE(IF(p_number IS NULL,
            IS_USED_LOCK(COALESCE(CONCAT(p_locks, LPAD(LOWER(HEX(noted.number)), 16, '0')), 'palisade')), v_holder)
            = IS_USED_LOCK(COALESCE(noted.seat, 'palisade')), 0),
        noted.since, noted.resource,
        CONCAT('{"id":"', HEX(noted.id), '","family":', noted.family, ',"token":', COALESCE(noted.token, 'null'),
            ',"age":', v_now - noted.since, ',"owner":', JSON_QUOTE(noted.owner),
            ',"value":', COALESCE(CONCAT('"', HEX(noted.value), '"'), 'null'), '}')
    FROM (SELECT 1 AS one) AS always LEFT JOIN palisade_session AS noted
        ON noted.namespace = p_namespace AND (p_number IS NULL OR noted.number = p_number);
END
//
DROP PROCEDURE IF EXISTS palisade_sweep_sessions
//
-- Forgets what was noted by sessions that are gone.
CREATE PROCEDURE palisade_sweep_sessions()
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    DELETE FROM palisade_session WHERE since < v_now - 60000000 AND IS_USED_LOCK(seat) IS NULL;
    COMMIT;
END
//
UPDATE palisade_meta SET version = {version} WHERE version < {version}
//
