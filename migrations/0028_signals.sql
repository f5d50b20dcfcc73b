-- What is seen of nodes in service between their sweeps.

-- Nodes that take no jobs, as their schedulers say: a row for as long as one says so.
CREATE TABLE scheduler_outs (
    node_id uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    -- As the scheduler calls it: `drained`, `down`.
    state   text NOT NULL CHECK (length(state) BETWEEN 1 AND 60),
    reason  text CHECK (length(reason) <= 300),
    -- Since the first report of it, by this reason.
    since   timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    CONSTRAINT scheduler_outs_order CHECK (seen_at >= since)
);

-- Items of a node that differ from its stack, by the newest look; null: never looked at.
ALTER TABLE nodes ADD COLUMN drift_items integer CHECK (drift_items >= 0);
CREATE INDEX nodes_drifted ON nodes (id) WHERE drift_items > 0;
