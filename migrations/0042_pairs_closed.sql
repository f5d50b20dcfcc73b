-- A run of pairs is over for who waited for it when its nodes are given back, not when the last pair was measured: until then the next run of its pool would
-- find nobody. Runs that ended under a release before this one are closed as they are; those that an older replica ends meanwhile, by the next one that looks.
ALTER TABLE pair_runs ADD COLUMN closed_at timestamptz;
UPDATE pair_runs SET closed_at = ended_at WHERE ended_at IS NOT NULL;
CREATE INDEX pair_runs_going ON pair_runs (id) WHERE closed_at IS NULL;
