-- Webhooks: the events told to somebody else's server, in order, each until it is taken or for a day (docs/webhooks.md). What a person declares is
-- an object; how far each is, and what was tried, stands here, so that any replica goes on where another one stopped.

ALTER TABLE objects DROP CONSTRAINT objects_kind_check;
ALTER TABLE objects ADD CONSTRAINT objects_kind_check CHECK (kind IN ('site', 'rack', 'subnet', 'hardware_profile', 'image', 'stack', 'suite', 'cluster',
    'pool', 'credential', 'role_binding', 'webhook'));

CREATE TABLE webhook_states (
    webhook_id      uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    -- Every event up to this number was taken by the receiver, or is not for it.
    seq             bigint NOT NULL CHECK (seq >= 0),
    -- How often the next one was tried, since when, and when it is tried again.
    attempts        integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    failing_since   timestamptz,
    due_at          timestamptz NOT NULL,
    last_error      text,
    -- Given up: nothing is sent until a person changes the webhook or resumes it.
    stopped_at      timestamptz,
    stopped_because text,
    -- Who sends, and until when they are taken to be alive: a sender that has lost its lease writes nothing any more.
    lease           uuid,
    leased_until    timestamptz,
    CHECK ((attempts = 0) = (failing_since IS NULL)),
    CHECK ((stopped_at IS NULL) = (stopped_because IS NULL)),
    CHECK ((lease IS NULL) = (leased_until IS NULL))
);

-- The newest of each webhook; older ones are removed as new ones come.
CREATE TABLE webhook_deliveries (
    id          uuid PRIMARY KEY,
    webhook_id  uuid NOT NULL REFERENCES objects ON DELETE CASCADE,
    -- The event's number; none of a ping, which is no event.
    seq         bigint,
    event_id    uuid NOT NULL,
    kind        text NOT NULL,
    reason      text NOT NULL CHECK (reason IN ('event', 'test', 'redelivery')),
    state       text NOT NULL CHECK (state IN ('queued', 'delivered', 'failed')),
    attempt     integer NOT NULL DEFAULT 0,
    at          timestamptz NOT NULL,
    status      integer,
    error       text,
    duration_ms integer
);
CREATE INDEX webhook_deliveries_newest ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_queued ON webhook_deliveries (webhook_id, id) WHERE state = 'queued';
