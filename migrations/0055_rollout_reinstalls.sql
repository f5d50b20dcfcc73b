-- Reinstalls by rollouts. The plan fixes the nodes that may be reinstalled, and keeps the person who planned: beyond an hourly limit another person must
-- start the plan. A start by a version before names no person, and then no node is reinstalled. Operations name the rollout, because its reinstalls do not
-- count in the hourly limits. The time of a retry tells whether a node was put into quarantine afterwards.
ALTER TABLE rollouts ADD COLUMN person text, ADD COLUMN started_by text;
ALTER TABLE rollout_nodes ADD COLUMN reinstall_planned boolean NOT NULL DEFAULT false, ADD COLUMN retried_at timestamptz;
ALTER TABLE operations ADD COLUMN rollout_id uuid;
