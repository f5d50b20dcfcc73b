-- What was left of the contract: every list has the one grammar, tokens are held by a key, what erases disks counts against one limit.

-- A part in a node has an id, as whatever is in a list has; it grows with the time at which it was first seen there (RFC 9562, version 7).
ALTER TABLE components ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid();
UPDATE components SET id = encode(set_bit(set_bit(overlay(uuid_send(id)
    PLACING substring(int8send((extract(epoch FROM first_seen) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;
ALTER TABLE components ADD CONSTRAINT components_id_key UNIQUE (id);

-- What lists are filtered by, in the order they run in.
CREATE INDEX components_node ON components (node_id, id);
CREATE INDEX components_kind ON components (kind, id);
CREATE INDEX components_model ON components (model, id);
CREATE INDEX approvals_waiting ON approvals (id) WHERE state = 'open';
CREATE INDEX waivers_gate ON waivers (gate, id);
CREATE INDEX tokens_person ON tokens (person, name);
CREATE INDEX agents_site ON agents (site_id, name);
CREATE INDEX recoveries_made ON recoveries (node_id, id DESC);

-- Counts who was enrolled under the name: its ETag.
ALTER TABLE agents ADD COLUMN generation bigint NOT NULL DEFAULT 1;

-- What is stored of a token is made with a key (docs/access.md); `key_id` names the key, and is null for a plain SHA-256 of before, until the token
-- is next used.
ALTER TABLE server_keys DROP CONSTRAINT server_keys_name_check;
ALTER TABLE server_keys ADD CONSTRAINT server_keys_name_check
    CHECK (name IN ('permit', 'ssh_user_ca', 'agent_ca', 'token_mac', 'token_mac_before'));
ALTER TABLE tokens ADD COLUMN key_id text;

-- A second person decides on wipes and new installations too: of one node, for one assignment of it.
ALTER TABLE approvals
    ADD COLUMN node_id uuid REFERENCES nodes ON DELETE CASCADE,
    ADD COLUMN wish    text CHECK (wish IN ('wipe', 'reinstall')),
    ADD COLUMN epoch   bigint,
    -- Why it was asked for.
    ADD COLUMN reason  text;
ALTER TABLE approvals ADD CONSTRAINT approvals_of_node CHECK ((node_id IS NULL) = (wish IS NULL) AND (node_id IS NULL) = (epoch IS NULL));
ALTER TABLE approvals DROP CONSTRAINT approvals_of_one;
ALTER TABLE approvals ADD CONSTRAINT approvals_of_one CHECK (num_nonnulls(claim_id, waiver_id, node_id) = 1);
ALTER TABLE approvals DROP CONSTRAINT approvals_begun;
-- A waiver begins no operation.
ALTER TABLE approvals ADD CONSTRAINT approvals_begun CHECK ((state = 'approved' AND waiver_id IS NULL) = (operation_id IS NOT NULL));
CREATE UNIQUE INDEX approvals_node_key ON approvals (node_id, wish) WHERE state = 'open' AND node_id IS NOT NULL;

-- What erased disks in the last hour is counted.
CREATE INDEX operations_lately ON operations (kind, created_at);
DROP INDEX operations_releases;

-- Passwords of BMCs that Muster chose, in place of their credential's: by account, for several systems may be behind one BMC. While one is changed, both are
-- here; from `next_at` on the BMC may have the next one.
CREATE TABLE bmc_passwords (
    address          inet NOT NULL,
    port             integer NOT NULL,
    user_name        text NOT NULL,
    -- SHA-256 of the credential's ciphertext: who writes another secret there since then has the last word.
    based_on         bytea NOT NULL,
    key_id           text NOT NULL,
    wrapped_key      bytea NOT NULL,
    ciphertext       bytea NOT NULL,
    next_based_on    bytea,
    next_key_id      text,
    next_wrapped_key bytea,
    next_ciphertext  bytea,
    next_at          timestamptz,
    changed_at       timestamptz,
    PRIMARY KEY (address, port, user_name),
    CONSTRAINT bmc_passwords_next CHECK (num_nonnulls(next_based_on, next_key_id, next_wrapped_key, next_ciphertext, next_at) IN (0, 5))
);

-- What can be asked of a node and what it takes, as they are so far, and one more.
DO $$
DECLARE
    found text;
BEGIN
    SELECT pg_get_constraintdef(oid) INTO STRICT found FROM pg_constraint WHERE conname = 'nodes_wish_check' AND conrelid = 'nodes'::regclass;
    ALTER TABLE nodes DROP CONSTRAINT nodes_wish_check;
    EXECUTE 'ALTER TABLE nodes ADD CONSTRAINT nodes_wish_check ' || replace(found, 'ARRAY[', 'ARRAY[''rotate-bmc''::text, ');
END
$$;

-- People whom an administrator keeps out, and when each was last seen in a browser.
ALTER TABLE users
    ADD COLUMN last_seen   timestamptz,
    ADD COLUMN disabled_at timestamptz,
    ADD COLUMN disabled_by text,
    ADD CONSTRAINT users_disabled CHECK ((disabled_at IS NULL) = (disabled_by IS NULL));
