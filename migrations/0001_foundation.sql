-- What people declare, what Muster knows of nodes, what is to be done, and what happened.
-- States are text with CHECK; JSONB only for documents. Names of constraints are part of the code: it translates them into answers.

-- The client-owned part of every declared kind that is a document. One table, because one contract (name, labels, generation, references)
-- holds for all of them; what the engine decides on has typed columns in tables of its own.
CREATE TABLE objects (
    id          uuid PRIMARY KEY,
    kind        text NOT NULL CHECK (kind IN ('site', 'rack', 'subnet', 'hardware_profile', 'image', 'stack', 'suite', 'cluster', 'pool', 'credential')),
    name        text NOT NULL CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    labels      jsonb NOT NULL DEFAULT '{}',
    annotations jsonb NOT NULL DEFAULT '{}',
    spec        jsonb NOT NULL,
    -- Counts changes of the client-owned part: the ETag.
    generation  bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    CONSTRAINT objects_name_key UNIQUE (kind, name)
);

-- Every reference inside a spec, so that the database refuses to remove what is in use.
CREATE TABLE object_refs (
    from_id uuid NOT NULL REFERENCES objects ON DELETE CASCADE,
    pointer text NOT NULL,
    to_id   uuid NOT NULL CONSTRAINT object_in_use REFERENCES objects ON DELETE RESTRICT,
    PRIMARY KEY (from_id, pointer)
);
CREATE INDEX object_refs_to ON object_refs (to_id);

-- Envelope-encrypted: a data key per row, wrapped by the key outside the database; the row's id is bound in as associated data.
CREATE TABLE secrets (
    object_id   uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    key_id      text NOT NULL,
    wrapped_key bytea NOT NULL,
    ciphertext  bytea NOT NULL
);

-- Keys the server signs with (permits, SSH CA), encrypted the same way.
CREATE TABLE server_keys (
    name        text PRIMARY KEY CHECK (name IN ('permit', 'ssh_user_ca')),
    key_id      text NOT NULL,
    wrapped_key bytea NOT NULL,
    ciphertext  bytea NOT NULL,
    created_at  timestamptz NOT NULL
);

CREATE TABLE operations (
    id          uuid PRIMARY KEY,
    kind        text NOT NULL,
    node_id     uuid,
    claim_id    uuid,
    state       text NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'unknown')),
    actor       text NOT NULL,
    request_id  text,
    message     text NOT NULL DEFAULT '',
    error       jsonb,
    created_at  timestamptz NOT NULL,
    started_at  timestamptz,
    finished_at timestamptz,
    CHECK ((state IN ('queued', 'running')) = (finished_at IS NULL))
);
CREATE INDEX operations_node ON operations (node_id, id DESC);

CREATE TABLE nodes (
    id             uuid PRIMARY KEY,
    name           text NOT NULL CONSTRAINT nodes_name_key UNIQUE CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    labels         jsonb NOT NULL DEFAULT '{}',
    annotations    jsonb NOT NULL DEFAULT '{}',
    generation     bigint NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    -- Wanted: the document as the client wrote it, which is what it reads back; the columns below are what is decided on.
    spec           jsonb NOT NULL,
    site_id        uuid NOT NULL CONSTRAINT object_in_use REFERENCES objects,
    rack_id        uuid REFERENCES objects,
    rack_unit      integer CHECK (rack_unit BETWEEN 1 AND 60),
    profile_id     uuid REFERENCES objects,
    serial         text CONSTRAINT nodes_serial_key UNIQUE,
    smbios_uuid    uuid CONSTRAINT nodes_smbios_uuid_key UNIQUE,
    power          text NOT NULL CHECK (power IN ('redfish', 'manual')),
    power_person   text,
    bmc_address    inet CONSTRAINT nodes_bmc_address_key UNIQUE,
    bmc_port       integer NOT NULL DEFAULT 443 CHECK (bmc_port BETWEEN 1 AND 65535),
    bmc_credential_id uuid REFERENCES objects,
    -- Where its serial console can be read: raw bytes over TCP.
    console_address inet,
    console_port   integer CHECK (console_port BETWEEN 1 AND 65535),
    protected      boolean NOT NULL DEFAULT false,
    CONSTRAINT nodes_console_key UNIQUE (console_address, console_port),
    CHECK ((console_address IS NULL) = (console_port IS NULL)),
    CHECK ((power = 'redfish') = (bmc_address IS NOT NULL AND bmc_credential_id IS NOT NULL)),
    CHECK ((power = 'manual') = (power_person IS NOT NULL)),
    -- Where it is on its way. Written by the guarded advance alone.
    state          text NOT NULL CHECK (state IN ('discovered', 'inspecting', 'available', 'imaging', 'installing', 'validating', 'admitting',
                       'in_service', 'draining', 'repairing', 'quarantined', 'failed', 'wiping', 'maintenance', 'retired')),
    version        bigint NOT NULL DEFAULT 1,
    -- Which stay in a state this is: steps of an earlier stay never count.
    visit          bigint NOT NULL DEFAULT 1,
    entered_at     timestamptz NOT NULL,
    deadline_at    timestamptz,
    purpose        text CHECK (purpose IN ('upgrade', 'repair', 'maintenance', 'release')),
    failed_phase   text,
    reason         text,
    CHECK ((state = 'draining') = (purpose IS NOT NULL)),
    CHECK ((state = 'failed') = (failed_phase IS NOT NULL)),
    CHECK (state <> 'quarantined' OR reason IS NOT NULL),
    -- Raised by each claim and release; fences permits, certificates and muster-node.
    epoch          bigint NOT NULL DEFAULT 0,
    -- The intent the engine has not acted on yet.
    wish           text CHECK (wish IN ('accept', 'reject', 'inspect', 'release', 'retry', 'quarantine', 'recover', 'wipe', 'drain', 'undrain', 'maintain', 'resume', 'retire', 'reinstate')),
    wish_reason    text,
    operation_id   uuid REFERENCES operations,
    -- The engine takes a node when this has come.
    due_at         timestamptz,
    -- "Why is this node not moving?", as data.
    waiting_for    text,
    waiting_since  timestamptz,
    waiting_owner  text,
    next_action    text,
    -- Observed.
    live_host_key  text,
    live_boot_id   text,
    os_host_key    text,
    os_boot_id     text,
    root_disk_serial text,
    bmc_certificate  text,
    power_reserved_w integer NOT NULL DEFAULT 0 CHECK (power_reserved_w >= 0),
    in_cluster     boolean NOT NULL DEFAULT false,
    CHECK (state <> 'in_service' OR in_cluster)
);
CREATE INDEX nodes_due ON nodes (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX nodes_state ON nodes (state, name);
CREATE INDEX nodes_rack ON nodes (rack_id);

ALTER TABLE operations ADD CONSTRAINT operations_node_fkey FOREIGN KEY (node_id) REFERENCES nodes ON DELETE SET NULL;

-- Boot MACs of nodes and the address each gets.
CREATE TABLE node_macs (
    mac       macaddr CONSTRAINT node_macs_mac_key PRIMARY KEY,
    node_id   uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    subnet_id uuid REFERENCES objects,
    address   inet,
    CONSTRAINT node_macs_address_key UNIQUE (subnet_id, address),
    CHECK ((subnet_id IS NULL) = (address IS NULL))
);
CREATE INDEX node_macs_node ON node_macs (node_id);

CREATE TABLE claims (
    id          uuid PRIMARY KEY,
    name        text NOT NULL,
    node_id     uuid NOT NULL REFERENCES nodes,
    pool_id     uuid NOT NULL CONSTRAINT object_in_use REFERENCES objects,
    -- As the client wrote it, selector included.
    spec        jsonb NOT NULL,
    state       text NOT NULL CHECK (state IN ('bound', 'releasing', 'released')),
    epoch       bigint NOT NULL,
    generation  bigint NOT NULL DEFAULT 1,
    actor       text NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    released_at timestamptz,
    CHECK ((state = 'released') = (released_at IS NOT NULL))
);
-- A node has one owner at a time, and a name is free again once its claim is gone.
CREATE UNIQUE INDEX claims_node_key ON claims (node_id) WHERE state <> 'released';
CREATE UNIQUE INDEX claims_name_key ON claims (name) WHERE state <> 'released';

CREATE TABLE agents (
    id         uuid PRIMARY KEY,
    site_id    uuid NOT NULL REFERENCES objects,
    name       text NOT NULL UNIQUE,
    token_hash bytea NOT NULL UNIQUE,
    -- Raised when another process takes over.
    epoch      bigint NOT NULL DEFAULT 0,
    instance   text,
    version    text,
    last_seen  timestamptz
);

CREATE TABLE jobs (
    id           uuid PRIMARY KEY,
    node_id      uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    site_id      uuid NOT NULL REFERENCES objects,
    operation_id uuid REFERENCES operations,
    visit        bigint NOT NULL,
    step         text NOT NULL,
    kind         text NOT NULL,
    epoch        bigint NOT NULL,
    state        text NOT NULL CHECK (state IN ('queued', 'leased', 'succeeded', 'failed', 'cancelled')),
    -- Fences stale workers: raised by each lease.
    attempt      integer NOT NULL DEFAULT 0,
    -- Raised by each retry after a reported failure; acts of an earlier round do not bind a later one.
    round        integer NOT NULL DEFAULT 1,
    cancel       boolean NOT NULL DEFAULT false,
    not_before   timestamptz NOT NULL,
    leased_by    uuid REFERENCES agents,
    lease_until  timestamptz,
    timeout_s    bigint NOT NULL,
    -- What a boot needs to be recognised by, made once per round.
    nonce        text,
    permit_id    uuid,
    progress     jsonb,
    waiting_for  text,
    result       jsonb,
    failure      jsonb,
    created_at   timestamptz NOT NULL,
    started_at   timestamptz,
    finished_at  timestamptz,
    CONSTRAINT jobs_step_key UNIQUE (node_id, visit, step),
    CHECK ((state = 'leased') = (leased_by IS NOT NULL AND lease_until IS NOT NULL)),
    CHECK ((state = 'succeeded') = (result IS NOT NULL)),
    CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL))
);
CREATE INDEX jobs_queue ON jobs (site_id, not_before, id) WHERE state = 'queued';
CREATE INDEX jobs_leases ON jobs (lease_until) WHERE state = 'leased';
CREATE INDEX jobs_operation ON jobs (operation_id, id);

-- Starts of `once` acts, committed before the act.
CREATE TABLE job_acts (
    job_id     uuid NOT NULL REFERENCES jobs ON DELETE CASCADE,
    round      integer NOT NULL,
    act        text NOT NULL,
    attempt    integer NOT NULL,
    before     text NOT NULL,
    started_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, round, act)
);

CREATE TABLE job_logs (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  uuid NOT NULL REFERENCES jobs ON DELETE CASCADE,
    attempt integer NOT NULL,
    at      timestamptz NOT NULL,
    text    text NOT NULL
);
CREATE INDEX job_logs_job ON job_logs (job_id, id);

-- What nodes wrote on their serial consoles, the latest part of each.
CREATE TABLE console_chunks (
    node_id uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    -- Counts what the node's chunks weigh, this one included: it orders them, and the old ones are those far enough below the latest.
    id      bigint NOT NULL,
    at      timestamptz NOT NULL,
    text    text NOT NULL,
    PRIMARY KEY (node_id, id),
    -- A report that is told twice is recorded once.
    UNIQUE (node_id, at)
);

CREATE TABLE permits (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('power', 'image', 'wipe')),
    node_id      uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    operation_id uuid NOT NULL REFERENCES operations,
    claim_id     uuid,
    job_id       uuid NOT NULL REFERENCES jobs ON DELETE CASCADE,
    epoch        bigint NOT NULL,
    -- Sorted serials; null where the permit is for power.
    disk_serials text[],
    expires_at   timestamptz NOT NULL,
    redeemed_at  timestamptz,
    redemptions  integer NOT NULL DEFAULT 0,
    CHECK ((kind = 'power') = (disk_serials IS NULL))
);

CREATE TABLE facts (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id     uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    source      text NOT NULL CHECK (source IN ('live', 'installed')),
    observed_at timestamptz NOT NULL,
    facts       jsonb NOT NULL
);
CREATE INDEX facts_latest ON facts (node_id, observed_at DESC);

CREATE TABLE gate_runs (
    id          uuid PRIMARY KEY,
    node_id     uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    job_id      uuid NOT NULL UNIQUE REFERENCES jobs ON DELETE CASCADE,
    suite       text NOT NULL,
    verdict     text NOT NULL CHECK (verdict IN ('pass', 'fail', 'unknown')),
    fingerprint text NOT NULL,
    finished_at timestamptz NOT NULL
);
CREATE INDEX gate_runs_node ON gate_runs (node_id, id DESC);

CREATE TABLE gate_results (
    run_id   uuid NOT NULL REFERENCES gate_runs ON DELETE CASCADE,
    position integer NOT NULL,
    gate     text NOT NULL,
    verdict  text NOT NULL CHECK (verdict IN ('pass', 'fail', 'error', 'skipped')),
    result   jsonb NOT NULL,
    PRIMARY KEY (run_id, position)
);

-- Append-only. `xid` lets readers stop before transactions still in flight, so that no event is skipped.
CREATE TABLE events (
    seq          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           uuid NOT NULL UNIQUE,
    xid          xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at           timestamptz NOT NULL,
    actor        text NOT NULL,
    kind         text NOT NULL,
    node_id      uuid,
    object_id    uuid,
    operation_id uuid,
    request_id   text,
    summary      text NOT NULL,
    detail       jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX events_node ON events (node_id, seq);
CREATE INDEX events_object ON events (object_id, seq) WHERE object_id IS NOT NULL;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are append-only';
END
$$;
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TABLE users (
    id            uuid PRIMARY KEY,
    name          text NOT NULL UNIQUE,
    password_hash text NOT NULL,
    role          text NOT NULL CHECK (role IN ('admin', 'operator', 'viewer')),
    created_at    timestamptz NOT NULL
);

CREATE TABLE sessions (
    token_hash bytea PRIMARY KEY,
    user_id    uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE tokens (
    id         uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    token_hash bytea NOT NULL UNIQUE,
    role       text NOT NULL CHECK (role IN ('admin', 'operator', 'viewer')),
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    last_used  timestamptz,
    revoked_at timestamptz
);

-- Stored in the transaction of its effect: the same request again has the same effect once.
CREATE TABLE idempotency_keys (
    actor      text NOT NULL,
    key        text NOT NULL,
    request    bytea NOT NULL,
    status     integer NOT NULL,
    body       jsonb NOT NULL,
    location   text,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (actor, key)
);

-- Orders lists of cluster members: an agent never replaces a newer list by an older one.
CREATE SEQUENCE cluster_revisions;
