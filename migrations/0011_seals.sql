-- The history, sealed: each seal covers the seal before it and the digest of every event between the two (docs/audit.md says of which bytes).
-- Written behind the events by one replica at a time; whoever writes an event neither knows of it nor waits for it.

CREATE TABLE event_seals (
    number    bigint PRIMARY KEY CHECK (number > 0),
    -- The seal before this one; 32 zero bytes before the first.
    previous  bytea NOT NULL CONSTRAINT event_seals_previous_key UNIQUE CHECK (length(previous) = 32),
    hash      bytea NOT NULL CHECK (length(hash) = 32),
    sealed_at timestamptz NOT NULL,
    -- Every event of it: its number, and in the same order its digest, 32 bytes each.
    seqs      bigint[] NOT NULL CHECK (cardinality(seqs) > 0),
    digests   bytea NOT NULL CHECK (length(digests) = 32 * cardinality(seqs))
);

CREATE FUNCTION refuse_unsealing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'seals are append-only';
END
$$;
CREATE TRIGGER event_seals_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON event_seals FOR EACH STATEMENT EXECUTE FUNCTION refuse_unsealing();
