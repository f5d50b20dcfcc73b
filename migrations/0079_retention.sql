-- Retention (docs/retention.md). First, state leaves the history: an event may go, state stays.

-- The digest of each version of a stack, written with the first write of the version. A version never changes. A server of the version before writes only
-- the event: the next write of the version, and the removal of the event, copy the digest here.
CREATE TABLE stack_versions (
    stack_id uuid NOT NULL REFERENCES objects ON DELETE CASCADE,
    version  text NOT NULL,
    digest   text NOT NULL,
    PRIMARY KEY (stack_id, version)
);
INSERT INTO stack_versions (stack_id, version, digest)
SELECT DISTINCT ON (o.id, e.detail ->> 'version') o.id, e.detail ->> 'version', e.detail ->> 'digest'
FROM events e JOIN objects o ON o.id = e.object_id
WHERE o.kind = 'stack' AND e.detail ->> 'version' IS NOT NULL AND e.detail ->> 'digest' IS NOT NULL
ORDER BY o.id, e.detail ->> 'version', e.seq;

-- Removed events that an agent may remember. A mark goes when every agent has called since and shows another event.
CREATE TABLE event_marks (
    event_id uuid PRIMARY KEY,
    at       timestamptz NOT NULL
);
CREATE INDEX event_marks_at ON event_marks (at);
-- The latest event that the agent has shown. Null: the agent has shown no event since the upgrade.
ALTER TABLE agents ADD COLUMN shown_event uuid;

-- Records under a legal hold: the records of these nodes stay, and each segment of the history with an event of these nodes. The node stays too.
CREATE TABLE legal_holds (
    node_id uuid PRIMARY KEY CONSTRAINT node_held REFERENCES nodes,
    reason  text NOT NULL,
    held_by text NOT NULL,
    held_at timestamptz NOT NULL
);

-- The removed segments of the history. A segment is a run of seals with all of their events, exported to a file before the removal.
CREATE TABLE removed_segments (
    first_seal     bigint PRIMARY KEY CHECK (first_seal > 0),
    last_seal      bigint NOT NULL CHECK (last_seal >= first_seal),
    first_seq      bigint NOT NULL,
    last_seq       bigint NOT NULL CHECK (last_seq >= first_seq),
    events         bigint NOT NULL CHECK (events > 0),
    -- The seal before the segment, and the last seal of the segment: the chain goes on from there.
    previous       bytea NOT NULL CHECK (length(previous) = 32),
    hash           bytea NOT NULL CHECK (length(hash) = 32),
    -- The exported file, and the SHA-256 of the file.
    file           text NOT NULL,
    digest         bytea NOT NULL CHECK (length(digest) = 32),
    -- The segment held the event of an adoption of rows (migration 0071).
    tells_adoption boolean NOT NULL,
    removed_at     timestamptz NOT NULL
);

CREATE FUNCTION refuse_forgetting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'removed segments are append-only';
END
$$;
CREATE TRIGGER removed_segments_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON removed_segments
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_forgetting();

-- Events and seals are removed as parts of a removed segment only.
CREATE FUNCTION refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM gone) AND NOT EXISTS (
        SELECT FROM removed_segments WHERE first_seq <= (SELECT min(seq) FROM gone) AND last_seq >= (SELECT max(seq) FROM gone)) THEN
        RAISE EXCEPTION 'events are append-only';
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION refuse_seal_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM gone) AND NOT EXISTS (
        SELECT FROM removed_segments WHERE first_seal <= (SELECT min(number) FROM gone) AND last_seal >= (SELECT max(number) FROM gone)) THEN
        RAISE EXCEPTION 'seals are append-only';
    END IF;
    RETURN NULL;
END
$$;
DROP TRIGGER events_append_only ON events;
CREATE TRIGGER events_append_only BEFORE UPDATE OR TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER events_removal AFTER DELETE ON events REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_removal();
DROP TRIGGER event_seals_append_only ON event_seals;
CREATE TRIGGER event_seals_append_only BEFORE UPDATE OR TRUNCATE ON event_seals FOR EACH STATEMENT EXECUTE FUNCTION refuse_unsealing();
CREATE TRIGGER event_seals_removal AFTER DELETE ON event_seals REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_seal_removal();

-- The evidence of the run's gates was removed at this time. Verdicts and measured values stay.
ALTER TABLE gate_runs ADD COLUMN evidence_removed_at timestamptz;

-- Removes the texts from the evidence of a gate's result. The exit code and the versions of tools stay.
CREATE FUNCTION without_evidence(result jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE jsonb_typeof(result -> 'evidence') WHEN 'object' THEN
        jsonb_set(result, '{evidence}', (result -> 'evidence') - '{files,kernel_log,digest}'::text[] || jsonb_build_object('argv', '[]'::jsonb,
            'stdout', 'removed: evidence is kept for a limited time (docs/retention.md)', 'stderr', ''))
        ELSE result END
$$;
