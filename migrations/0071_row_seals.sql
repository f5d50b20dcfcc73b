-- Seals over the rows that decide rights: an HMAC under a key derived from the master key, which is outside of the database. A row written by hand has no
-- valid seal and is refused. The first server with the seals adopts the rows of the version before (docs/access.md). `seal_refused_at` bounds the events of
-- a refused row to a single one.
ALTER TABLE tokens
    ADD COLUMN seal            bytea,
    -- Of a token stored as a plain SHA-256: the seal over the hash.
    ADD COLUMN plain_seal      bytea,
    ADD COLUMN seal_refused_at timestamptz,
    -- An administrator's token without a person, from before such tokens needed an armed local administrator. Kept for one version.
    ADD COLUMN keeps_unarmed   boolean NOT NULL DEFAULT false,
    -- The latest recorded use or refusal of an administrator's token without a person, beside an identity provider. At most one a day.
    ADD COLUMN unarmed_used_at timestamptz;
ALTER TABLE users
    ADD COLUMN seal            bytea,
    ADD COLUMN seal_refused_at timestamptz;
ALTER TABLE sessions
    ADD COLUMN seal            bytea,
    ADD COLUMN seal_refused_at timestamptz;
-- Of role bindings.
ALTER TABLE objects
    ADD COLUMN seal            bytea,
    ADD COLUMN seal_refused_at timestamptz;
UPDATE tokens SET keeps_unarmed = true WHERE role = 'admin' AND revoked_at IS NULL AND (person IS NULL OR person NOT LIKE 'user:%');

-- The adoption of the rows of the version before. Until the end of the window, rows without a seal count and are sealed, because servers of the version
-- before may still write them. The seal covers both times.
CREATE TABLE row_seals (
    single    boolean PRIMARY KEY DEFAULT true CHECK (single),
    opened_at timestamptz NOT NULL,
    until     timestamptz NOT NULL,
    seal      bytea NOT NULL
);
