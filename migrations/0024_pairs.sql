-- Pairs of a pool's nodes that are measured against each other by turns: who took part, what each pair measured, and whom failures blame.

-- The operation that asked for it has the same id.
CREATE TABLE pair_runs (
    id          uuid PRIMARY KEY REFERENCES operations,
    pool_id     uuid NOT NULL REFERENCES objects ON DELETE CASCADE,
    actor       text NOT NULL,
    -- Its pair gates as they were when the run began: verdicts are by what was run.
    suite       jsonb NOT NULL,
    -- What the person gave for words of argv: `rdma_device`.
    variables   jsonb NOT NULL DEFAULT '{}',
    -- Idle nodes that were more than one run takes.
    beyond      integer NOT NULL CHECK (beyond >= 0),
    begun_at    timestamptz NOT NULL,
    deadline_at timestamptz NOT NULL,
    ended_at    timestamptz,
    ended       text CHECK (ended IN ('done', 'overdue', 'stopped', 'too_few')),
    -- Of ends and edges, by position.
    verdicts    jsonb,
    CONSTRAINT pair_runs_ended CHECK ((ended_at IS NULL) = (ended IS NULL))
);
-- Two runs would measure each other.
CREATE UNIQUE INDEX pair_runs_open_key ON pair_runs (pool_id) WHERE ended_at IS NULL;
CREATE INDEX pair_runs_pool ON pair_runs (pool_id, begun_at DESC);

-- A node that takes part, or was left out.
CREATE TABLE pair_ends (
    run_id   uuid NOT NULL REFERENCES pair_runs ON DELETE CASCADE,
    name     text NOT NULL,
    node_id  uuid REFERENCES nodes ON DELETE SET NULL,
    -- Its place among those that are measured.
    position integer,
    -- The job that keeps the scheduler's jobs from it, said before it is begun; and the one that lets them in again.
    hold_job uuid,
    back_job uuid,
    -- Why it is not, or is no more, measured.
    left_out text,
    -- The gate that it is blamed by, and the sentence.
    gate     text,
    blamed   text,
    -- Nothing of the run is left to be done with it.
    back_at  timestamptz,
    PRIMARY KEY (run_id, name),
    CONSTRAINT pair_ends_position_key UNIQUE (run_id, position),
    CHECK ((gate IS NULL) = (blamed IS NULL))
);
CREATE UNIQUE INDEX pair_ends_open_key ON pair_ends (node_id) WHERE back_at IS NULL;
CREATE INDEX pair_ends_node ON pair_ends (node_id);

-- One measurement of two ends, both ways.
CREATE TABLE pair_trials (
    run_id      uuid NOT NULL REFERENCES pair_runs ON DELETE CASCADE,
    round       integer NOT NULL,
    a           integer NOT NULL,
    b           integer NOT NULL,
    -- Of the end a; null until it has begun.
    job_id      uuid,
    verdict     text CHECK (verdict IN ('pass', 'fail', 'error')),
    -- The first gate that failed.
    gate        text,
    -- What is not a pass, in a sentence.
    why         text,
    -- What each end measured, with its evidence.
    ways        jsonb,
    begun_at    timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (run_id, round, a),
    CHECK (a < b),
    CONSTRAINT pair_trials_finished CHECK ((verdict IS NULL) = (finished_at IS NULL))
);
CREATE INDEX pair_trials_job ON pair_trials (job_id);
