-- Agents show certificates. The token of an enrolment is used once, by one key, and ends by itself; whoever was enrolled before has none that is
-- still good, and is enrolled again. Which certificates there are is not kept: one that our authority signed names its agent, and an agent that was removed is
-- nobody's. So a database that was put back to a backup knows its agents by the certificates that they were given since.
ALTER TABLE server_keys DROP CONSTRAINT server_keys_name_check;
ALTER TABLE server_keys ADD CONSTRAINT server_keys_name_check CHECK (name IN ('permit', 'ssh_user_ca', 'agent_ca'));
ALTER TABLE agents ALTER COLUMN token_hash DROP NOT NULL;
ALTER TABLE agents ADD COLUMN token_until timestamptz;
-- SHA-256 of the public key that used the token: the same request again, whose answer was lost, is answered again.
ALTER TABLE agents ADD COLUMN token_key bytea;
-- The newest certificate, for people to see and to be told when it is late.
ALTER TABLE agents ADD COLUMN certified_at timestamptz;
ALTER TABLE agents ADD COLUMN certified_until timestamptz;
ALTER TABLE agents ADD COLUMN late_told boolean NOT NULL DEFAULT false;
UPDATE agents SET token_hash = NULL;

-- When the local administrator may sign in although an identity provider vouches for people: armed on a server's host, for a time, for a reason. `seal` is made
-- with the master key: who can only write the database cannot arm.
CREATE TABLE break_glass (
    single   boolean PRIMARY KEY DEFAULT true CHECK (single),
    armed_at timestamptz NOT NULL,
    until    timestamptz NOT NULL,
    by       text NOT NULL,
    reason   text NOT NULL,
    seal     text NOT NULL
);
