-- A rollout changes the nodes of a unit together: a drained node waits for the drains of the others (core/lifecycle, draining).
ALTER TABLE rollout_nodes ADD COLUMN waits_for_unit boolean NOT NULL DEFAULT false;
