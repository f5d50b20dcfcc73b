-- A node's jobs are found by the first columns of the index that keeps a step from being done twice. A partial index could not be used for that.

DROP INDEX jobs_step_key;
CREATE UNIQUE INDEX jobs_step_key ON jobs (node_id, visit, step, (CASE WHEN superseded THEN id END)) NULLS NOT DISTINCT;
