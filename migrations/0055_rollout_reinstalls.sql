-- Reinstalls by rollouts. The plan fixes the nodes that may be reinstalled, and keeps the person who planned: beyond an hourly limit another person must
-- start the plan. Plans of the version before have no person and no such node.
ALTER TABLE rollouts ADD COLUMN person text;
ALTER TABLE rollout_nodes ADD COLUMN reinstall_planned boolean NOT NULL DEFAULT false;
