-- Rollouts that start by themselves: the newest revision of a pool with `on_change: start`, until the start. A person's start of a rollout of the pool
-- removes the row. The code and the reason are those of the last refused attempt.
CREATE TABLE due_rollouts (
    pool_id     uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    revision_id uuid NOT NULL REFERENCES pool_revisions ON DELETE CASCADE,
    created_at  timestamptz NOT NULL,
    tried_at    timestamptz,
    reason_code text,
    reason      text
);
