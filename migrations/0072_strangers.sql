-- Machines that discovered themselves, by a request for an address, and that no person has acted on. The row of a site's machine bounds how many such
-- nodes a site keeps: the least recently seen are forgotten. The row of a node that a person acted on no longer counts.
CREATE TABLE strangers (
    node_id uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    site_id uuid NOT NULL REFERENCES objects ON DELETE CASCADE,
    seen_at timestamptz NOT NULL
);
CREATE INDEX strangers_site ON strangers (site_id, seen_at);
INSERT INTO strangers (node_id, site_id, seen_at)
SELECT id, site_id, created_at FROM nodes
WHERE state = 'discovered' AND power = 'manual' AND power_person = 'nobody yet' AND name LIKE 'unknown-%' AND generation = 1;

-- The strangers that a machine made alone: without a word of a person, a fact, a job, or a memory of a deleted node. A later migration that changes the
-- type of a column named here drops the view first and creates the view again.
CREATE VIEW untouched_strangers AS
SELECT s.node_id, s.site_id, s.seen_at
FROM strangers s JOIN nodes n ON n.id = s.node_id
WHERE n.state = 'discovered' AND n.visit = 1 AND n.generation = 1 AND n.wish IS NULL AND n.operation_id IS NULL AND NOT n.protected
  AND NOT n.unsanitised AND n.epoch = 0 AND NOT n.adopted
  AND NOT EXISTS (SELECT FROM facts f WHERE f.node_id = n.id)
  AND NOT EXISTS (SELECT FROM operations o WHERE o.node_id = n.id)
  AND NOT EXISTS (SELECT FROM waivers w WHERE w.node_id = n.id)
  AND NOT EXISTS (SELECT FROM claims c WHERE c.node_id = n.id);

-- The present minute of a site: how many strangers were recorded, not recorded and forgotten, and how many events told of strangers. One event sums up
-- a minute that went beyond a limit.
CREATE TABLE stranger_minutes (
    site_id   uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    began_at  timestamptz NOT NULL,
    recorded  bigint NOT NULL DEFAULT 0 CHECK (recorded >= 0),
    refused   bigint NOT NULL DEFAULT 0 CHECK (refused >= 0),
    forgotten bigint NOT NULL DEFAULT 0 CHECK (forgotten >= 0),
    events    bigint NOT NULL DEFAULT 0 CHECK (events >= 0),
    untold    bigint NOT NULL DEFAULT 0 CHECK (untold >= 0)
);

-- The place in a job's log where lines were removed, because the log was over its size.
ALTER TABLE job_logs ADD COLUMN is_gap boolean NOT NULL DEFAULT false;
