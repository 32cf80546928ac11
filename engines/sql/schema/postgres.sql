-- Palisade's schema for PostgreSQL, version 1.
--
-- Whoever may use the schema (GRANT USAGE) may run the functions that are SECURITY DEFINER, and needs no right on
-- anything else here.
--
-- Each verb is one function, hence one statement and one transaction. It takes the locks of its resources first, in
-- the order of their keys; what it reads afterwards is what counts, because in PL/pgSQL, at read committed, each
-- inner statement has a snapshot of its own.
--
-- None waits for a lock for long, whatever a session is set to: others' statements wait behind it. What is undone by that
-- is asked for again.

SET LOCAL search_path = pg_catalog, {schema}, pg_temp;

CREATE TABLE {schema}.meta (
    version int NOT NULL,
    -- The timeline of the last one that arrived, and since when it is known. A later one begins without what was granted
    -- last; so does a schema that was just made.
    timeline text,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO {schema}.meta (version) VALUES ({version});

-- Places in queues and tokens. Never falls; the token of a later timeline is greater than all of an earlier one.
CREATE SEQUENCE {schema}.number AS bigint MINVALUE 1 NO CYCLE;

CREATE TABLE {schema}.claim (
    -- A hash of namespace and resource. Two resources may share one, and then wait for each other for a moment.
    key bigint NOT NULL,
    -- The order of arrival.
    seq bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    id uuid NOT NULL,
    -- Who is told that it is its turn: on channel palisade_CLIENT, unless it begins with a minus.
    client text NOT NULL,
    family smallint NOT NULL,
    -- 0 exclusive, 1 shared, 2 one of so many slots.
    mode smallint NOT NULL,
    slots int NOT NULL,
    held boolean NOT NULL,
    -- Its token, or while it waits, what its token must exceed.
    token bigint NOT NULL,
    slot int,
    ttl interval NOT NULL,
    -- It lasts until then, or until its lease ends, whichever is later.
    expires timestamptz NOT NULL,
    since timestamptz NOT NULL,
    owner text NOT NULL,
    value bytea,
    -- Its client's lease of this number, if it was ever renewed together with others.
    lease int,
    PRIMARY KEY (key, seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- What many claims of one client, and of one TTL, are renewed by. A lease that has ended is never renewed: whoever finds
-- it so removes it first. A number is used once, and a claim moves to greater ones only: a statement that comes late
-- takes nothing back.
--
-- Whoever touches several tables locks rows of this one first, then resources, then claims; who holds a resource never
-- waits for a lease.
CREATE TABLE {schema}.lease (
    client text NOT NULL,
    number int NOT NULL,
    ttl interval NOT NULL,
    expires timestamptz NOT NULL,
    PRIMARY KEY (client, number)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Leases of which a claim was ended by somebody else: its client must ask for each of them.
CREATE TABLE {schema}.breach (
    client text NOT NULL,
    number int NOT NULL,
    until timestamptz NOT NULL
);
CREATE INDEX breach_lease ON {schema}.breach (client, number);

-- Claims with their ends.
CREATE VIEW {schema}.living AS
    SELECT claim.*, greatest(claim.expires, lease.expires) AS ends
    FROM {schema}.claim LEFT JOIN {schema}.lease ON lease.client = claim.client AND lease.number = claim.lease;

-- Claims that must not come in any more, and why.
CREATE TABLE {schema}.grave (
    id uuid PRIMARY KEY,
    note text NOT NULL,
    until timestamptz NOT NULL
);
CREATE INDEX grave_until ON {schema}.grave (until);

CREATE TABLE {schema}.register (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- Rises with every change of this row, also of the fence alone.
    revision bigint NOT NULL,
    value bytea,
    version bigint NOT NULL,
    stamp bigint,
    fence text NOT NULL,
    expires timestamptz,
    PRIMARY KEY (namespace, name)
);

CREATE TYPE {schema}.answer AS (
    at int,
    verdict text,
    seq bigint,
    token bigint,
    slot int,
    -- Microseconds until the claim expires, and until one ahead of it does.
    remains bigint,
    look bigint,
    ahead int,
    note text
);

-- Who is inside, and whether somebody waits.
CREATE TYPE {schema}.front AS (waits boolean, exclusive boolean, shared int, slots int[]);

CREATE FUNCTION {schema}.key_of(p_namespace text, p_resource text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(p_resource, hashtextextended(p_namespace, 8246151))
$$;

CREATE FUNCTION {schema}.micros(p_interval interval) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM p_interval) * 1000000)::bigint
$$;

-- Whether a server or a role is set to what our decisions must not depend on. Written so that callers take it in.
CREATE FUNCTION {schema}.unsafe() RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
$$;

CREATE FUNCTION {schema}.guard() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'Palisade needs the isolation level read committed, not %', current_setting('transaction_isolation')
            USING ERRCODE = 'PA001';
    END IF;
    -- What is told as granted must not be forgotten by a crash.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- Whether this session was set up by `set_up_session` for this very schema, and nobody has changed since what our decisions
-- must not depend on.
CREATE FUNCTION {schema}.is_set_up() RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(current_setting('palisade.set_up_for', true), '') = 'number'::regclass::oid::text AND NOT unsafe()
$$;

-- Sets a transaction up for functions that look for claims. What a function itself sets, it sets for each call, which takes a good part
-- of the time that those take.
CREATE FUNCTION {schema}.set_up() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM guard();
    PERFORM set_config('lock_timeout', '1s', true);
    -- By its index, however small the server believes a table to be that is rewritten all the time: it would read all that
    -- was there since it last looked.
    PERFORM set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true);
END
$$;

-- A token above all that were given before, and above p_floor.
CREATE FUNCTION {schema}.next_token(p_floor bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    token bigint := nextval('number');
    least_one bigint := p_floor;
BEGIN
    IF NOT is_set_up() THEN
        -- The timeline is what tells a promoted replica, and a restored backup, from its past. Far enough apart that floors
        -- made of microseconds, as a quorum's are, do not reach from one to the next.
        least_one := greatest(p_floor,
            least(('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, 1023) << 52);
    END IF;
    IF token > least_one THEN
        RETURN token;
    END IF;
    PERFORM pg_advisory_xact_lock(key_of('', 'palisade number'));
    token := nextval('number');
    IF token <= least_one THEN
        -- Others draw numbers meanwhile, without this lock: nowhere near so many.
        PERFORM setval('number', least_one + 1048576);
        token := nextval('number');
    END IF;
    RETURN token;
END
$$;

-- Sets a session up that is its client's alone, once for all: as `set_up` does, and with tokens above those of earlier
-- timelines. There is no other timeline while a session lasts that writes.
CREATE FUNCTION {schema}.set_up_session() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
BEGIN
    PERFORM guard();
    PERFORM set_config('synchronous_commit', current_setting('synchronous_commit'), false),
        set_config('default_transaction_isolation', 'read committed', false),
        set_config('lock_timeout', '1s', false), set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false);
    PERFORM next_token(0);
    PERFORM set_config('palisade.set_up_for', 'number'::regclass::oid::text, false);
END
$$;

-- The slot that a claim may take, -1 if it needs none, NULL if it may not come in. The rule of `Occupancy` in core.
CREATE FUNCTION {schema}.room(p_front {schema}.front, p_mode smallint, p_slots int) RETURNS int
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF (p_front).exclusive THEN
        RETURN NULL;
    ELSIF p_mode = 0 THEN
        RETURN CASE WHEN (p_front).shared = 0 AND cardinality((p_front).slots) = 0 THEN -1 END;
    ELSIF p_mode = 1 THEN
        RETURN CASE WHEN cardinality((p_front).slots) = 0 THEN -1 END;
    ELSIF (p_front).shared > 0 OR cardinality((p_front).slots) >= p_slots THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT min(slot) FROM generate_series(0, cardinality((p_front).slots)) AS slot
        WHERE slot < p_slots AND slot <> ALL ((p_front).slots));
END
$$;

-- Shortens a lease that a clock which was set back has made last too long: from now on it has the time that it was ever
-- promised. While somebody is about to renew it, there is no need.
CREATE FUNCTION {schema}.shorten(p_client text, p_number int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lease SET expires = clock_timestamp() + ttl WHERE (client, number) IN
        (SELECT client, number FROM lease WHERE client = p_client AND number = p_number
            AND expires > clock_timestamp() + ttl FOR UPDATE SKIP LOCKED);
END
$$;

-- Whether a lease has ended. If so it is no more afterwards; while somebody is about to renew it, it has not.
CREATE FUNCTION {schema}.is_over(p_client text, p_number int) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM lease WHERE (client, number) IN
        (SELECT client, number FROM lease WHERE client = p_client AND number = p_number AND expires <= clock_timestamp()
            FOR UPDATE SKIP LOCKED);
    PERFORM shorten(p_client, p_number);
    RETURN NOT EXISTS (SELECT FROM lease WHERE client = p_client AND number = p_number);
END
$$;

-- Brings the front of a queue in order: what has expired goes, and those whose turn it is come in.
CREATE FUNCTION {schema}.settle(p_key bigint, p_namespace text, p_resource text) RETURNS {schema}.front
LANGUAGE plpgsql AS $$
DECLARE
    front front := (false, false, 0, '{}');
    line record;
    place int;
    drawn bigint;
BEGIN
    FOR line IN
        SELECT seq, id, client, mode, slots, held, token, slot, ttl, expires, lease,
            (SELECT its.expires > clock_timestamp() + its.ttl FROM lease AS its
                WHERE its.client = claim.client AND its.number = claim.lease) AS leased_for_too_long FROM claim
        WHERE key = p_key AND namespace = p_namespace AND resource = p_resource ORDER BY seq
    LOOP
        -- At the first look, not only once the claim itself is over: it would last for a TTL more.
        IF line.leased_for_too_long THEN
            PERFORM shorten(line.client, line.lease);
        END IF;
        IF line.expires <= clock_timestamp() THEN
            -- It may be renewed at this very moment: then its row is looked at again as it is afterwards.
            DELETE FROM claim WHERE key = p_key AND seq = line.seq AND expires <= clock_timestamp()
                AND (lease IS NULL OR is_over(client, lease));
            CONTINUE WHEN FOUND OR NOT EXISTS (SELECT FROM claim WHERE key = p_key AND seq = line.seq);
        ELSIF line.expires > clock_timestamp() + line.ttl THEN
            -- The clock was set back: from now on the claim has the time that it was ever promised.
            UPDATE claim SET expires = least(expires, clock_timestamp() + ttl) WHERE key = p_key AND seq = line.seq;
        END IF;
        IF line.held THEN
            place := coalesce(line.slot, -1);
        ELSE
            place := room(front, line.mode, line.slots);
            IF place IS NULL THEN
                front.waits := true;
                EXIT;
            END IF;
            -- Drawn now: of two grants that exclude each other the later one has the greater token. The end stays
            -- as the last renewal set it.
            drawn := next_token(line.token);
            UPDATE claim SET held = true, token = drawn, slot = nullif(place, -1), since = clock_timestamp()
                WHERE key = p_key AND seq = line.seq;
            IF left(line.client, 1) <> '-' THEN
                PERFORM pg_notify('palisade_' || line.client, concat_ws(' ', 'G', line.id, drawn, place));
            END IF;
        END IF;
        IF line.mode = 0 THEN
            front.exclusive := true;
        ELSIF line.mode = 1 THEN
            front.shared := front.shared + 1;
        ELSE
            front.slots := front.slots || place;
        END IF;
    END LOOP;
    RETURN front;
END
$$;

-- Decides about one claim; its resource is locked. p_how: 0 it will not wait, 1 it will, 2 only if it is known.
--
-- Verdicts: g granted, q queued, b busy (note: who holds), c another number of slots is in force (ahead: which),
-- l must not come in (note: why), u unknown (note: why, if that is known).
CREATE FUNCTION {schema}.decide(
    p_key bigint, p_namespace text, p_client text, p_resource text, p_id uuid, p_how smallint, p_family smallint,
    p_mode smallint, p_slots int, p_ttl bigint, p_floor bigint, p_owner text, p_value bytea
) RETURNS {schema}.answer
LANGUAGE plpgsql AS $$
DECLARE
    said answer;
    free boolean := true;
    front front;
    own record;
    place int;
    now timestamptz;
    span interval := p_ttl * interval '1 microsecond';
BEGIN
    IF EXISTS (SELECT FROM claim WHERE key = p_key) THEN
        free := false;
        -- Three times at most: what is expired and about to be renewed is not waited for, and has no time left meanwhile.
        FOR tries IN 1 .. 3 LOOP
            front := settle(p_key, p_namespace, p_resource);
            now := clock_timestamp();
            SELECT seq, held, token, slot, ends INTO own FROM living WHERE key = p_key AND id = p_id;
            EXIT WHEN own.seq IS NULL OR own.ends > now;
            -- It expired just now, unless it is renewed at this very moment: either way all is looked at again.
            DELETE FROM claim WHERE key = p_key AND seq = own.seq AND expires <= clock_timestamp()
                AND (lease IS NULL OR is_over(client, lease));
        END LOOP;
        IF own.seq IS NOT NULL THEN
            said.seq := own.seq;
            said.remains := micros(own.ends - now);
            IF own.held THEN
                said.verdict := 'g';
                said.token := own.token;
                said.slot := own.slot;
                IF own.token <= p_floor THEN
                    said.token := next_token(p_floor);
                    UPDATE claim SET token = said.token WHERE key = p_key AND seq = own.seq;
                END IF;
                RETURN said;
            END IF;
            RETURN queued(said, p_key, p_namespace, p_resource);
        END IF;
    END IF;
    SELECT note INTO said.note FROM grave WHERE id = p_id;
    IF FOUND OR p_how = 2 THEN
        said.verdict := CASE WHEN p_how = 2 THEN 'u' ELSE 'l' END;
        RETURN said;
    END IF;
    IF p_mode = 2 AND NOT free AND (front.waits OR cardinality(front.slots) > 0) THEN
        SELECT slots INTO said.ahead FROM living
            WHERE key = p_key AND namespace = p_namespace AND resource = p_resource AND mode = 2
                AND ends > clock_timestamp() AND slots <> p_slots LIMIT 1;
        IF FOUND THEN
            said.verdict := 'c';
            RETURN said;
        END IF;
    END IF;
    IF free THEN
        place := CASE WHEN p_mode = 2 THEN 0 ELSE -1 END;
    ELSIF NOT front.waits THEN
        place := room(front, p_mode, p_slots);
    END IF;
    IF place IS NULL AND p_how = 0 THEN
        said.verdict := 'b';
        said.note := holders(p_key, p_namespace, p_resource);
        RETURN said;
    END IF;
    IF place IS NULL THEN
        said.seq := nextval('number');
        said.token := p_floor;
    ELSE
        said.verdict := 'g';
        said.token := next_token(p_floor);
        said.seq := said.token;
        said.slot := nullif(place, -1);
    END IF;
    now := clock_timestamp();
    INSERT INTO claim VALUES (p_key, said.seq, p_namespace, p_resource, p_id, p_client, p_family, p_mode, p_slots,
        place IS NOT NULL, said.token, said.slot, span, now + span, now, p_owner, p_value);
    said.remains := p_ttl;
    IF place IS NULL THEN
        RETURN queued(said, p_key, p_namespace, p_resource);
    END IF;
    RETURN said;
END
$$;

-- Says how a claim waits: behind how many, and when to look again because one ahead may have expired. At once if the
-- last one ahead expired since the front was settled: nobody else would look.
CREATE FUNCTION {schema}.queued(p_said {schema}.answer, p_key bigint, p_namespace text, p_resource text)
RETURNS {schema}.answer
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := clock_timestamp();
BEGIN
    p_said.verdict := 'q';
    SELECT count(*) FILTER (WHERE NOT held), coalesce(micros(min(least(ends, now + ttl)) - now), 0)
        INTO p_said.ahead, p_said.look FROM living
        WHERE key = p_key AND namespace = p_namespace AND resource = p_resource AND seq < p_said.seq
            AND ends > now;
    RETURN p_said;
END
$$;

CREATE VIEW {schema}.shown AS
    SELECT key, namespace, resource, seq, ends, json_build_object(
        'id', id, 'family', family, 'mode', mode, 'slots', slots, 'held', held, 'token', token, 'slot', slot,
        'age', {schema}.micros(clock_timestamp() - since), 'expires_in', {schema}.micros(ends - clock_timestamp()),
        'owner', owner, 'value', encode(value, 'hex'))::text AS claim, held
    FROM {schema}.living;

CREATE FUNCTION {schema}.holders(p_key bigint, p_namespace text, p_resource text) RETURNS text
LANGUAGE sql AS $$
    SELECT '[' || coalesce(string_agg(claim, ',' ORDER BY seq), '') || ']' FROM {schema}.shown
    WHERE key = p_key AND namespace = p_namespace AND resource = p_resource AND held AND ends > clock_timestamp()
$$;

-- Who this is, and who counts its tokens: a dump that is restored, here or elsewhere, is another source.
--
-- And for how many microseconds it has remembered what it granted: not from before its timeline, nor from before its start
-- if it does not wait for its disk.
CREATE FUNCTION {schema}.hello() RETURNS TABLE (version int, source text, remembers bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    line text := left(pg_walfile_name(pg_current_wal_lsn()), 8);
BEGIN
    UPDATE meta SET timeline = line, since = CASE WHEN timeline IS NULL THEN since ELSE clock_timestamp() END
        WHERE timeline IS DISTINCT FROM line;
    RETURN QUERY SELECT meta.version,
        concat_ws('-', 'postgres', to_hex(system_identifier), base.oid, 'number'::regclass::oid),
        micros(greatest(clock_timestamp() - CASE WHEN current_setting('fsync') = 'on' THEN since
            ELSE greatest(since, pg_postmaster_start_time()) END, interval '0'))
    FROM meta, pg_control_system(), pg_database AS base WHERE base.datname = current_database();
END
$$;

-- Locks resources, in the order of their keys, so that two who lock several never wait for each other.
CREATE FUNCTION {schema}.lock_all(p_namespace text, p_resource text[]) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT count(pg_advisory_xact_lock(key)) FROM (SELECT DISTINCT key_of(p_namespace, resource) AS key
        FROM unnest(p_resource) AS asked (resource) ORDER BY 1 OFFSET 0) AS in_order);
END
$$;

-- Asks for claims, or after claims that are known.
CREATE FUNCTION {schema}.ask(
    p_namespace text, p_client text, p_owner text, p_resource text[], p_id uuid[], p_how smallint[],
    p_family smallint[], p_mode smallint[], p_slots int[], p_ttl bigint[], p_floor bigint[], p_value bytea[]
) RETURNS SETOF {schema}.answer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s'
-- By its index, however little the server knows of a table that is rewritten all the time. Where there is no other way than
-- one that is off, the server takes it for so expensive that it compiles it first, for up to a second.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    said answer;
    one record;
    own_key bigint;
    nothing text;
    now timestamptz;
    done int[];
    drawn bigint[];
BEGIN
    IF unsafe() THEN
        PERFORM guard();
    END IF;
    -- An assignment is faster than PERFORM, here and below.
    IF cardinality(p_id) = 1 THEN
        own_key := key_of(p_namespace, p_resource[1]);
        nothing := pg_advisory_xact_lock(own_key);
        said := decide(own_key, p_namespace, p_client, p_resource[1], p_id[1], p_how[1], p_family[1], p_mode[1],
            p_slots[1], p_ttl[1], p_floor[1], p_owner, p_value[1]);
        said.at := 1;
        RETURN NEXT said;
        RETURN;
    END IF;
    nothing := lock_all(p_namespace, p_resource);
    -- What is free is taken by one statement, and of those who want the same resource by the first: the statement does not see
    -- what it has done. What is drawn after a number that is greater than all floors is so, too.
    nothing := next_token((SELECT max(floor) FROM unnest(p_floor) AS asked (floor)));
    now := clock_timestamp();
    WITH taken AS (
        INSERT INTO claim SELECT free.key, free.drawn, p_namespace, p_resource[free.at], p_id[free.at], p_client,
                p_family[free.at], p_mode[free.at], p_slots[free.at], true, free.drawn, NULL,
                p_ttl[free.at] * interval '1 microsecond', now + p_ttl[free.at] * interval '1 microsecond', now,
                p_owner, p_value[free.at], NULL
            FROM (SELECT first.key, first.at, nextval('number') AS drawn
                FROM (SELECT DISTINCT ON (1) key_of(p_namespace, resource) AS key, at::int
                    FROM unnest(p_resource) WITH ORDINALITY AS asked (resource, at) ORDER BY 1, 2) AS first
                WHERE p_how[first.at] < 2 AND p_mode[first.at] < 2
                    AND NOT EXISTS (SELECT FROM claim WHERE claim.key = first.key)
                    AND NOT EXISTS (SELECT FROM grave WHERE grave.id = p_id[first.at]) OFFSET 0) AS free
            RETURNING id, seq
    )
    SELECT coalesce(array_agg(array_position(p_id, id)), '{}'), coalesce(array_agg(seq), '{}') INTO done, drawn FROM taken;
    RETURN QUERY SELECT granted.at, 'g', granted.seq, granted.seq, NULL::int, p_ttl[granted.at], NULL::bigint, NULL::int,
            NULL::text
        FROM unnest(done, drawn) AS granted (at, seq);
    IF cardinality(done) = cardinality(p_id) THEN
        RETURN;
    END IF;
    FOR one IN
        SELECT at::int, key_of(p_namespace, resource) AS key FROM unnest(p_resource) WITH ORDINALITY AS asked (resource, at)
        WHERE at <> ALL (done) ORDER BY 2, 1
    LOOP
        said := decide(one.key, p_namespace, p_client, p_resource[one.at], p_id[one.at], p_how[one.at],
            p_family[one.at], p_mode[one.at], p_slots[one.at], p_ttl[one.at], p_floor[one.at], p_owner,
            p_value[one.at]);
        said.at := one.at;
        RETURN NEXT said;
    END LOOP;
END
$$;

-- Takes one claim out; its resource is locked. Verdicts: r released, q left the queue, g was gone.
--
-- p_client: who asks for it, NULL if by force. Whoever else it belonged to must not renew it unseen.
CREATE FUNCTION {schema}.take_out(
    p_key bigint, p_namespace text, p_client text, p_resource text, p_id uuid, p_seq bigint, p_note text, p_keep bigint
) RETURNS {schema}.answer
LANGUAGE plpgsql AS $$
DECLARE
    said answer;
    line record;
BEGIN
    IF p_seq IS NULL THEN
        DELETE FROM claim WHERE key = p_key AND id = p_id
            RETURNING held, client, expires, ttl, lease INTO line;
    ELSE
        DELETE FROM claim WHERE key = p_key AND seq = p_seq AND id = p_id
            RETURNING held, client, expires, ttl, lease INTO line;
    END IF;
    IF line.lease IS NOT NULL THEN
        line.expires := greatest(line.expires,
            (SELECT lease.expires FROM lease WHERE lease.client = line.client AND lease.number = line.lease));
        IF line.client IS DISTINCT FROM p_client THEN
            INSERT INTO breach VALUES (line.client, line.lease, clock_timestamp() + 2 * line.ttl + interval '1 minute');
        END IF;
    END IF;
    said.verdict := CASE WHEN line.held IS NULL OR line.expires <= clock_timestamp() THEN 'g'
        WHEN line.held THEN 'r' ELSE 'q' END;
    IF p_note IS NOT NULL OR line.held IS NULL THEN
        -- Not one that somebody else is about to remove: two who each hold a resource would wait for each other.
        DELETE FROM grave WHERE id IN
            (SELECT id FROM grave WHERE until <= clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED);
        INSERT INTO grave VALUES (p_id, coalesce(p_note, 'withdrawn'), clock_timestamp()
            + greatest(p_keep * interval '1 microsecond', interval '1 minute')) ON CONFLICT DO NOTHING;
    END IF;
    IF line.held IS NOT NULL AND EXISTS (SELECT FROM claim WHERE key = p_key) THEN
        PERFORM settle(p_key, p_namespace, p_resource);
    END IF;
    said.note := line.client;
    RETURN said;
END
$$;

-- Gives claims back. p_doubt: whether one may be on its way more than once.
CREATE FUNCTION {schema}.leave(
    p_namespace text, p_client text, p_resource text[], p_id uuid[], p_seq bigint[], p_doubt boolean[], p_ttl bigint[]
) RETURNS SETOF {schema}.answer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    said answer;
    one record;
    own_key bigint;
    nothing text;
    done int[];
BEGIN
    IF unsafe() THEN
        PERFORM guard();
    END IF;
    IF cardinality(p_id) = 1 THEN
        own_key := key_of(p_namespace, p_resource[1]);
        nothing := pg_advisory_xact_lock(own_key);
        said := take_out(own_key, p_namespace, p_client, p_resource[1], p_id[1], p_seq[1],
            CASE WHEN p_doubt[1] THEN 'withdrawn' END, p_ttl[1]);
        said.at := 1;
        RETURN NEXT said;
        RETURN;
    END IF;
    nothing := lock_all(p_namespace, p_resource);
    -- In the order in which all touch them, also who renews, and has no locks of resources.
    PERFORM FROM claim JOIN (SELECT key_of(p_namespace, resource) AS key, at::int
            FROM unnest(p_resource) WITH ORDINALITY AS asked (resource, at) OFFSET 0) AS given
        ON claim.key = given.key AND claim.id = p_id[given.at]
        ORDER BY claim.key, claim.seq FOR UPDATE OF claim;
    -- What is held, and nobody else is there, is deleted by one statement.
    WITH gone AS (
        DELETE FROM claim USING (SELECT key_of(p_namespace, resource) AS key, at::int
                FROM unnest(p_resource) WITH ORDINALITY AS asked (resource, at) OFFSET 0) AS given
            WHERE claim.key = given.key AND claim.seq = p_seq[given.at] AND claim.id = p_id[given.at]
                AND NOT p_doubt[given.at] AND claim.held AND claim.lease IS NULL AND claim.expires > clock_timestamp()
                AND NOT EXISTS (SELECT FROM claim AS other WHERE other.key = given.key AND other.seq <> claim.seq)
            RETURNING given.at
    )
    SELECT coalesce(array_agg(at), '{}') INTO done FROM gone;
    RETURN QUERY SELECT given.at, 'r', NULL::bigint, NULL::bigint, NULL::int, NULL::bigint, NULL::bigint, NULL::int, p_client
        FROM unnest(done) AS given (at);
    IF cardinality(done) = cardinality(p_id) THEN
        RETURN;
    END IF;
    FOR one IN
        SELECT at::int, key_of(p_namespace, resource) AS key FROM unnest(p_resource) WITH ORDINALITY AS asked (resource, at)
        WHERE at <> ALL (done) ORDER BY 2, 1
    LOOP
        said := take_out(one.key, p_namespace, p_client, p_resource[one.at], p_id[one.at], p_seq[one.at],
            CASE WHEN p_doubt[one.at] THEN 'withdrawn' END, p_ttl[one.at]);
        said.at := one.at;
        RETURN NEXT said;
    END LOOP;
END
$$;

-- An answer about one claim as a text, which is faster to give than a row. The note is last: it may hold anything.
CREATE FUNCTION {schema}.text_of(p_said {schema}.answer) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN concat((p_said).verdict, '|', (p_said).seq, '|', (p_said).token, '|', (p_said).slot, '|', (p_said).remains, '|',
        (p_said).look, '|', (p_said).ahead, '|', (p_said).note);
END
$$;

-- As `ask`, for one claim: what happens most, with as few steps as can be.
CREATE FUNCTION {schema}.take(
    p_namespace text, p_client text, p_owner text, p_resource text, p_id uuid, p_how smallint,
    p_family smallint, p_mode smallint, p_slots int, p_ttl bigint, p_floor bigint, p_value bytea
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    ready boolean := is_set_up();
    own_key bigint := key_of(p_namespace, p_resource);
    nothing text;
    now timestamptz;
    drawn bigint;
BEGIN
    IF NOT ready THEN
        PERFORM set_up();
    END IF;
    nothing := pg_advisory_xact_lock(own_key);
    IF p_how < 2 AND p_mode < 2 THEN
        now := clock_timestamp();
        INSERT INTO claim SELECT own_key, free.drawn, p_namespace, p_resource, p_id, p_client, p_family, p_mode, p_slots,
                true, free.drawn, NULL, p_ttl * interval '1 microsecond', now + p_ttl * interval '1 microsecond', now,
                p_owner, p_value, NULL
            FROM (SELECT CASE WHEN ready AND p_floor = 0 THEN nextval('number') ELSE next_token(p_floor) END AS drawn
                WHERE NOT EXISTS (SELECT FROM claim WHERE key = own_key)
                AND NOT EXISTS (SELECT FROM grave WHERE id = p_id)) AS free
            RETURNING seq INTO drawn;
        IF drawn IS NOT NULL THEN
            RETURN concat('g|', drawn, '|', drawn, '||', p_ttl, '|||');
        END IF;
    END IF;
    RETURN text_of(decide(own_key, p_namespace, p_client, p_resource, p_id, p_how, p_family, p_mode, p_slots, p_ttl,
        p_floor, p_owner, p_value));
END
$$;

-- As `leave`, for one claim.
CREATE FUNCTION {schema}.give(
    p_namespace text, p_client text, p_resource text, p_id uuid, p_seq bigint, p_doubt boolean, p_ttl bigint
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    own_key bigint := key_of(p_namespace, p_resource);
    nothing text;
    was_held boolean;
    others boolean;
    next record;
BEGIN
    IF NOT is_set_up() THEN
        PERFORM set_up();
    END IF;
    nothing := pg_advisory_xact_lock(own_key);
    IF NOT p_doubt THEN
        DELETE FROM claim WHERE key = own_key AND seq = p_seq AND id = p_id AND lease IS NULL
                AND expires > clock_timestamp()
            RETURNING held, EXISTS (SELECT FROM claim AS other WHERE other.key = own_key AND other.seq <> p_seq)
            INTO was_held, others;
        IF others THEN
            -- To the next in line, if that is plain to see; by `settle` if not.
            UPDATE claim SET held = true, token = next_token(token), since = clock_timestamp()
                WHERE key = own_key AND seq = (SELECT min(seq) FROM claim WHERE key = own_key)
                    AND namespace = p_namespace AND resource = p_resource AND NOT held AND mode = 0
                    AND expires > clock_timestamp() AND expires <= clock_timestamp() + ttl
                RETURNING id, client, token INTO next;
            IF next.id IS NULL THEN
                PERFORM settle(own_key, p_namespace, p_resource);
            ELSIF left(next.client, 1) <> '-' THEN
                nothing := pg_notify('palisade_' || next.client, concat('G ', next.id, ' ', next.token, ' -1'));
            END IF;
        END IF;
        IF was_held IS NOT NULL THEN
            RETURN CASE WHEN was_held THEN 'r|||||||' ELSE 'q|||||||' END;
        END IF;
    END IF;
    RETURN text_of(take_out(own_key, p_namespace, p_client, p_resource, p_id, p_seq,
        CASE WHEN p_doubt THEN 'withdrawn' END, p_ttl));
END
$$;

-- Goes through a hand-over and takes it back: a session plans each statement when it first comes to it, which would make
-- the first hand-over of each slow.
CREATE FUNCTION {schema}.warm() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    place text := gen_random_uuid();
    own uuid := gen_random_uuid();
    next uuid := gen_random_uuid();
    said text;
BEGIN
    said := take('', 'warm', '', place, own, 1::smallint, 0::smallint, 0::smallint, 0, 1000000, 0, NULL);
    PERFORM take('', 'warm', '', place, next, 1::smallint, 0::smallint, 0::smallint, 0, 1000000, 0, NULL);
    PERFORM give('', 'warm', place, own, split_part(said, '|', 2)::bigint, false, 1000000);
    RAISE EXCEPTION 'taken back' USING ERRCODE = 'PA002';
EXCEPTION WHEN SQLSTATE 'PA002' THEN
    RETURN;
END
$$;

-- Ends one claim by force.
CREATE FUNCTION {schema}.evict(p_namespace text, p_resource text, p_id uuid, p_reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    own_key bigint := key_of(p_namespace, p_resource);
    own record;
    said answer;
BEGIN
    IF NOT is_set_up() THEN
        PERFORM set_up();
    END IF;
    PERFORM pg_advisory_xact_lock(own_key);
    SELECT seq, client, micros(ttl) AS ttl INTO own FROM living
        WHERE key = own_key AND id = p_id AND ends > clock_timestamp();
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    said := take_out(own_key, p_namespace, NULL, p_resource, p_id, own.seq, 'evicted ' || p_reason, own.ttl);
    IF said.verdict = 'g' THEN
        RETURN false;
    END IF;
    IF left(own.client, 1) <> '-' THEN
        -- A message has an end; who is told too little looks for itself.
        PERFORM pg_notify('palisade_' || own.client, concat_ws(' ', 'X', p_id, left(p_reason, 1000)));
    END IF;
    RETURN true;
END
$$;

-- Renews claims, held and queued, one by one. Verdicts: v valid, u unknown (note: why, if that is known).
--
-- p_lease: the number of a new lease that the claim is renewed by from now on, NULL if by none. Ahead: by which it is.
CREATE FUNCTION {schema}.renew(
    p_namespace text, p_client text, p_resource text[], p_id uuid[], p_seq bigint[], p_ttl bigint[], p_lease int[]
) RETURNS SETOF {schema}.answer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    said answer;
    one record;
BEGIN
    IF NOT is_set_up() THEN
        PERFORM set_up();
    END IF;
    IF array_position(p_lease, NULL::int) IS NULL THEN
        -- Those that nobody renews any more.
        DELETE FROM lease WHERE (client, number) IN
            (SELECT client, number FROM lease WHERE client = p_client AND expires <= clock_timestamp() - interval '1 minute'
                FOR UPDATE SKIP LOCKED);
    END IF;
    INSERT INTO lease SELECT p_client, number, max(ttl) * interval '1 microsecond',
            clock_timestamp() + max(ttl) * interval '1 microsecond'
        FROM unnest(p_lease, p_ttl) AS asked (number, ttl) WHERE number IS NOT NULL GROUP BY number;
    -- Rows in the order in which those who hold the locks of resources touch them.
    FOR one IN
        SELECT at::int, key_of(p_namespace, resource) AS key, seq, id, ttl * interval '1 microsecond' AS span, lease
        FROM unnest(p_resource, p_seq, p_id, p_ttl, p_lease) WITH ORDINALITY AS asked (resource, seq, id, ttl, lease, at)
        ORDER BY 2, 3, 1
    LOOP
        -- The clock is read again if another's change was waited for. A claim that was asked for by another client stays
        -- on its own: the lease would be looked for with that one.
        UPDATE claim SET expires = clock_timestamp() + one.span,
                lease = CASE WHEN client = p_client THEN greatest(lease, one.lease) ELSE lease END
            WHERE key = one.key AND seq BETWEEN coalesce(one.seq, 0) AND coalesce(one.seq, 9223372036854775807)
                AND id = one.id AND (expires > clock_timestamp()
                OR EXISTS (SELECT FROM lease AS its WHERE its.client = claim.client AND its.number = claim.lease
                    AND its.expires > clock_timestamp()))
            -- Not of one that is on a lease of another client, which may have the same number.
            RETURNING CASE WHEN client = p_client THEN lease END INTO said.ahead;
        said.at := one.at;
        said.verdict := 'v';
        said.note := NULL;
        IF NOT FOUND THEN
            said.verdict := 'u';
            SELECT note INTO said.note FROM grave WHERE id = one.id;
        END IF;
        RETURN NEXT said;
    END LOOP;
END
$$;

-- Renews leases, and with each all its claims, but for those that leave: these end when they would have. Returns the
-- numbers of those that were renewed, and are whole.
CREATE FUNCTION {schema}.keep(
    p_namespace text, p_client text, p_number int[], p_ttl bigint[],
    p_resource text[], p_id uuid[], p_seq bigint[], p_lease int[]
) RETURNS SETOF int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    one record;
BEGIN
    IF NOT is_set_up() THEN
        PERFORM set_up();
    END IF;
    -- In one order: two of these may be under way.
    PERFORM FROM lease WHERE client = p_client AND number = ANY (p_number) ORDER BY number FOR UPDATE;
    FOR one IN
        SELECT key_of(p_namespace, resource) AS key, seq, id, lease
        FROM unnest(p_resource, p_seq, p_id, p_lease) AS asked (resource, seq, id, lease) ORDER BY 1, 2
    LOOP
        UPDATE claim SET lease = NULL, expires = greatest(expires,
                (SELECT its.expires FROM lease AS its WHERE its.client = p_client AND its.number = one.lease))
            WHERE key = one.key AND seq BETWEEN coalesce(one.seq, 0) AND coalesce(one.seq, 9223372036854775807)
                AND id = one.id AND client = p_client
                AND lease = one.lease;
    END LOOP;
    RETURN QUERY UPDATE lease SET expires = clock_timestamp() + asked.ttl * interval '1 microsecond'
        FROM unnest(p_number, p_ttl) AS asked (number, ttl)
        WHERE client = p_client AND lease.number = asked.number AND expires > clock_timestamp()
            AND NOT EXISTS (SELECT FROM breach WHERE breach.client = p_client AND breach.number = asked.number)
        RETURNING lease.number;
END
$$;

-- Changes a claim. Verdicts: d done, n not (ahead: its mode, slot: its slots, note: whether held), u unknown.
CREATE FUNCTION {schema}.change(
    p_namespace text, p_resource text, p_id uuid, p_mode smallint, p_slots int, p_value bytea
) RETURNS {schema}.answer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    said answer;
    own record;
    own_key bigint := key_of(p_namespace, p_resource);
BEGIN
    IF NOT is_set_up() THEN
        PERFORM set_up();
    END IF;
    PERFORM pg_advisory_xact_lock(own_key);
    SELECT seq, mode, slots, held INTO own
        FROM claim LEFT JOIN lease ON lease.client = claim.client AND lease.number = claim.lease
        WHERE key = own_key AND id = p_id AND greatest(claim.expires, lease.expires) > clock_timestamp()
        FOR UPDATE OF claim;
    IF NOT FOUND THEN
        said.verdict := 'u';
        SELECT note INTO said.note FROM grave WHERE id = p_id;
        RETURN said;
    END IF;
    said.verdict := 'd';
    IF p_mode IS NULL THEN
        UPDATE claim SET value = p_value WHERE key = own_key AND seq = own.seq;
    ELSIF own.mode = 0 AND own.held AND p_mode = 1 THEN
        UPDATE claim SET mode = 1 WHERE key = own_key AND seq = own.seq;
    ELSIF own.mode = 2 AND p_mode = 2 AND p_slots > 0 THEN
        UPDATE claim SET slots = p_slots
            WHERE key = own_key AND namespace = p_namespace AND resource = p_resource AND mode = 2;
    ELSIF own.mode <> p_mode OR own.slots <> p_slots THEN
        said.verdict := 'n';
        said.ahead := own.mode;
        said.slot := own.slots;
        said.note := own.held;
        RETURN said;
    END IF;
    PERFORM settle(own_key, p_namespace, p_resource);
    RETURN said;
END
$$;

-- How claims stand, without a change. Verdicts: g, q, u.
CREATE FUNCTION {schema}.stand(p_namespace text, p_resource text[], p_id uuid[]) RETURNS SETOF {schema}.answer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT asked.at::int, CASE WHEN own.held THEN 'g' WHEN own.held IS NULL THEN 'u' ELSE 'q' END,
        own.seq, own.token, own.slot, micros(own.ends - clock_timestamp()), NULL::bigint, NULL::int, grave.note
    FROM unnest(p_resource, p_id) WITH ORDINALITY AS asked (resource, id, at)
    LEFT JOIN living AS own ON own.key = key_of(p_namespace, asked.resource) AND own.id = asked.id
        AND own.ends > clock_timestamp()
    LEFT JOIN grave ON grave.id = asked.id AND own.id IS NULL
    ORDER BY asked.at
$$;

-- Shows claims of resources by name: of one, or of those that begin with a text and come after another.
CREATE FUNCTION {schema}.show(
    p_namespace text, p_exact text, p_prefix text, p_after text, p_limit bigint
) RETURNS TABLE (resource text, claim text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
    -- As in `settle`: what a clock that was set back has made last too long.
    UPDATE lease AS long SET expires = clock_timestamp() + long.ttl WHERE (long.client, long.number) IN
        (SELECT client, number FROM lease WHERE expires > clock_timestamp() + ttl FOR UPDATE SKIP LOCKED);
    IF p_exact IS NOT NULL THEN
        UPDATE claim AS long SET expires = clock_timestamp() + long.ttl
            WHERE long.key = key_of(p_namespace, p_exact) AND long.expires > clock_timestamp() + long.ttl;
        RETURN QUERY SELECT shown.resource::text, shown.claim FROM shown
            WHERE shown.key = key_of(p_namespace, p_exact) AND shown.namespace = p_namespace
                AND shown.resource = p_exact AND (p_after IS NULL OR shown.resource > p_after)
                AND shown.ends > clock_timestamp()
            ORDER BY shown.seq;
        RETURN;
    END IF;
    UPDATE claim AS long SET expires = clock_timestamp() + long.ttl
        WHERE long.namespace = p_namespace AND long.expires > clock_timestamp() + long.ttl;
    RETURN QUERY SELECT ranked.resource::text, ranked.claim FROM (
            SELECT shown.resource, shown.seq, shown.claim, dense_rank() OVER (ORDER BY shown.resource) AS place
            FROM shown WHERE shown.namespace = p_namespace AND starts_with(shown.resource, p_prefix)
                AND (p_after IS NULL OR shown.resource > p_after) AND shown.ends > clock_timestamp()
        ) AS ranked
        WHERE ranked.place <= p_limit ORDER BY ranked.resource, ranked.seq;
END
$$;

-- Removes what was left by clients that are gone, on resources that nobody asks for any more.
CREATE FUNCTION {schema}.sweep() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    DELETE FROM grave WHERE id IN (SELECT id FROM grave WHERE until <= clock_timestamp() FOR UPDATE SKIP LOCKED);
    DELETE FROM breach WHERE until <= clock_timestamp();
    -- Leases first: what has none any more and is past its time is over.
    DELETE FROM lease WHERE (client, number) IN
        (SELECT client, number FROM lease WHERE expires <= clock_timestamp() - interval '1 minute' FOR UPDATE SKIP LOCKED);
    DELETE FROM claim WHERE (key, seq) IN
        (SELECT key, seq FROM claim WHERE expires <= clock_timestamp() - interval '1 minute' AND NOT EXISTS
            (SELECT FROM lease WHERE lease.client = claim.client AND lease.number = claim.lease) FOR UPDATE SKIP LOCKED);
$$;

CREATE TYPE {schema}.stored AS (
    name text, revision bigint, value bytea, version bigint, stamp bigint, fence text, expires bigint, now bigint
);

-- A register as it is; times in microseconds of the server's clock. NULL for one that was never written.
CREATE FUNCTION {schema}.fetch(p_namespace text, p_name text) RETURNS {schema}.stored
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT p_name, register.revision, register.value, register.version, register.stamp, register.fence,
        (extract(epoch FROM register.expires) * 1000000)::bigint,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM (SELECT) AS always LEFT JOIN register ON register.namespace = p_namespace AND register.name = p_name
$$;

-- All registers whose names begin with a text.
CREATE FUNCTION {schema}.fetch_all(p_namespace text, p_prefix text) RETURNS SETOF {schema}.stored
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT register.name, register.revision, register.value, register.version, register.stamp, register.fence,
        (extract(epoch FROM register.expires) * 1000000)::bigint,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM register WHERE namespace = p_namespace AND starts_with(name, p_prefix) ORDER BY name
$$;

-- Stores a register unless it was changed since it was read at p_revision; 0 for one that was not there.
CREATE FUNCTION {schema}.store(
    p_namespace text, p_name text, p_revision bigint, p_value bytea, p_version bigint, p_stamp bigint, p_fence text,
    p_expires bigint
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    ends timestamptz := to_timestamp(0) + p_expires * interval '1 microsecond';
BEGIN
    PERFORM guard();
    IF p_revision = 0 THEN
        INSERT INTO register VALUES (p_namespace, p_name, 1, p_value, p_version, p_stamp, p_fence, ends)
            ON CONFLICT DO NOTHING;
    ELSE
        UPDATE register SET revision = revision + 1, value = p_value, version = p_version, stamp = p_stamp,
            fence = p_fence, expires = ends
            WHERE namespace = p_namespace AND name = p_name AND revision = p_revision;
    END IF;
    RETURN FOUND;
END
$$;
