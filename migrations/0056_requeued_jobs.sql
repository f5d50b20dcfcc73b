-- Jobs requeued by a rollout. An operation whose drain requeues the jobs of the node, after the deadline of the rollout's policy.
ALTER TABLE operations ADD COLUMN requeue_jobs boolean NOT NULL DEFAULT false;
