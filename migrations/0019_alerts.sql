-- What monitoring says of nodes. Alertmanager sends an alert again and again while it fires: one row for each time that it began.
CREATE TABLE alerts (
    node_id     uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    fingerprint text NOT NULL CHECK (length(fingerprint) BETWEEN 1 AND 64),
    starts_at   timestamptz NOT NULL,
    name        text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    heard_at    timestamptz NOT NULL,
    ended_at    timestamptz,
    -- What was done: nothing was asked; the node was taken out; too many were, so it was not; it could not be taken out then.
    became      text NOT NULL CHECK (became IN ('noted', 'quarantined', 'held_back', 'refused')),
    PRIMARY KEY (node_id, fingerprint, starts_at)
);

-- How many nodes an alert of one name took out lately: the circuit breaker's question.
CREATE INDEX alerts_quarantined ON alerts (name, heard_at) WHERE became = 'quarantined';
