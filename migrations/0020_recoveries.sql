-- What is tried on nodes that fail, and the fleet's circuit breaker.

-- A node in service may be asked to run its pool's sweep.
ALTER TABLE nodes DROP CONSTRAINT nodes_wish_check;
ALTER TABLE nodes ADD CONSTRAINT nodes_wish_check CHECK (wish IN ('accept', 'reject', 'inspect', 'release', 'retry', 'quarantine', 'recover', 'wipe',
    'drain', 'undrain', 'maintain', 'resume', 'retire', 'reinstate', 'replace-parts', 'adopt', 'check-drift', 'sweep'));

-- A ladder that is or was climbed on a node.
CREATE TABLE recoveries (
    id        uuid PRIMARY KEY,
    node_id   uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    -- Which failures are the same: `gate:disk.smart`, `unreachable`, `asked`.
    signature text NOT NULL CHECK (length(signature) BETWEEN 1 AND 200),
    what      text NOT NULL,
    -- Whether the installed system answered when it began.
    answers   boolean NOT NULL,
    -- By a person: bounds are for what begins by itself.
    asked     boolean NOT NULL,
    rungs     text[] NOT NULL,
    -- So many rungs are behind it.
    tried     integer NOT NULL DEFAULT 0,
    -- How each of those went.
    went      jsonb NOT NULL DEFAULT '[]',
    begun_at  timestamptz NOT NULL,
    ended_at  timestamptz,
    ended     text CHECK (ended IN ('recovered', 'spent', 'held_back', 'stopped', 'failed')),
    CONSTRAINT recoveries_ended CHECK ((ended_at IS NULL) = (ended IS NULL)),
    CONSTRAINT recoveries_climbs CHECK (tried BETWEEN 0 AND cardinality(rungs))
);
-- One at a time on a node.
CREATE UNIQUE INDEX recoveries_open_key ON recoveries (node_id) WHERE ended_at IS NULL;
CREATE INDEX recoveries_node ON recoveries (node_id, begun_at DESC);
CREATE INDEX recoveries_signature ON recoveries (signature, begun_at);

-- Too many nodes failed the same way: nothing more is tried on any of them.
CREATE TABLE breakers (
    id        uuid PRIMARY KEY,
    signature text NOT NULL CHECK (length(signature) BETWEEN 1 AND 210),
    because   text NOT NULL,
    opened_at timestamptz NOT NULL,
    -- When it closes by itself; null: when a person says so.
    closes_at timestamptz,
    closed_at timestamptz,
    closed_by text,
    CONSTRAINT breakers_closed CHECK ((closed_at IS NULL) = (closed_by IS NULL))
);
CREATE UNIQUE INDEX breakers_open_key ON breakers (signature) WHERE closed_at IS NULL;
CREATE INDEX breakers_signature ON breakers (signature, closed_at);
