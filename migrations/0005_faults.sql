-- What a database that fails, and people who make mistakes, ask for.

-- Keys are forgotten by their age.
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- A database that was put back to an earlier state believes old things. Whoever remembers more than it does opens one of these; nothing is
-- powered or written until an administrator has confirmed it.
CREATE TABLE cautions (
    id           uuid PRIMARY KEY,
    -- One sentence: who remembers what.
    because      text NOT NULL,
    noticed_at   timestamptz NOT NULL,
    confirmed_at timestamptz,
    confirmed_by text,
    -- What the administrator found.
    note         text,
    CHECK ((confirmed_at IS NULL) = (confirmed_by IS NULL))
);
CREATE UNIQUE INDEX cautions_open_key ON cautions ((true)) WHERE confirmed_at IS NULL;

-- Permits of before a restore are worth nothing.
ALTER TABLE permits ADD COLUMN void boolean NOT NULL DEFAULT false;

-- The epoch that the installed OS lets Muster in by: a release that is undone raises the node's, and not the OS's.
ALTER TABLE nodes ADD COLUMN os_epoch bigint;
UPDATE nodes SET os_epoch = epoch WHERE os_host_key IS NOT NULL;

-- A release can be undone until then: disks are kept.
ALTER TABLE claims ADD COLUMN undo_until timestamptz;

-- Which person stands behind a token, and how many nodes it may release in an hour without a second person; null: as many as it likes.
ALTER TABLE tokens ADD COLUMN person text;
ALTER TABLE tokens ADD COLUMN releases_per_hour integer CHECK (releases_per_hour >= 0);

-- Releases of the last hour are counted.
CREATE INDEX operations_releases ON operations (created_at) WHERE kind = 'release';

-- What a second person must agree to.
CREATE TABLE approvals (
    id           uuid PRIMARY KEY,
    claim_id     uuid NOT NULL REFERENCES claims ON DELETE CASCADE,
    -- Why one person is not enough.
    because      text NOT NULL,
    requested_by text NOT NULL,
    -- The person behind the one who asked; somebody else decides.
    person       text NOT NULL,
    requested_at timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    state        text NOT NULL CHECK (state IN ('open', 'approved', 'denied')),
    decided_by   text,
    decided_at   timestamptz,
    operation_id uuid REFERENCES operations,
    CHECK ((state = 'open') = (decided_at IS NULL)),
    CHECK ((decided_at IS NULL) = (decided_by IS NULL)),
    CHECK ((state = 'approved') = (operation_id IS NOT NULL))
);
CREATE UNIQUE INDEX approvals_open_key ON approvals (claim_id) WHERE state = 'open';
CREATE INDEX approvals_open ON approvals (requested_at) WHERE state = 'open';

-- One agent acts for a site at a time; another one of the site stands by until this is over.
CREATE TABLE site_leases (
    site_id  uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    agent_id uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    until    timestamptz NOT NULL
);
