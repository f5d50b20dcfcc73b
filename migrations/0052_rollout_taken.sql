-- The time at which a rollout took the node: alerts that began earlier are not caused by the rollout. NULL for a node that serves as before.
ALTER TABLE rollout_nodes ADD COLUMN taken_at timestamptz;
UPDATE rollout_nodes r SET taken_at = o.created_at FROM operations o
  WHERE o.id = r.operation_id AND r.mark IN ('changing', 'validating', 'done', 'failed');
