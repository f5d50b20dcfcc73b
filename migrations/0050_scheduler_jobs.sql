-- The jobs on the nodes of a cluster, as last listed by the scheduler. A rollout closes a node only shortly before the end of its last job.
--
-- The version before neither reads nor writes both tables.
CREATE TABLE scheduler_looks (
    cluster_id uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    -- The last list of jobs. Jobs seen long ago are unknown.
    seen_at    timestamptz NOT NULL
);

-- A node without a row had no job at the last look. A row is written only when the jobs have changed.
CREATE TABLE scheduler_jobs (
    node_id    uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    cluster_id uuid NOT NULL REFERENCES scheduler_looks ON DELETE CASCADE,
    -- The jobs that end last, the last first: id, user, state, end.
    jobs       jsonb NOT NULL CHECK (jsonb_typeof(jobs) = 'array' AND jsonb_array_length(jobs) BETWEEN 1 AND 8),
    -- All jobs on the node.
    running    integer NOT NULL CHECK (running >= 1)
);
CREATE INDEX scheduler_jobs_cluster ON scheduler_jobs (cluster_id);
