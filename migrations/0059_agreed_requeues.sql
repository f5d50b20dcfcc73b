-- The time at which a person agreed to requeue the jobs of a node that waits for its change.
ALTER TABLE rollout_nodes ADD COLUMN requeue_agreed_at timestamptz;
