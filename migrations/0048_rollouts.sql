-- Rollouts: a set of claims moves from the revisions that they run to one revision. The plan of a tick is not stored: each tick plans again from the marks
-- and from the nodes.
CREATE TABLE rollouts (
    id              uuid PRIMARY KEY,
    -- The pool's name and a number: `gpu-3`.
    name            text NOT NULL CONSTRAINT rollouts_name_key UNIQUE,
    pool_id         uuid NOT NULL CONSTRAINT object_in_use REFERENCES objects,
    target_id       uuid NOT NULL REFERENCES pool_revisions,
    policy          jsonb NOT NULL,
    state           text NOT NULL CHECK (state IN ('planned', 'running', 'halted', 'done', 'superseded', 'expired')),
    -- Of the planned nodes, their effects and the policy: what a person confirms with the start.
    digest          text NOT NULL,
    -- A plan not started until then has no effect any more.
    expires_at      timestamptz NOT NULL,
    -- Nodes that the rollout changes, as planned. Percentages of the policy refer to this number.
    planned         integer NOT NULL CHECK (planned >= 0),
    -- A person ended the canary and its soak early.
    promoted        boolean NOT NULL DEFAULT false,
    -- Nodes that failed in the run and left the rollout afterwards.
    failed_and_left integer NOT NULL DEFAULT 0,
    -- The reason of the halt (core/rollout, HaltReason).
    halt            jsonb,
    -- The start of a stall that was reported.
    stalled_since   timestamptz,
    actor           text NOT NULL,
    created_at      timestamptz NOT NULL,
    started_at      timestamptz,
    -- The start, or the last resume.
    since           timestamptz,
    ended_at        timestamptz,
    CHECK ((state = 'halted') = (halt IS NOT NULL)),
    CHECK (state IN ('planned', 'expired') OR started_at IS NOT NULL)
);
CREATE UNIQUE INDEX rollouts_open_key ON rollouts (pool_id) WHERE state IN ('running', 'halted');
CREATE INDEX rollouts_pool ON rollouts (pool_id, created_at);

-- The mark of a node in a rollout.
CREATE TABLE rollout_nodes (
    rollout_id     uuid NOT NULL REFERENCES rollouts ON DELETE CASCADE,
    node_id        uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    claim_id       uuid NOT NULL REFERENCES claims ON DELETE CASCADE,
    -- The revision assigned before the rollout took the node.
    before_id      uuid REFERENCES pool_revisions,
    mark           text NOT NULL DEFAULT 'not_begun'
                   CHECK (mark IN ('not_begun', 'waiting', 'changing', 'validating', 'done', 'skipped', 'failed')),
    since          timestamptz NOT NULL,
    -- The code and the sentence of the last act.
    reason_code    text,
    reason         text,
    -- The node was changed by the rollout; of a done node.
    changed        boolean NOT NULL DEFAULT false,
    -- Results of earlier wrong attempts.
    wrong          text[] NOT NULL DEFAULT '{}',
    failed_before  boolean NOT NULL DEFAULT false,
    deferred_until timestamptz,
    -- The operation of the present attempt.
    operation_id   uuid,
    PRIMARY KEY (rollout_id, node_id)
);
CREATE INDEX rollout_nodes_node ON rollout_nodes (node_id);
