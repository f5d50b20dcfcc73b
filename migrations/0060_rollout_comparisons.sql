-- A gate's value on a changed node of a rollout, compared with the value before the change (core/rollout, Regression). While the rollout is open, a new
-- result of the node's gates removes the row, and the next tick compares again.
CREATE TABLE rollout_comparisons (
    rollout_id  uuid NOT NULL,
    node_id     uuid NOT NULL,
    gate        text NOT NULL,
    metric      text NOT NULL,
    -- The largest loss: the disk, GPU or link, both values, and the loss in percent of the value before.
    entity      text,
    before      double precision,
    after       double precision,
    unit        text,
    loss        double precision,
    -- Why no values could be compared.
    problem     text,
    PRIMARY KEY (rollout_id, node_id, gate, metric),
    FOREIGN KEY (rollout_id, node_id) REFERENCES rollout_nodes ON DELETE CASCADE,
    CHECK (num_nonnulls(entity, before, after, unit, loss) = CASE WHEN problem IS NULL THEN 5 ELSE 0 END)
);
CREATE INDEX rollout_comparisons_node ON rollout_comparisons (node_id);
