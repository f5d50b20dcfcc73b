-- A rollout changes the nodes of a unit together: a drained node waits for the drains of the others, and then all changes start (core/lifecycle, draining).
ALTER TABLE rollout_nodes ADD COLUMN unit_change text CHECK (unit_change IN ('waits', 'started'));
