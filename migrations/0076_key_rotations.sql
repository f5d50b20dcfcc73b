-- Rotations of the server's keys (docs/access.md). Between the begin and the end of a rotation, the former key and the new key are both valid.
CREATE TABLE key_rotations (
    key      text PRIMARY KEY CHECK (key IN ('master', 'ssh_user_ca', 'permit')),
    -- Ids of the keys: the first 16 hex digits of the SHA-256 of the master key, or of the public key.
    former   text NOT NULL,
    next     text NOT NULL CHECK (next <> former),
    begun_at timestamptz NOT NULL
);

-- The master keys that each running server holds, by its latest report. A rotation waits until every server holds the new key. A server of the version
-- before writes no row.
CREATE TABLE key_holders (
    replica uuid PRIMARY KEY,
    host    text NOT NULL,
    keys    text[] NOT NULL,
    seen_at timestamptz NOT NULL
);

-- The key of the seals over events that agents remember. An agent that is off for weeks shows a seal from before the rotation, so the key stays the same.
ALTER TABLE server_keys DROP CONSTRAINT server_keys_name_check;
ALTER TABLE server_keys ADD CONSTRAINT server_keys_name_check
    CHECK (name IN ('permit', 'ssh_user_ca', 'agent_ca', 'token_mac', 'token_mac_before', 'mark_seal', 'ssh_user_ca_next', 'permit_next'));

-- The new keys of rotations that an agent has from its latest start, and gives to live images. NULL: the agent has no new key.
CREATE TABLE agent_keys (
    agent_id uuid PRIMARY KEY REFERENCES agents ON DELETE CASCADE,
    ssh_ca   text,
    permit   text,
    -- The first start with these keys. A live image that booted before may lack them.
    taken_at timestamptz NOT NULL
);

-- The new SSH user CA that an installed system trusts. Until then, certificates for the node are of the former CA.
CREATE TABLE node_ssh_cas (
    node_id  uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    -- The latest order with the new CA, and the id of the CA.
    job_id   uuid NOT NULL,
    offered  text NOT NULL,
    -- Set by the success of that order, with the host key of the system.
    trusted  text,
    host_key text
);
