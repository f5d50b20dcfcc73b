-- The time since when a node has no job while a rollout keeps it waiting, or drains it: idle GPU time is the cost of a wait. NULL while the node runs
-- jobs, and for other marks.
-- While a server of the version before runs, the losses may be too high.
ALTER TABLE rollout_nodes ADD COLUMN idle_since timestamptz;
