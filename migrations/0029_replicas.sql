-- Pools that claim nodes by themselves, as many as they ask for.

ALTER TABLE claims
    -- Its pool made it, to have as many as it asks for. Whoever makes a claim of their own cannot say so.
    ADD COLUMN replica boolean NOT NULL DEFAULT false;
CREATE INDEX claims_replicas ON claims (pool_id) WHERE replica AND state <> 'released';

-- Pools that ask for more nodes than there are to claim: a row for as long as that is so.
CREATE TABLE pool_shortages (
    pool_id uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    since   timestamptz NOT NULL
);
