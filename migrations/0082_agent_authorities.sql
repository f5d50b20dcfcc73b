-- The rotation of the authority of agents' certificates (docs/access.md). Two authorities are valid from the begin to the end.
ALTER TABLE key_rotations DROP CONSTRAINT key_rotations_key_check;
ALTER TABLE key_rotations ADD CONSTRAINT key_rotations_key_check CHECK (key IN ('master', 'ssh_user_ca', 'permit', 'agent_ca'));
ALTER TABLE server_keys DROP CONSTRAINT server_keys_name_check;
ALTER TABLE server_keys ADD CONSTRAINT server_keys_name_check
    CHECK (name IN ('permit', 'ssh_user_ca', 'agent_ca', 'token_mac', 'token_mac_before', 'mark_seal', 'ssh_user_ca_next', 'permit_next', 'agent_ca_next'));

-- Ids of the authorities that a running server accepts. Empty: a server of the version before, which knows of one authority.
ALTER TABLE key_holders ADD COLUMN authorities text[] NOT NULL DEFAULT '{}';

-- The state of each agent in a rotation, by the latest call. Without a row the agent has made no call since the begin.
CREATE TABLE agent_authorities (
    agent_id uuid PRIMARY KEY REFERENCES agents ON DELETE CASCADE,
    -- The id of the new authority, once the agent has stored the authority on its disk.
    trusted  text,
    -- The id of the new authority, once the agent shows a certificate of the authority.
    shown    text
);
