-- Monitors: queries to a Prometheus server that halt rollouts. The spec is a declared object; its last answers stand here.

ALTER TABLE objects DROP CONSTRAINT objects_kind_check;
ALTER TABLE objects ADD CONSTRAINT objects_kind_check CHECK (kind IN ('site', 'rack', 'subnet', 'hardware_profile', 'network_profile',
    'maintenance_window', 'monitor', 'image', 'stack', 'suite', 'cluster', 'pool', 'credential', 'role_binding', 'webhook'));

CREATE TABLE monitor_answers (
    monitor_id   uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    -- The time of the next query, and of the last one. A query sets the next time, so only one server asks.
    due_at       timestamptz NOT NULL,
    asked_at     timestamptz,
    -- The last answer, its number of series, and the start of the present sequence of answers with or without series.
    answered_at  timestamptz,
    series       bigint CHECK (series >= 0),
    since        timestamptz,
    -- The missing answers since then, in a row.
    missed       integer NOT NULL DEFAULT 0 CHECK (missed >= 0),
    missed_since timestamptz,
    problem      text,
    CHECK ((answered_at IS NULL) = (series IS NULL) AND (answered_at IS NULL) = (since IS NULL)),
    CHECK ((missed = 0) = (missed_since IS NULL) AND (missed = 0) = (problem IS NULL))
);
CREATE INDEX monitor_answers_due ON monitor_answers (due_at);
