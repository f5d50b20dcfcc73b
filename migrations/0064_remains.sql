-- The remains of deleted nodes: whether disks may hold data of a former claim, the highest assignment epoch, and an adoption. A deletion writes the
-- row; a node that shows any identifier takes the row over before a claim can take the node. Rows without a reason to remember are not written.
-- A disk taken out of a node with data has a row too.
CREATE TABLE remains (
    id          uuid PRIMARY KEY,
    -- The deleted node. Events keep the id.
    node_id     uuid NOT NULL,
    node_name   text NOT NULL,
    -- The deletion of the node, or the removal of the disk.
    left_at     timestamptz NOT NULL,
    unsanitised boolean NOT NULL,
    reason      text,
    epoch       bigint NOT NULL CHECK (epoch >= 0),
    adopted     boolean NOT NULL,
    -- The claim whose marker the disks may carry.
    claim_id    uuid
);

-- A disk is listed only while the disk may hold data.
CREATE TABLE remains_identifiers (
    remains_id uuid NOT NULL REFERENCES remains ON DELETE CASCADE,
    kind       text NOT NULL CHECK (kind IN ('serial', 'uuid', 'mac', 'disk')),
    value      text NOT NULL,
    PRIMARY KEY (remains_id, kind, value)
);
CREATE INDEX remains_identifiers_value ON remains_identifiers (kind, value);

-- The nodes that took remains over, each once: after a verified wipe the same identifiers do not mark the node again.
CREATE TABLE remains_heirs (
    remains_id uuid NOT NULL REFERENCES remains ON DELETE CASCADE,
    node_id    uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    merged_at  timestamptz NOT NULL,
    PRIMARY KEY (remains_id, node_id)
);
CREATE INDEX remains_heirs_node ON remains_heirs (node_id);
