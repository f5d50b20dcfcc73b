-- Bounds of blobs and of the evidence of pairs (docs/retention.md).

-- Stored blobs that no document names, and the time at which a server first saw this. A blob is removed when the time is older than the grace time. An
-- upload of the blob, a question for the blob, or a document with the blob removes the row.
CREATE TABLE unused_blobs (
    digest bytea PRIMARY KEY CHECK (length(digest) = 32),
    since  timestamptz NOT NULL
);
CREATE INDEX unused_blobs_since ON unused_blobs (since);

-- A write of a document that names blobs shares a lock until its end. The removal of blobs needs the lock alone, and reads the documents again under the
-- lock. The lock is taken here, so that a server of the version before takes the lock too.
CREATE FUNCTION share_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(727371654);
    RETURN NEW;
END
$$;
CREATE TRIGGER objects_share_blobs BEFORE INSERT OR UPDATE OF spec ON objects
    FOR EACH ROW WHEN (position('sha256:' IN NEW.spec::text) > 0) EXECUTE FUNCTION share_blobs();
CREATE TRIGGER pool_revisions_share_blobs BEFORE INSERT ON pool_revisions
    FOR EACH ROW EXECUTE FUNCTION share_blobs();

-- The evidence of the measurement was removed at this time. Verdicts and measured values stay.
ALTER TABLE pair_trials ADD COLUMN evidence_removed_at timestamptz;

-- Removes the texts from the evidence of both directions of a measurement.
CREATE FUNCTION ways_without_evidence(ways jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE jsonb_typeof(ways) WHEN 'array' THEN (
        SELECT COALESCE(jsonb_agg(CASE jsonb_typeof(way.body -> 'results') WHEN 'array' THEN jsonb_set(way.body, '{results}', (
            SELECT COALESCE(jsonb_agg(without_evidence(gate.body) ORDER BY gate.position), '[]')
            FROM jsonb_array_elements(way.body -> 'results') WITH ORDINALITY AS gate (body, position)))
            ELSE way.body END ORDER BY way.position), '[]')
        FROM jsonb_array_elements(ways) WITH ORDINALITY AS way (body, position))
        ELSE ways END
$$;
