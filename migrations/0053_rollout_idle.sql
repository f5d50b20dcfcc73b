-- The time since when a node has no job while a rollout keeps it waiting, or drains it: idle GPUs are the price of waiting. NULL while the node runs
-- jobs, and for other marks.
ALTER TABLE rollout_nodes ADD COLUMN idle_since timestamptz;
