-- Version 2: what session locks need beside the server's own locks.

SET LOCAL search_path = pg_catalog, {schema}, pg_temp;

UPDATE {schema}.meta SET version = {version};

-- A number is drawn by the statement that takes a lock, outside of any function of ours.
GRANT USAGE ON SEQUENCE {schema}.number TO PUBLIC;

-- What is known of claims that are session locks: written late, and for whoever looks. The locks decide. Nothing of it
-- outlives a crash, and neither does a session.
CREATE UNLOGGED TABLE {schema}.session (
    id uuid PRIMARY KEY,
    -- The connection that holds or waits, by its application_name, and for what.
    seat text COLLATE "C" NOT NULL,
    key bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    family smallint NOT NULL,
    -- NULL while it waits.
    token bigint,
    since timestamptz NOT NULL,
    owner text NOT NULL,
    value bytea
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX session_seat ON {schema}.session (seat, key);

-- Empty after a crash, as unlogged tables are.
CREATE UNLOGGED TABLE {schema}.uncrashed (one boolean PRIMARY KEY);

-- A token above p_floor, and above all of earlier timelines. Every connection asks for one when it is made.
--
-- A statement that takes a session lock commits nothing: of the numbers that it draws, those that were told last may be
-- forgotten by a crash. So whoever comes first after one leaves all of them behind.
CREATE FUNCTION {schema}.session_token(p_floor bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
BEGIN
    INSERT INTO uncrashed VALUES (true) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM setval('number', nextval('number') + 1048576);
    END IF;
    RETURN next_token(p_floor);
END
$$;

-- Notes what is known of claims, and forgets those that are gone. p_age: for how many microseconds each has been so.
CREATE FUNCTION {schema}.note(
    p_namespace text, p_gone uuid[], p_id uuid[], p_seat text[], p_key bigint[], p_resource text[], p_family smallint[],
    p_token bigint[], p_age bigint[], p_owner text[], p_value bytea[]
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
BEGIN
    -- Nothing rests on it.
    PERFORM set_config('synchronous_commit', 'off', true);
    -- By its index: see `set_up`.
    PERFORM set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true);
    IF cardinality(p_gone) > 0 THEN
        DELETE FROM session WHERE id = ANY (p_gone);
    END IF;
    IF cardinality(p_id) > 0 THEN
        INSERT INTO session
            SELECT id, seat, key, p_namespace, resource, family, token, clock_timestamp() - age * interval '1 microsecond',
                owner, value
            FROM unnest(p_id, p_seat, p_key, p_resource, p_family, p_token, p_age, p_owner, p_value)
                AS noted (id, seat, key, resource, family, token, age, owner, value)
            ON CONFLICT (id) DO UPDATE SET seat = excluded.seat, key = excluded.key, token = excluded.token,
                since = excluded.since, value = excluded.value;
    END IF;
END
$$;

-- Who holds and waits for session locks: for the one with p_key, or all of connections whose name begins with p_seats.
-- Those who hold come first, then those who wait, in their order.
CREATE FUNCTION {schema}.sessions(p_namespace text, p_key bigint, p_seats text)
RETURNS TABLE (pid int, seat text, key bigint, granted boolean, exclusive boolean, resource text, claim text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    locks jsonb;
BEGIN
    -- The locks first: what is noted of a claim is forgotten before its lock can be another's.
    SELECT jsonb_agg(seen) INTO locks FROM (
        SELECT held.pid, (held.classid::bigint << 32) | held.objid::bigint AS key, bool_or(held.granted) AS granted,
            bool_or(held.mode = 'ExclusiveLock') AS exclusive,
            -- Only newer servers know it.
            min(to_jsonb(held) ->> 'waitstart') AS since
        FROM pg_locks AS held
        WHERE held.locktype = 'advisory' AND held.objsubid = 1
            AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (p_key IS NULL OR (held.classid::bigint << 32) | held.objid::bigint = p_key)
        GROUP BY 1, 2
    ) AS seen;
    RETURN QUERY SELECT lock.pid, activity.application_name, lock.key, lock.granted, lock.exclusive, known.resource::text,
            json_build_object('id', known.id, 'family', known.family, 'token', known.token,
                'age', micros(clock_timestamp() - known.since), 'owner', known.owner,
                'value', encode(known.value, 'hex'))::text
        FROM jsonb_to_recordset(locks)
            AS lock (pid int, key bigint, granted boolean, exclusive boolean, since timestamptz)
        LEFT JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
        LEFT JOIN session AS known ON known.seat = activity.application_name AND known.key = lock.key
            AND known.namespace = p_namespace
        WHERE p_key IS NOT NULL OR starts_with(activity.application_name, p_seats)
        ORDER BY lock.key, lock.granted DESC, lock.since, lock.pid;
END
$$;

-- Forgets what was noted by connections that are gone.
CREATE FUNCTION {schema}.sweep_sessions() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    DELETE FROM session WHERE since < clock_timestamp() - interval '1 minute' AND id IN
        (SELECT id FROM session AS old WHERE old.seat NOT IN (SELECT application_name FROM pg_stat_activity WHERE application_name IS NOT NULL)
            FOR UPDATE SKIP LOCKED);
$$;
