-- Palisade's schema for MySQL 8 and MariaDB 10.6 or newer, version {version}.
--
-- It is made in the current database, for the client programs `mysql` and `mariadb` to run. Whoever has EXECUTE on the
-- procedures needs no right on anything else here: they run with the rights of whoever made them.
--
-- Each verb is one CALL, hence one transaction. It locks the lanes of its resources first, in order; what it reads
-- afterwards is what counts, because at READ COMMITTED each statement has a snapshot of its own. All times are
-- microseconds of UTC: local times come twice at the end of summer. Names and texts are compared byte by byte.
--
-- No functions are made: where there is a binary log, they need a right that few have.
--
-- What somebody else may be about to change is looked at by SELECT … INTO, never by EXISTS in an IF: that would lock it, though
-- shared, and two who then want to change it wait for each other.

DELIMITER //

SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'
//
CREATE TABLE IF NOT EXISTS palisade_meta (
    one TINYINT NOT NULL PRIMARY KEY,
    version INT NOT NULL,
    -- Who counts the tokens.
    origin VARCHAR(64) CHARACTER SET ascii NOT NULL,
    -- Which server it was last, and since when that is known: one that was promoted may lack what was granted last, and
    -- so does a schema that was just made.
    server VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    since BIGINT NOT NULL
) ENGINE = InnoDB
//
-- What a resource is locked by, and the last number that was reserved for tokens and places.
--
-- Locked by being written, so that two nodes of a Galera cluster, which do not see each other's locks, conflict as well.
CREATE TABLE IF NOT EXISTS palisade_lane (
    lane INT NOT NULL PRIMARY KEY,
    n BIGINT NOT NULL
) ENGINE = InnoDB
//
INSERT IGNORE INTO palisade_lane
    WITH RECURSIVE some (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM some WHERE n < 31)
    SELECT high.n * 32 + low.n, 0 FROM some AS high, some AS low
//
CREATE TABLE IF NOT EXISTS palisade_claim (
    -- A hash of namespace and resource; its highest bits are the lane. Two resources may share one.
    hash BIGINT NOT NULL,
    -- The order of arrival.
    seq BIGINT NOT NULL,
    namespace VARBINARY(580) NOT NULL,
    resource VARBINARY(580) NOT NULL,
    id BINARY(16) NOT NULL,
    client VARBINARY(64) NOT NULL,
    family TINYINT NOT NULL,
    -- 0 exclusive, 1 shared, 2 one of so many slots.
    mode TINYINT NOT NULL,
    slots INT NOT NULL,
    held TINYINT NOT NULL,
    -- Its token, or while it waits, what its token must exceed.
    token BIGINT NOT NULL,
    slot INT,
    ttl BIGINT NOT NULL,
    -- It lasts until then, or until its lease ends, whichever is later.
    expires BIGINT NOT NULL,
    since BIGINT NOT NULL,
    owner MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    value LONGBLOB,
    -- Its client's lease of this number, if it was ever renewed together with others.
    lease INT,
    PRIMARY KEY (hash, seq)
) ENGINE = InnoDB
//
-- What many claims of one client, and of one TTL, are renewed by. A lease that has ended is never renewed: whoever finds
-- it so removes it first. A number is used once, and a claim moves to greater ones only: a statement that comes late
-- takes nothing back.
--
-- Whoever touches several tables locks rows of this one first, then lanes, then claims; who holds a lane never waits for
-- a lease.
CREATE TABLE IF NOT EXISTS palisade_lease (
    client VARBINARY(64) NOT NULL,
    number INT NOT NULL,
    ttl BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (client, number)
) ENGINE = InnoDB
//
-- Leases of which a claim was ended by somebody else: its client must ask for each of them.
CREATE TABLE IF NOT EXISTS palisade_breach (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    client VARBINARY(64) NOT NULL,
    number INT NOT NULL,
    ends BIGINT NOT NULL,
    KEY palisade_breach_lease (client, number)
) ENGINE = InnoDB
//
-- Claims that must not come in any more, and why.
CREATE TABLE IF NOT EXISTS palisade_grave (
    id BINARY(16) NOT NULL PRIMARY KEY,
    note MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    ends BIGINT NOT NULL,
    KEY palisade_grave_ends (ends)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS palisade_register (
    namespace VARBINARY(580) NOT NULL,
    name VARBINARY(580) NOT NULL,
    -- Rises with every change of this row, also of the fence alone.
    revision BIGINT NOT NULL,
    value LONGBLOB,
    version BIGINT NOT NULL,
    stamp BIGINT,
    fence LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    expires BIGINT,
    PRIMARY KEY (namespace, name)
) ENGINE = InnoDB
//
DROP PROCEDURE IF EXISTS palisade_lock
//
-- Locks the lane of a hash, and reserves numbers there: above all that were given before, and not below the clock, so that
-- a replica that was promoted without the last of them does not give one again.
CREATE PROCEDURE palisade_lock(IN p_hash BIGINT, OUT p_n BIGINT, OUT p_top BIGINT)
BEGIN
    SET p_top = NULL;
    UPDATE palisade_lane SET n = GREATEST(n, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))) + 16 WHERE lane = p_hash >> 50;
    SELECT n INTO p_top FROM palisade_lane WHERE lane = p_hash >> 50;
    IF p_top IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 30001, MESSAGE_TEXT = 'a row of palisade_lane is missing';
    END IF;
    SET p_n = p_top - 16;
END
//
DROP PROCEDURE IF EXISTS palisade_draw
//
-- The next number, above p_floor.
CREATE PROCEDURE palisade_draw(IN p_hash BIGINT, IN p_floor BIGINT, INOUT p_n BIGINT, INOUT p_top BIGINT)
BEGIN
    SET p_n = GREATEST(p_n, p_floor) + 1;
    IF p_n > p_top THEN
        SET p_top = p_n + 16;
        UPDATE palisade_lane SET n = p_top WHERE lane = p_hash >> 50;
    END IF;
END
//
DROP PROCEDURE IF EXISTS palisade_room
//
-- The slot that a claim may take, -1 if it needs none, NULL if it may not come in. The rule of `Occupancy` in core.
CREATE PROCEDURE palisade_room(
    IN p_hash BIGINT, IN p_namespace VARBINARY(580), IN p_resource VARBINARY(580), IN p_exclusive INT, IN p_shared INT,
    IN p_taken INT, IN p_mode INT, IN p_slots INT, OUT p_place INT
)
BEGIN
    SET p_place = NULL;
    IF p_exclusive = 0 THEN
        IF p_mode = 0 THEN
            SET p_place = IF(p_shared = 0 AND p_taken = 0, -1, NULL);
        ELSEIF p_mode = 1 THEN
            SET p_place = IF(p_taken = 0, -1, NULL);
        ELSEIF p_shared = 0 AND p_taken < p_slots THEN
            -- The first that is missing among those that are taken, else the next.
            SELECT COALESCE(MIN(IF(taken.slot <> taken.place, taken.place, NULL)), COUNT(*)) INTO p_place FROM (
                SELECT slot, ROW_NUMBER() OVER (ORDER BY slot) - 1 AS place FROM palisade_claim
                WHERE hash = p_hash AND namespace = p_namespace AND resource = p_resource AND held = 1 AND mode = 2
            ) AS taken;
        END IF;
    END IF;
END
//
DROP PROCEDURE IF EXISTS palisade_is_over
//
-- Whether a lease has ended, or there is none. If so it is no more afterwards; while somebody is about to renew it, it has not.
-- One that a clock which was set back has made last too long has from now on the time that it was ever promised.
CREATE PROCEDURE palisade_is_over(IN p_client VARBINARY(64), IN p_number INT, OUT p_over INT)
BEGIN
    DECLARE v_expires, v_ttl BIGINT;
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    SELECT expires, ttl INTO v_expires, v_ttl FROM palisade_lease WHERE client = p_client AND number = p_number;
    SET p_over = IF(v_expires IS NULL, 1, 0);
    IF v_expires <= v_now OR v_expires > v_now + v_ttl THEN
        SET v_expires = NULL;
        SELECT expires, ttl INTO v_expires, v_ttl FROM palisade_lease
            WHERE client = p_client AND number = p_number FOR UPDATE SKIP LOCKED;
        SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
        IF v_expires IS NULL THEN
            -- Somebody is about to renew it, or has just removed it.
            SELECT COUNT(*) = 0 INTO p_over FROM palisade_lease WHERE client = p_client AND number = p_number;
        ELSEIF v_expires <= v_now THEN
            DELETE FROM palisade_lease WHERE client = p_client AND number = p_number;
            SET p_over = 1;
        ELSEIF v_expires > v_now + v_ttl THEN
            UPDATE palisade_lease SET expires = v_now + ttl WHERE client = p_client AND number = p_number;
        END IF;
    END IF;
END
//
DROP PROCEDURE IF EXISTS palisade_settle
//
-- Brings the front of a queue in order: what has expired goes, and those whose turn it is come in. Says who is inside
-- then, and whether somebody waits.
CREATE PROCEDURE palisade_settle(
    IN p_hash BIGINT, IN p_namespace VARBINARY(580), IN p_resource VARBINARY(580), INOUT p_n BIGINT, INOUT p_top BIGINT,
    OUT p_waits INT, OUT p_exclusive INT, OUT p_shared INT, OUT p_taken INT
)
BEGIN
    DECLARE v_after BIGINT DEFAULT -1;
    DECLARE v_seq, v_token, v_ttl, v_expires, v_now BIGINT;
    DECLARE v_mode, v_slots, v_held, v_slot, v_place, v_lease, v_over INT;
    DECLARE v_client VARBINARY(64);
    SET p_waits = 0, p_exclusive = 0, p_shared = 0, p_taken = 0;
    front: LOOP
        SET v_seq = NULL;
        SELECT seq, mode, slots, held, token, slot, ttl, expires, client, lease
            INTO v_seq, v_mode, v_slots, v_held, v_token, v_slot, v_ttl, v_expires, v_client, v_lease FROM palisade_claim
            WHERE hash = p_hash AND seq > v_after AND namespace = p_namespace AND resource = p_resource
            ORDER BY seq LIMIT 1;
        IF v_seq IS NULL THEN
            LEAVE front;
        END IF;
        SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)), v_over = 1;
        IF v_lease IS NOT NULL THEN
            -- At the first look, not only once the claim itself is over: a clock that was set back is noticed here, too.
            CALL palisade_is_over(v_client, v_lease, v_over);
        END IF;
        IF v_expires <= v_now AND v_over = 1 THEN
            -- It may be renewed at this very moment: then it is looked at again.
            DELETE FROM palisade_claim
                WHERE hash = p_hash AND seq = v_seq AND expires <= v_now AND lease <=> v_lease;
            ITERATE front;
        END IF;
        SET v_after = v_seq;
        IF v_expires > v_now + v_ttl THEN
            -- The clock was set back: from now on the claim has the time that it was ever promised.
            UPDATE palisade_claim SET expires = LEAST(expires, v_now + ttl) WHERE hash = p_hash AND seq = v_seq;
        END IF;
        IF v_held = 1 THEN
            SET v_place = COALESCE(v_slot, -1);
        ELSE
            CALL palisade_room(p_hash, p_namespace, p_resource, p_exclusive, p_shared, p_taken, v_mode, v_slots, v_place);
            IF v_place IS NULL THEN
                SET p_waits = 1;
                LEAVE front;
            END IF;
            -- Drawn now: of two grants that exclude each other the later one has the greater token. The end stays as
            -- the last renewal set it.
            CALL palisade_draw(p_hash, v_token, p_n, p_top);
            UPDATE palisade_claim SET held = 1, token = p_n, slot = NULLIF(v_place, -1), since = v_now
                WHERE hash = p_hash AND seq = v_seq;
        END IF;
        IF v_mode = 0 THEN
            SET p_exclusive = 1;
        ELSEIF v_mode = 1 THEN
            SET p_shared = p_shared + 1;
        ELSE
            SET p_taken = p_taken + 1;
        END IF;
    END LOOP;
END
//
DROP PROCEDURE IF EXISTS palisade_holders
//
-- Those who hold a resource, as a list in JSON.
CREATE PROCEDURE palisade_holders(
    IN p_hash BIGINT, IN p_namespace VARBINARY(580), IN p_resource VARBINARY(580),
    OUT p_note LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
    DECLARE v_after BIGINT DEFAULT -1;
    DECLARE v_seq BIGINT;
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    DECLARE v_one LONGTEXT CHARACTER SET utf8mb4;
    SET p_note = '';
    holder: LOOP
        SET v_seq = NULL;
        SELECT seq, CONCAT('{"id":"', HEX(id), '","family":', family, ',"mode":', mode, ',"slots":', slots,
            ',"held":', IF(held, 'true', 'false'), ',"token":', token, ',"slot":', COALESCE(slot, 'null'),
            ',"age":', v_now - since, ',"expires_in":', GREATEST(own.expires, COALESCE(its.expires, 0)) - v_now,
            ',"owner":', JSON_QUOTE(owner), ',"value":', COALESCE(CONCAT('"', HEX(value), '"'), 'null'), '}')
            INTO v_seq, v_one FROM palisade_claim AS own
            LEFT JOIN palisade_lease AS its ON its.client = own.client AND its.number = own.lease
            WHERE hash = p_hash AND seq > v_after AND namespace = p_namespace AND resource = p_resource AND held = 1
                AND GREATEST(own.expires, COALESCE(its.expires, 0)) > v_now
            ORDER BY seq LIMIT 1;
        IF v_seq IS NULL THEN
            LEAVE holder;
        END IF;
        SET v_after = v_seq, p_note = CONCAT(p_note, IF(p_note = '', '', ','), v_one);
    END LOOP;
    SET p_note = CONCAT('[', p_note, ']');
END
//
DROP PROCEDURE IF EXISTS palisade_queued
//
-- Says how a claim waits: behind how many, and when to look again because one ahead may have expired. At once if the
-- last one ahead expired since the front was settled: nobody else would look.
CREATE PROCEDURE palisade_queued(
    IN p_hash BIGINT, IN p_namespace VARBINARY(580), IN p_resource VARBINARY(580), IN p_seq BIGINT, OUT p_ahead INT,
    OUT p_look BIGINT
)
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    SELECT COUNT(IF(held = 1, NULL, 1)),
        COALESCE(MIN(LEAST(GREATEST(own.expires, COALESCE(its.expires, 0)), v_now + own.ttl)) - v_now, 0)
        INTO p_ahead, p_look FROM palisade_claim AS own
        LEFT JOIN palisade_lease AS its ON its.client = own.client AND its.number = own.lease
        WHERE hash = p_hash AND namespace = p_namespace AND resource = p_resource AND seq < p_seq
            AND GREATEST(own.expires, COALESCE(its.expires, 0)) > v_now;
END
//
DROP PROCEDURE IF EXISTS palisade_decide
//
-- Decides about one claim; its lane is locked. p_how: 0 it will not wait, 1 it will, 2 only if it is known.
--
-- An answer is a text: at, verdict, seq, token, slot, microseconds until it expires, until one ahead does, how many are
-- ahead, and a note after an x in hexadecimal digits. Verdicts: g granted, q queued, b busy (note: who holds),
-- c another number of slots is in force (ahead: which), l must not come in (note: why), u unknown (note: why, if that is
-- known).
CREATE PROCEDURE palisade_decide(
    IN p_at INT, IN p_hash BIGINT, IN p_namespace VARBINARY(580), IN p_client VARBINARY(64),
    IN p_owner MEDIUMTEXT CHARACTER SET utf8mb4, IN p_resource VARBINARY(580), IN p_id BINARY(16), IN p_how INT,
    IN p_family INT, IN p_mode INT, IN p_slots INT, IN p_ttl BIGINT, IN p_floor BIGINT, IN p_value LONGBLOB,
    INOUT p_n BIGINT, INOUT p_top BIGINT, OUT p_said LONGTEXT CHARACTER SET utf8mb4
)
decide: BEGIN
    DECLARE v_seq, v_token, v_expires, v_now, v_look BIGINT;
    DECLARE v_held, v_slot, v_ahead, v_place, v_waits, v_exclusive, v_shared, v_taken INT;
    DECLARE v_free INT DEFAULT 1;
    DECLARE v_tries INT DEFAULT 0;
    DECLARE v_lease, v_over INT;
    DECLARE v_client VARBINARY(64);
    DECLARE v_note LONGTEXT CHARACTER SET utf8mb4;
    SELECT 0 INTO v_free FROM palisade_claim WHERE hash = p_hash LIMIT 1;
    IF v_free = 0 THEN
        own: LOOP
            CALL palisade_settle(p_hash, p_namespace, p_resource, p_n, p_top, v_waits, v_exclusive, v_shared, v_taken);
            SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)), v_seq = NULL;
            SELECT seq, held, token, slot, GREATEST(own.expires, COALESCE(its.expires, 0)), own.client, own.lease
                INTO v_seq, v_held, v_token, v_slot, v_expires, v_client, v_lease FROM palisade_claim AS own
                LEFT JOIN palisade_lease AS its ON its.client = own.client AND its.number = own.lease
                WHERE hash = p_hash AND id = p_id LIMIT 1;
            -- Three times at most: a lease that is over and about to be renewed is not waited for.
            SET v_tries = v_tries + 1;
            IF v_seq IS NULL OR v_expires > v_now OR v_tries > 3 THEN
                LEAVE own;
            END IF;
            -- It expired just now, unless it is renewed at this very moment: either way all is looked at again.
            CALL palisade_is_over(v_client, v_lease, v_over);
            IF v_over = 1 THEN
                DELETE FROM palisade_claim
                    WHERE hash = p_hash AND seq = v_seq AND expires <= v_now AND lease <=> v_lease;
            END IF;
        END LOOP;
        IF v_seq IS NOT NULL THEN
            IF v_held = 1 THEN
                IF v_token <= p_floor THEN
                    CALL palisade_draw(p_hash, p_floor, p_n, p_top);
                    SET v_token = p_n;
                    UPDATE palisade_claim SET token = v_token WHERE hash = p_hash AND seq = v_seq;
                END IF;
                SET p_said = CONCAT_WS('|', p_at, 'g', COALESCE(v_seq, ''), COALESCE(v_token, ''), COALESCE(v_slot, ''), COALESCE(v_expires - v_now, ''), '', '', '');
            ELSE
                CALL palisade_queued(p_hash, p_namespace, p_resource, v_seq, v_ahead, v_look);
                SET p_said = CONCAT_WS('|', p_at, 'q', COALESCE(v_seq, ''), '', '', COALESCE(v_expires - v_now, ''), COALESCE(v_look, ''), COALESCE(v_ahead, ''), '');
            END IF;
            LEAVE decide;
        END IF;
    END IF;
    SELECT note INTO v_note FROM palisade_grave WHERE id = p_id;
    IF v_note IS NOT NULL OR p_how = 2 THEN
        SET p_said = CONCAT_WS('|', p_at, IF(p_how = 2, 'u', 'l'), '', '', '', '', '', '', COALESCE(CONCAT('x', HEX(v_note)), ''));
        LEAVE decide;
    END IF;
    IF p_mode = 2 AND v_free = 0 AND (v_waits = 1 OR v_taken > 0) THEN
        SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
        SELECT slots INTO v_ahead FROM palisade_claim AS own
            LEFT JOIN palisade_lease AS its ON its.client = own.client AND its.number = own.lease
            WHERE hash = p_hash AND namespace = p_namespace AND resource = p_resource AND mode = 2
                AND GREATEST(own.expires, COALESCE(its.expires, 0)) > v_now AND slots <> p_slots LIMIT 1;
        IF v_ahead IS NOT NULL THEN
            SET p_said = CONCAT_WS('|', p_at, 'c', '', '', '', '', '', COALESCE(v_ahead, ''), '');
            LEAVE decide;
        END IF;
    END IF;
    IF v_free = 1 THEN
        SET v_place = IF(p_mode = 2, 0, -1);
    ELSEIF v_waits = 0 THEN
        CALL palisade_room(p_hash, p_namespace, p_resource, v_exclusive, v_shared, v_taken, p_mode, p_slots, v_place);
    END IF;
    IF v_place IS NULL AND p_how = 0 THEN
        CALL palisade_holders(p_hash, p_namespace, p_resource, v_note);
        SET p_said = CONCAT_WS('|', p_at, 'b', '', '', '', '', '', '', COALESCE(CONCAT('x', HEX(v_note)), ''));
        LEAVE decide;
    END IF;
    CALL palisade_draw(p_hash, IF(v_place IS NULL, 0, p_floor), p_n, p_top);
    SET v_seq = p_n, v_token = IF(v_place IS NULL, p_floor, p_n), v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    INSERT INTO palisade_claim VALUES (p_hash, v_seq, p_namespace, p_resource, p_id, p_client, p_family, p_mode, p_slots,
        v_place IS NOT NULL, v_token, NULLIF(v_place, -1), p_ttl, v_now + p_ttl, v_now, p_owner, p_value, NULL);
    IF v_place IS NULL THEN
        CALL palisade_queued(p_hash, p_namespace, p_resource, v_seq, v_ahead, v_look);
        SET p_said = CONCAT_WS('|', p_at, 'q', COALESCE(v_seq, ''), '', '', COALESCE(p_ttl, ''), COALESCE(v_look, ''), COALESCE(v_ahead, ''), '');
    ELSE
        SET p_said = CONCAT_WS('|', p_at, 'g', COALESCE(v_seq, ''), COALESCE(v_token, ''), COALESCE(NULLIF(v_place, -1), ''), COALESCE(p_ttl, ''), '', '', '');
    END IF;
END
//
DROP PROCEDURE IF EXISTS palisade_ask
//
-- Asks for a claim, or after one that is known.
CREATE PROCEDURE palisade_ask(
    IN p_namespace VARBINARY(580), IN p_client VARBINARY(64), IN p_owner MEDIUMTEXT CHARACTER SET utf8mb4,
    IN p_resource VARBINARY(580), IN p_id BINARY(16), IN p_how INT, IN p_family INT, IN p_mode INT, IN p_slots INT,
    IN p_ttl BIGINT, IN p_floor BIGINT, IN p_value LONGBLOB
)
BEGIN
    DECLARE v_n, v_top BIGINT;
    DECLARE v_hash BIGINT DEFAULT CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, p_resource), 256), 15), 16, 10) AS SIGNED);
    DECLARE v_said LONGTEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    CALL palisade_lock(v_hash, v_n, v_top);
    CALL palisade_decide(1, v_hash, p_namespace, p_client, p_owner, p_resource, p_id, p_how, p_family, p_mode, p_slots,
        p_ttl, p_floor, p_value, v_n, v_top, v_said);
    COMMIT;
    SELECT v_said;
END
//
DROP PROCEDURE IF EXISTS palisade_ask_each
//
-- Asks for several claims: p_asks has as many lists as p_count of resource and id in hexadecimal digits, how, family,
-- mode, slots, TTL, floor, whether there is a value, and the value in hexadecimal digits, which is looked up by itself:
-- a long text among what a cursor reads has it write to the disk.
CREATE PROCEDURE palisade_ask_each(
    IN p_namespace VARBINARY(580), IN p_client VARBINARY(64), IN p_owner MEDIUMTEXT CHARACTER SET utf8mb4, IN p_count INT,
    IN p_asks LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
    DECLARE v_n, v_top, v_hash, v_ttl, v_floor BIGINT;
    DECLARE v_lane BIGINT DEFAULT -1;
    DECLARE v_done INT DEFAULT 0;
    DECLARE v_at, v_how, v_family, v_mode, v_slots, v_valued INT;
    DECLARE v_resource VARCHAR(1160) CHARACTER SET ascii;
    DECLARE v_id BINARY(16);
    DECLARE v_said, v_all LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_asks CURSOR FOR
        SELECT at, CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, UNHEX(resource)), 256), 15), 16, 10) AS SIGNED) AS hash, resource, UNHEX(id), how, family, mode, slots,
            ttl, floor, valued
        FROM JSON_TABLE(p_asks, '$[*]' COLUMNS (
            at FOR ORDINALITY, resource VARCHAR(1160) PATH '$[0]', id CHAR(32) PATH '$[1]', how INT PATH '$[2]',
            family INT PATH '$[3]', mode INT PATH '$[4]', slots INT PATH '$[5]', ttl BIGINT PATH '$[6]',
            floor BIGINT PATH '$[7]', valued INT PATH '$[8]')) AS asked
        ORDER BY 2, 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    OPEN v_asks;
    WHILE v_done < p_count DO
        FETCH v_asks INTO v_at, v_hash, v_resource, v_id, v_how, v_family, v_mode, v_slots, v_ttl, v_floor, v_valued;
        IF v_hash >> 50 <> v_lane THEN
            CALL palisade_lock(v_hash, v_n, v_top);
            SET v_lane = v_hash >> 50;
        END IF;
        CALL palisade_decide(v_at, v_hash, p_namespace, p_client, p_owner, UNHEX(v_resource), v_id, v_how, v_family, v_mode,
            v_slots, v_ttl, v_floor,
            IF(v_valued = 1, UNHEX(JSON_UNQUOTE(JSON_EXTRACT(p_asks, CONCAT('$[', v_at - 1, '][9]')))), NULL), v_n, v_top,
            v_said);
        SET v_all = CONCAT_WS('\n', v_all, v_said), v_done = v_done + 1;
    END WHILE;
    CLOSE v_asks;
    COMMIT;
    SELECT v_all;
END
//
DROP PROCEDURE IF EXISTS palisade_take_out
//
-- Takes one claim out; its lane is locked. Verdicts: r released, q left the queue, g was gone.
--
-- p_client: who asks for it, NULL if by force. Whoever else it belonged to must not renew it unseen.
CREATE PROCEDURE palisade_take_out(
    IN p_at INT, IN p_hash BIGINT, IN p_namespace VARBINARY(580), IN p_client VARBINARY(64),
    IN p_resource VARBINARY(580), IN p_id BINARY(16), IN p_seq BIGINT, IN p_note MEDIUMTEXT CHARACTER SET utf8mb4, IN p_keep BIGINT, INOUT p_n BIGINT, INOUT p_top BIGINT,
    OUT p_said LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
    DECLARE v_seq, v_ttl BIGINT;
    DECLARE v_others INT DEFAULT 0;
    DECLARE v_held, v_lives, v_lease, v_waits, v_exclusive, v_shared, v_taken INT;
    DECLARE v_client VARBINARY(64);
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    IF p_seq < 0 THEN
        SELECT seq, held, expires > v_now, client, lease, ttl INTO v_seq, v_held, v_lives, v_client, v_lease, v_ttl
            FROM palisade_claim WHERE hash = p_hash AND id = p_id LIMIT 1 FOR UPDATE;
    ELSE
        SELECT seq, held, expires > v_now, client, lease, ttl INTO v_seq, v_held, v_lives, v_client, v_lease, v_ttl
            FROM palisade_claim WHERE hash = p_hash AND seq = p_seq AND id = p_id FOR UPDATE;
    END IF;
    IF v_seq IS NOT NULL THEN
        DELETE FROM palisade_claim WHERE hash = p_hash AND seq = v_seq;
    END IF;
    IF v_lease IS NOT NULL THEN
        IF v_lives = 0 THEN
            SELECT COUNT(*) INTO v_lives FROM palisade_lease
                WHERE client = v_client AND number = v_lease AND expires > v_now;
        END IF;
        IF NOT (v_client <=> p_client) THEN
            INSERT INTO palisade_breach (client, number, ends) VALUES (v_client, v_lease, v_now + 2 * v_ttl + 60000000);
        END IF;
    END IF;
    IF p_note IS NOT NULL OR v_seq IS NULL THEN
        INSERT IGNORE INTO palisade_grave
            VALUES (p_id, COALESCE(p_note, 'withdrawn'), v_now + GREATEST(p_keep, 60000000));
    END IF;
    SELECT 1 INTO v_others FROM palisade_claim WHERE hash = p_hash LIMIT 1;
    IF v_seq IS NOT NULL AND v_others = 1 THEN
        CALL palisade_settle(p_hash, p_namespace, p_resource, p_n, p_top, v_waits, v_exclusive, v_shared, v_taken);
    END IF;
    SET p_said = CONCAT_WS('|', p_at, IF(v_seq IS NULL OR v_lives = 0, 'g', IF(v_held = 1, 'r', 'q')), '', '', '', '', '', '', '');
END
//
DROP PROCEDURE IF EXISTS palisade_tidy
//
-- Removes notes whose time is up: a few, in a transaction of its own, so that nobody waits for it who has something locked.
CREATE PROCEDURE palisade_tidy()
BEGIN
    DECLARE v_some INT DEFAULT 0;
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    -- What is not removed now is removed later.
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
    SELECT 1 INTO v_some FROM palisade_grave WHERE ends <= v_now LIMIT 1;
    IF v_some = 1 THEN
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        DELETE FROM palisade_grave WHERE ends <= v_now LIMIT 100;
        COMMIT;
    END IF;
END
//
DROP PROCEDURE IF EXISTS palisade_leave
//
-- Gives a claim back. p_seq: where it stands, -1 if that is not known. p_doubt: whether it may be on its way more than once.
CREATE PROCEDURE palisade_leave(
    IN p_namespace VARBINARY(580), IN p_client VARBINARY(64), IN p_resource VARBINARY(580), IN p_id BINARY(16), IN p_seq BIGINT, IN p_doubt INT,
    IN p_ttl BIGINT
)
BEGIN
    DECLARE v_n, v_top BIGINT;
    DECLARE v_hash BIGINT DEFAULT CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, p_resource), 256), 15), 16, 10) AS SIGNED);
    DECLARE v_said LONGTEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    CALL palisade_lock(v_hash, v_n, v_top);
    CALL palisade_take_out(1, v_hash, p_namespace, p_client, p_resource, p_id, p_seq, IF(p_doubt = 1, 'withdrawn', NULL),
        p_ttl, v_n, v_top, v_said);
    COMMIT;
    IF p_doubt = 1 THEN
        CALL palisade_tidy();
    END IF;
    SELECT v_said;
END
//
DROP PROCEDURE IF EXISTS palisade_leave_each
//
-- Gives several claims back: lists of resource and id in hexadecimal digits, seq, doubt and TTL.
CREATE PROCEDURE palisade_leave_each(
    IN p_namespace VARBINARY(580), IN p_client VARBINARY(64), IN p_count INT, IN p_leaving LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
    DECLARE v_n, v_top, v_hash, v_seq, v_ttl BIGINT;
    DECLARE v_lane BIGINT DEFAULT -1;
    DECLARE v_done INT DEFAULT 0;
    DECLARE v_at, v_doubt INT;
    DECLARE v_resource VARCHAR(1160) CHARACTER SET ascii;
    DECLARE v_id BINARY(16);
    DECLARE v_said, v_all LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_leaving CURSOR FOR
        SELECT at, CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, UNHEX(resource)), 256), 15), 16, 10) AS SIGNED) AS hash, resource, UNHEX(id), seq, doubt, ttl
        FROM JSON_TABLE(p_leaving, '$[*]' COLUMNS (
            at FOR ORDINALITY, resource VARCHAR(1160) PATH '$[0]', id CHAR(32) PATH '$[1]', seq BIGINT PATH '$[2]',
            doubt INT PATH '$[3]', ttl BIGINT PATH '$[4]')) AS asked
        ORDER BY 2, 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    OPEN v_leaving;
    WHILE v_done < p_count DO
        FETCH v_leaving INTO v_at, v_hash, v_resource, v_id, v_seq, v_doubt, v_ttl;
        IF v_hash >> 50 <> v_lane THEN
            CALL palisade_lock(v_hash, v_n, v_top);
            SET v_lane = v_hash >> 50;
        END IF;
        CALL palisade_take_out(v_at, v_hash, p_namespace, p_client, UNHEX(v_resource), v_id, v_seq,
            IF(v_doubt = 1, 'withdrawn', NULL), v_ttl, v_n, v_top, v_said);
        SET v_all = CONCAT_WS('\n', v_all, v_said), v_done = v_done + 1;
    END WHILE;
    CLOSE v_leaving;
    COMMIT;
    CALL palisade_tidy();
    SELECT v_all;
END
//
DROP PROCEDURE IF EXISTS palisade_evict
//
-- Ends one claim by force; says whether there was one.
CREATE PROCEDURE palisade_evict(
    IN p_namespace VARBINARY(580), IN p_resource VARBINARY(580), IN p_id BINARY(16),
    IN p_reason MEDIUMTEXT CHARACTER SET utf8mb4
)
BEGIN
    DECLARE v_n, v_top, v_seq, v_ttl, v_now BIGINT;
    DECLARE v_hash BIGINT DEFAULT CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, p_resource), 256), 15), 16, 10) AS SIGNED);
    DECLARE v_said LONGTEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    CALL palisade_lock(v_hash, v_n, v_top);
    SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    SELECT own.seq, own.ttl INTO v_seq, v_ttl FROM palisade_claim AS own
        LEFT JOIN palisade_lease AS its ON its.client = own.client AND its.number = own.lease
        WHERE hash = v_hash AND id = p_id AND GREATEST(own.expires, COALESCE(its.expires, 0)) > v_now LIMIT 1;
    IF v_seq IS NOT NULL THEN
        CALL palisade_take_out(1, v_hash, p_namespace, NULL, p_resource, p_id, v_seq, CONCAT('evicted ', p_reason), v_ttl, v_n,
            v_top, v_said);
    END IF;
    COMMIT;
    CALL palisade_tidy();
    SELECT v_seq IS NOT NULL AND v_said NOT LIKE '1|g|%';
END
//
DROP PROCEDURE IF EXISTS palisade_forget
//
-- Removes some leases that a client does not renew any more. Not by a range, which would wait for what the same client is just
-- about to renew.
CREATE PROCEDURE palisade_forget(IN p_client VARBINARY(64))
BEGIN
    DECLARE v_past BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 60000000;
    DECLARE v_last INT DEFAULT -1;
    DECLARE v_tries INT DEFAULT 0;
    DECLARE v_found, v_locked INT;
    forgetting: WHILE v_tries < 20 DO
        SET v_tries = v_tries + 1, v_found = NULL, v_locked = NULL;
        SELECT number INTO v_found FROM palisade_lease
            WHERE client = p_client AND number > v_last AND expires <= v_past ORDER BY number LIMIT 1;
        IF v_found IS NULL THEN
            LEAVE forgetting;
        END IF;
        SET v_last = v_found;
        SELECT number INTO v_locked FROM palisade_lease
            WHERE client = p_client AND number = v_found AND expires <= v_past FOR UPDATE SKIP LOCKED;
        IF v_locked IS NOT NULL THEN
            DELETE FROM palisade_lease WHERE client = p_client AND number = v_found;
        END IF;
    END WHILE;
END
//
DROP PROCEDURE IF EXISTS palisade_renew
//
-- Renews claims, held and queued, one by one: lists of resource and id in hexadecimal digits, seq and TTL. Verdicts: v valid,
-- u unknown (note: why, if that is known).
--
-- p_lease: the number of a new lease that they are renewed by from now on, NULL if by none; all have one TTL then. Ahead:
-- by which each is.
CREATE PROCEDURE palisade_renew(
    IN p_namespace VARBINARY(580), IN p_client VARBINARY(64), IN p_lease INT, IN p_count INT,
    IN p_claims LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
    DECLARE v_hash, v_seq, v_found, v_ttl, v_now, v_expires BIGINT;
    DECLARE v_done INT DEFAULT 0;
    DECLARE v_at, v_lives, v_on INT;
    DECLARE v_client VARBINARY(64);
    DECLARE v_id BINARY(16);
    DECLARE v_note, v_all LONGTEXT CHARACTER SET utf8mb4;
    -- Rows in the order in which those who hold lanes touch them.
    DECLARE v_claims CURSOR FOR
        SELECT at, CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, UNHEX(resource)), 256), 15), 16, 10) AS SIGNED) AS hash, UNHEX(id), seq, ttl
        FROM JSON_TABLE(p_claims, '$[*]' COLUMNS (
            at FOR ORDINALITY, resource VARCHAR(1160) PATH '$[0]', id CHAR(32) PATH '$[1]', seq BIGINT PATH '$[2]',
            ttl BIGINT PATH '$[3]')) AS asked
        ORDER BY 2, 4, 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    IF p_lease IS NOT NULL THEN
        CALL palisade_forget(p_client);
        SET v_ttl = JSON_EXTRACT(p_claims, '$[0][3]');
        INSERT INTO palisade_lease VALUES (p_client, p_lease, v_ttl, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + v_ttl);
    END IF;
    OPEN v_claims;
    WHILE v_done < p_count DO
        FETCH v_claims INTO v_at, v_hash, v_id, v_seq, v_ttl;
        SET v_found = NULL, v_lives = 0, v_on = NULL, v_note = NULL;
        IF v_seq < 0 THEN
            SELECT seq INTO v_found FROM palisade_claim WHERE hash = v_hash AND id = v_id LIMIT 1;
            SET v_seq = COALESCE(v_found, -1), v_found = NULL;
        END IF;
        SELECT seq, expires, client, lease INTO v_found, v_expires, v_client, v_on FROM palisade_claim
            WHERE hash = v_hash AND seq = v_seq AND id = v_id FOR UPDATE;
        IF v_found IS NOT NULL THEN
            -- The clock is read once the row is ours: what waited for it must not end it earlier than others have said since.
            SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
            SET v_lives = v_expires > v_now;
            IF v_lives = 0 THEN
                SELECT COUNT(*) INTO v_lives FROM palisade_lease
                    WHERE client = v_client AND number = v_on AND expires > v_now;
            END IF;
            IF v_lives = 1 THEN
                -- A claim that was asked for by another client stays on its own: the lease would be looked for with that one.
                IF p_lease IS NOT NULL AND v_client = p_client THEN
                    SET v_on = GREATEST(COALESCE(v_on, 0), p_lease);
                END IF;
                UPDATE palisade_claim SET expires = v_now + v_ttl, lease = v_on WHERE hash = v_hash AND seq = v_seq;
            END IF;
            -- Not that of another client, which may have the same number.
            SET v_on = IF(v_client = p_client, v_on, NULL);
        END IF;
        IF v_lives = 0 THEN
            SELECT note INTO v_note FROM palisade_grave WHERE id = v_id;
        END IF;
        SET v_all = CONCAT_WS('\n', v_all, CONCAT_WS('|', v_at, IF(v_lives = 0, 'u', 'v'), '', '', '', '', '', COALESCE(v_on, ''), COALESCE(CONCAT('x', HEX(v_note)), ''))),
            v_done = v_done + 1;
    END WHILE;
    CLOSE v_claims;
    COMMIT;
    SELECT v_all;
END
//
DROP PROCEDURE IF EXISTS palisade_keep
//
-- Renews leases, and with each all its claims, but for those that leave: these end when they would have. p_leases: lists of
-- number and TTL, in the order of numbers; p_left: of resource and id in hexadecimal digits, seq and the number of the
-- lease. Says which were renewed, and are whole.
CREATE PROCEDURE palisade_keep(
    IN p_namespace VARBINARY(580), IN p_client VARBINARY(64), IN p_leases_count INT,
    IN p_leases LONGTEXT CHARACTER SET utf8mb4, IN p_left_count INT, IN p_left LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
    DECLARE v_hash, v_seq, v_ttl, v_now, v_ends BIGINT;
    DECLARE v_done INT DEFAULT 0;
    DECLARE v_lease, v_broken, v_kept INT;
    DECLARE v_id BINARY(16);
    DECLARE v_all LONGTEXT CHARACTER SET utf8mb4;
    DECLARE v_left CURSOR FOR
        SELECT CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, UNHEX(resource)), 256), 15), 16, 10) AS SIGNED) AS hash, UNHEX(id), seq, lease
        FROM JSON_TABLE(p_left, '$[*]' COLUMNS (
            resource VARCHAR(1160) PATH '$[0]', id CHAR(32) PATH '$[1]', seq BIGINT PATH '$[2]',
            lease INT PATH '$[3]')) AS asked
        ORDER BY 1, 3;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    -- All are locked before any claim is, in one order: two of these may be under way.
    WHILE v_done < p_leases_count DO
        SET v_lease = JSON_EXTRACT(p_leases, CONCAT('$[', v_done, '][0]')), v_done = v_done + 1;
        SELECT expires INTO v_ends FROM palisade_lease WHERE client = p_client AND number = v_lease FOR UPDATE;
    END WHILE;
    SET v_done = 0;
    OPEN v_left;
    WHILE v_done < p_left_count DO
        FETCH v_left INTO v_hash, v_id, v_seq, v_lease;
        SET v_ends = NULL;
        SELECT expires INTO v_ends FROM palisade_lease WHERE client = p_client AND number = v_lease;
        UPDATE palisade_claim SET lease = NULL, expires = GREATEST(expires, COALESCE(v_ends, 0))
            WHERE hash = v_hash AND (v_seq < 0 OR seq = v_seq) AND id = v_id AND client = p_client AND lease = v_lease;
        SET v_done = v_done + 1;
    END WHILE;
    CLOSE v_left;
    SET v_done = 0;
    WHILE v_done < p_leases_count DO
        SET v_lease = JSON_EXTRACT(p_leases, CONCAT('$[', v_done, '][0]')),
            v_ttl = JSON_EXTRACT(p_leases, CONCAT('$[', v_done, '][1]')), v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
        SELECT COUNT(*) INTO v_broken FROM palisade_breach WHERE client = p_client AND number = v_lease;
        IF v_broken = 0 THEN
            UPDATE palisade_lease SET expires = v_now + v_ttl
                WHERE client = p_client AND number = v_lease AND expires > v_now;
            -- What is set to what it was does not count as changed.
            SELECT COUNT(*) INTO v_kept FROM palisade_lease
                WHERE client = p_client AND number = v_lease AND expires = v_now + v_ttl;
            IF v_kept = 1 THEN
                SET v_all = CONCAT_WS('\n', v_all, v_lease);
            END IF;
        END IF;
        SET v_done = v_done + 1;
    END WHILE;
    COMMIT;
    SELECT v_all;
END
//
DROP PROCEDURE IF EXISTS palisade_change
//
-- Changes a claim: its value if p_mode is negative. Verdicts: d done, n not (ahead: its mode, slot: its slots, note:
-- whether held), u unknown.
CREATE PROCEDURE palisade_change(
    IN p_namespace VARBINARY(580), IN p_resource VARBINARY(580), IN p_id BINARY(16), IN p_mode INT, IN p_slots INT,
    IN p_value LONGBLOB
)
BEGIN
    DECLARE v_n, v_top, v_seq, v_now, v_expires BIGINT;
    DECLARE v_mode, v_slots, v_held, v_lease, v_waits, v_exclusive, v_shared, v_taken INT;
    DECLARE v_client VARBINARY(64);
    DECLARE v_hash BIGINT DEFAULT CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, p_resource), 256), 15), 16, 10) AS SIGNED);
    DECLARE v_verdict CHAR(1) CHARACTER SET ascii DEFAULT 'd';
    DECLARE v_note LONGTEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    CALL palisade_lock(v_hash, v_n, v_top);
    SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    SELECT seq, mode, slots, held, expires, client, lease
        INTO v_seq, v_mode, v_slots, v_held, v_expires, v_client, v_lease FROM palisade_claim
        WHERE hash = v_hash AND id = p_id LIMIT 1 FOR UPDATE;
    IF v_expires <= v_now THEN
        SELECT expires INTO v_expires FROM palisade_lease WHERE client = v_client AND number = v_lease;
        SET v_seq = IF(v_expires > v_now, v_seq, NULL);
    END IF;
    IF v_seq IS NULL THEN
        SET v_verdict = 'u';
        SELECT note INTO v_note FROM palisade_grave WHERE id = p_id;
    ELSEIF p_mode < 0 THEN
        UPDATE palisade_claim SET value = p_value WHERE hash = v_hash AND seq = v_seq;
    ELSEIF v_mode = 0 AND v_held = 1 AND p_mode = 1 THEN
        UPDATE palisade_claim SET mode = 1 WHERE hash = v_hash AND seq = v_seq;
    ELSEIF v_mode = 2 AND p_mode = 2 AND p_slots > 0 THEN
        UPDATE palisade_claim SET slots = p_slots
            WHERE hash = v_hash AND namespace = p_namespace AND resource = p_resource AND mode = 2;
    ELSEIF v_mode <> p_mode OR v_slots <> p_slots THEN
        SET v_verdict = 'n', v_note = IF(v_held = 1, 'true', 'false');
    END IF;
    IF v_verdict = 'd' THEN
        CALL palisade_settle(v_hash, p_namespace, p_resource, v_n, v_top, v_waits, v_exclusive, v_shared, v_taken);
    END IF;
    COMMIT;
    SELECT CONCAT_WS('|', 1, v_verdict, '', '', COALESCE(v_slots, ''), '', '', COALESCE(v_mode, ''), COALESCE(CONCAT('x', HEX(v_note)), ''));
END
//
DROP PROCEDURE IF EXISTS palisade_stand
//
-- How claims stand, without a change: lists of resource and id in hexadecimal digits. Verdicts: g, q, u.
CREATE PROCEDURE palisade_stand(IN p_namespace VARBINARY(580), IN p_claims LONGTEXT CHARACTER SET utf8mb4)
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    SELECT CONCAT_WS('|', found.at, IF(found.ends > v_now, IF(found.held = 1, 'g', 'q'), 'u'),
        COALESCE(IF(found.ends > v_now, found.seq, NULL), ''), COALESCE(IF(found.ends > v_now, found.token, NULL), ''),
        COALESCE(IF(found.ends > v_now, found.slot, NULL), ''), COALESCE(IF(found.ends > v_now, found.ends - v_now, NULL), ''),
        '', '', COALESCE(CONCAT('x', HEX(grave.note)), ''))
    FROM (SELECT asked.at, asked.id, own.held, own.seq, own.token, own.slot,
            GREATEST(own.expires, COALESCE(its.expires, 0)) AS ends
        FROM (SELECT at, CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, UNHEX(resource)), 256), 15), 16, 10) AS SIGNED) AS hash, UNHEX(id) AS id
            FROM JSON_TABLE(p_claims, '$[*]' COLUMNS (
                at FOR ORDINALITY, resource VARCHAR(1160) PATH '$[0]', id CHAR(32) PATH '$[1]')) AS listed) AS asked
        LEFT JOIN palisade_claim AS own ON own.hash = asked.hash AND own.id = asked.id
        LEFT JOIN palisade_lease AS its ON its.client = own.client AND its.number = own.lease) AS found
    LEFT JOIN palisade_grave AS grave ON grave.id = found.id AND NOT COALESCE(found.ends > v_now, 0);
END
//
DROP PROCEDURE IF EXISTS palisade_show
//
-- Shows claims of resources by name: of one if p_exact is not NULL, or of those that begin with a text and come after
-- another.
CREATE PROCEDURE palisade_show(
    IN p_namespace VARBINARY(580), IN p_exact VARBINARY(580), IN p_prefix VARBINARY(580), IN p_after VARBINARY(580),
    IN p_limit BIGINT
)
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    DECLARE v_some INT DEFAULT 0;
    DECLARE v_hash BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    -- As in palisade_settle: what a clock that was set back has made last too long. Not by a few seconds: what is renewed while
    -- this looks, and waits for it, must not be shortened by it.
    SELECT 1 INTO v_some FROM palisade_lease WHERE expires > v_now + ttl + 5000000 LIMIT 1;
    IF v_some = 1 THEN
        SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
        UPDATE palisade_lease SET expires = v_now + ttl WHERE expires > v_now + ttl + 5000000;
    END IF;
    IF p_exact IS NOT NULL THEN
        SET v_hash = CAST(CONV(LEFT(SHA2(CONCAT(LENGTH(p_namespace), ':', p_namespace, p_exact), 256), 15), 16, 10) AS SIGNED);
        SET v_some = 0, v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
        SELECT 1 INTO v_some FROM palisade_claim WHERE hash = v_hash AND expires > v_now + ttl + 5000000 LIMIT 1;
        IF v_some = 1 THEN
            SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
            UPDATE palisade_claim SET expires = v_now + ttl WHERE hash = v_hash AND expires > v_now + ttl + 5000000;
        END IF;
        SELECT resource, CONCAT('{"id":"', HEX(id), '","family":', family, ',"mode":', mode, ',"slots":', slots,
            ',"held":', IF(held, 'true', 'false'), ',"token":', token, ',"slot":', COALESCE(slot, 'null'),
            ',"age":', v_now - since, ',"expires_in":', GREATEST(own.expires, COALESCE(its.expires, 0)) - v_now,
            ',"owner":', JSON_QUOTE(owner), ',"value":', COALESCE(CONCAT('"', HEX(value), '"'), 'null'), '}')
            FROM palisade_claim AS own
            LEFT JOIN palisade_lease AS its ON its.client = own.client AND its.number = own.lease
            WHERE hash = v_hash AND namespace = p_namespace AND resource = p_exact
                AND (p_after IS NULL OR resource > p_after) AND GREATEST(own.expires, COALESCE(its.expires, 0)) > v_now
            ORDER BY seq;
    ELSE
        SET v_some = 0, v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
        SELECT 1 INTO v_some FROM palisade_claim
            WHERE namespace = p_namespace AND expires > v_now + ttl + 5000000 LIMIT 1;
        IF v_some = 1 THEN
            SET v_now = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
            UPDATE palisade_claim SET expires = v_now + ttl
                WHERE namespace = p_namespace AND expires > v_now + ttl + 5000000;
        END IF;
        SELECT ranked.resource, CONCAT('{"id":"', HEX(own.id), '","family":', own.family, ',"mode":', own.mode, ',"slots":', own.slots,
            ',"held":', IF(own.held, 'true', 'false'), ',"token":', own.token, ',"slot":', COALESCE(own.slot, 'null'),
            ',"age":', v_now - own.since, ',"expires_in":', ranked.ends - v_now, ',"owner":', JSON_QUOTE(own.owner),
            ',"value":', COALESCE(CONCAT('"', HEX(own.value), '"'), 'null'), '}') FROM (
            SELECT hash, seq, resource, GREATEST(claim.expires, COALESCE(its.expires, 0)) AS ends,
                DENSE_RANK() OVER (ORDER BY resource) AS place FROM palisade_claim AS claim
            LEFT JOIN palisade_lease AS its ON its.client = claim.client AND its.number = claim.lease
            WHERE namespace = p_namespace AND LEFT(resource, LENGTH(p_prefix)) = p_prefix
                AND (p_after IS NULL OR resource > p_after) AND GREATEST(claim.expires, COALESCE(its.expires, 0)) > v_now
        ) AS ranked
        JOIN palisade_claim AS own ON own.hash = ranked.hash AND own.seq = ranked.seq
        WHERE ranked.place <= p_limit ORDER BY ranked.resource, ranked.seq;
    END IF;
    COMMIT;
END
//
DROP PROCEDURE IF EXISTS palisade_sweep
//
-- Removes what was left by clients that are gone, on resources that nobody asks for any more.
CREATE PROCEDURE palisade_sweep()
BEGIN
    DECLARE v_some INT DEFAULT 0;
    DECLARE v_hash, v_seq BIGINT DEFAULT -1;
    DECLARE v_found BIGINT;
    DECLARE v_lease INT;
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    -- Not at a stricter level, at which it would lock all that it reads. Leases first: what has none any more and is past its
    -- time is over.
    SELECT 1 INTO v_some FROM palisade_lease WHERE expires <= v_now - 60000000 LIMIT 1;
    SELECT 1 INTO v_some FROM palisade_breach WHERE ends <= v_now LIMIT 1;
    IF v_some = 1 THEN
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        DELETE FROM palisade_lease WHERE expires <= v_now - 60000000;
        DELETE FROM palisade_breach WHERE ends <= v_now;
        COMMIT;
    END IF;
    -- One by one, by their keys: a DELETE that reads leases, too, would lock what it reads.
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    sweeping: LOOP
        SET v_found = NULL;
        SELECT own.hash, own.seq, own.lease INTO v_found, v_seq, v_lease FROM palisade_claim AS own
            LEFT JOIN palisade_lease AS its ON its.client = own.client AND its.number = own.lease
            WHERE own.hash >= v_hash AND NOT (own.hash = v_hash AND own.seq <= v_seq)
                AND own.expires <= v_now - 60000000 AND its.number IS NULL
            ORDER BY own.hash, own.seq LIMIT 1;
        IF v_found IS NULL THEN
            LEAVE sweeping;
        END IF;
        SET v_hash = v_found;
        DELETE FROM palisade_claim
            WHERE hash = v_hash AND seq = v_seq AND expires <= v_now - 60000000 AND lease <=> v_lease;
    END LOOP;
    COMMIT;
    CALL palisade_tidy();
END
//
DROP PROCEDURE IF EXISTS palisade_fetch
//
-- A register as it is; NULL for one that was never written.
CREATE PROCEDURE palisade_fetch(IN p_namespace VARBINARY(580), IN p_name VARBINARY(580))
BEGIN
    SELECT p_name, revision, value, version, stamp, fence, expires,
        TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now
    FROM (SELECT 1 AS one) AS always LEFT JOIN palisade_register ON namespace = p_namespace AND name = p_name;
END
//
DROP PROCEDURE IF EXISTS palisade_fetch_all
//
-- All registers whose names begin with a text.
CREATE PROCEDURE palisade_fetch_all(IN p_namespace VARBINARY(580), IN p_prefix VARBINARY(580))
BEGIN
    SELECT name, revision, value, version, stamp, fence, expires,
        TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now
    FROM palisade_register WHERE namespace = p_namespace AND LEFT(name, LENGTH(p_prefix)) = p_prefix ORDER BY name;
END
//
DROP PROCEDURE IF EXISTS palisade_store
//
-- Stores a register unless it was changed since it was read at p_revision; 0 for one that was not there.
CREATE PROCEDURE palisade_store(
    IN p_namespace VARBINARY(580), IN p_name VARBINARY(580), IN p_revision BIGINT, IN p_value LONGBLOB,
    IN p_version BIGINT, IN p_stamp BIGINT, IN p_fence LONGTEXT CHARACTER SET utf8mb4, IN p_expires BIGINT
)
BEGIN
    DECLARE v_stored INT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    IF p_revision = 0 THEN
        INSERT INTO palisade_register VALUES (p_namespace, p_name, 1, p_value, p_version, p_stamp, p_fence, p_expires)
            ON DUPLICATE KEY UPDATE revision = revision;
    ELSE
        UPDATE palisade_register SET revision = revision + 1, value = p_value, version = p_version, stamp = p_stamp,
            fence = p_fence, expires = p_expires
            WHERE namespace = p_namespace AND name = p_name AND revision = p_revision;
    END IF;
    SET v_stored = ROW_COUNT();
    COMMIT;
    SELECT v_stored;
END
//
INSERT IGNORE INTO palisade_meta (one, version, origin, since)
    VALUES (1, {version}, CONCAT('mysql-', UUID()), TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)))
//
UPDATE palisade_meta SET version = {version} WHERE version < {version}
//
DROP PROCEDURE IF EXISTS palisade_hello
//
-- Who this is, and for how many microseconds it has remembered what it granted: not from before its start if it does not
-- wait for its disk. Made last: where it is, the rest is there, too.
CREATE PROCEDURE palisade_hello(IN p_uptime BIGINT)
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6));
    DECLARE v_server VARCHAR(255) CHARACTER SET utf8mb4 DEFAULT CONCAT(@@server_id, '@', @@hostname, ':', @@port);
    IF NOT EXISTS (SELECT 1 FROM palisade_meta WHERE server = v_server) THEN
        UPDATE palisade_meta SET since = IF(server IS NULL, since, v_now), server = v_server;
    END IF;
    SELECT version, origin,
        GREATEST(LEAST(v_now - since, IF(@@innodb_flush_log_at_trx_commit = 1, v_now, p_uptime * 1000000)), 0)
    FROM palisade_meta;
END
//
