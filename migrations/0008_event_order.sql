-- Events are read in the order of their numbers, which for one node is the order in which things happened: whoever writes them has the node
-- locked. A number is taken before its transaction ends, so a reader must know how far the history is whole. Who takes a first number holds,
-- until its transaction ends, a shared lock that names the last number taken before: all of its own are higher.

ALTER TABLE events ALTER COLUMN seq DROP IDENTITY;
ALTER TABLE events DROP COLUMN xid;
CREATE SEQUENCE event_seq AS bigint OWNED BY events.seq;
SELECT setval('event_seq', max(seq)) FROM events HAVING max(seq) IS NOT NULL;

-- Numbers as keys of advisory locks: nothing else of Muster's has these bits.
CREATE FUNCTION event_lock_key(seq bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT (1::bigint << 62) | seq $$;

CREATE FUNCTION last_event_seq() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM event_seq $$;

CREATE FUNCTION next_event_seq() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- One lock per transaction, however many events it writes.
    IF coalesce(current_setting('muster.event_floor', true), '') = '' THEN
        PERFORM set_config('muster.event_floor', floor::text, true), pg_advisory_xact_lock_shared(event_lock_key(floor))
        FROM last_event_seq() AS floor;
    END IF;
    RETURN nextval('event_seq');
END
$$;
ALTER TABLE events ALTER COLUMN seq SET DEFAULT next_event_seq();

-- Up to this number every event that will ever be is committed. To be asked before the events are: a number below it whose transaction was
-- under way is held, and one whose transaction has ended is seen by whatever is read after.
CREATE FUNCTION whole_event_seq() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last bigint := last_event_seq();
    held bigint;
BEGIN
    SELECT min(((classid::bigint << 32) | objid::bigint) - event_lock_key(0)) INTO held FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 30 = 1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(last, held);
END
$$;
