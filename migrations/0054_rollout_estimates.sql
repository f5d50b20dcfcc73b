-- The estimated end of a large rollout, which takes seconds to calculate: the answer for readers, and the time at which a server began to calculate it.
-- NULL for a small rollout, and after a change of the policy.
ALTER TABLE rollouts ADD COLUMN estimate jsonb, ADD COLUMN estimated_at timestamptz;
