-- Witnesses of a caution: who remembers more than the database. The witness of one site holds the caution for that site; a second site, or a replica of the
-- server, extends the caution to the fleet. A server of the previous version opens cautions of the whole fleet.
ALTER TABLE cautions ADD COLUMN whole_fleet boolean NOT NULL DEFAULT true;

CREATE TABLE caution_witnesses (
    caution_id uuid NOT NULL REFERENCES cautions ON DELETE CASCADE,
    -- The id of the agent or of the node; for a replica, the nil id.
    witness    uuid NOT NULL,
    -- Null: a replica.
    site_id    uuid REFERENCES objects ON DELETE CASCADE,
    -- The agent that made the call. Kept after the agent is removed.
    agent_id   uuid,
    -- The event that the database lacks; null for a node.
    heard      uuid,
    -- The event carried the seal of this installation. Otherwise the caution rests on the word of the witness.
    proved     boolean NOT NULL,
    seen_at    timestamptz NOT NULL,
    -- The event that reported the witness.
    event_id   uuid NOT NULL,
    PRIMARY KEY (caution_id, witness)
);
CREATE INDEX caution_witnesses_heard ON caution_witnesses (heard);
CREATE INDEX caution_witnesses_site ON caution_witnesses (site_id);

ALTER TABLE agents
    -- Why every call of the agent is refused, until the agent is removed and enrolled anew.
    ADD COLUMN refused text CONSTRAINT agents_refused_check CHECK (refused IN ('cloned', 'lies')),
    -- Events without a seal count, for the agent's own site: the agent has never shown a seal.
    ADD COLUMN bare_marks boolean NOT NULL DEFAULT true,
    -- SHA-256 of the public key of the newest certificate, and of the certificate before. Null: issued by a server of the previous version.
    ADD COLUMN newest_key bytea,
    ADD COLUMN former_key bytea,
    -- Start of the certificate of `newest_key`. A later certificate was issued by a server of the previous version, or lost in a restore.
    ADD COLUMN newest_key_at timestamptz;
