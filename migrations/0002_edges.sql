-- Every edge of the lifecycle: what a node's disks may hold, stops that are remembered, outcomes that nobody saw, maintenance with an end,
-- parts and where they were. And what the engine promises, as the database can say it: a bug is refused here before it does harm.

ALTER TABLE nodes
    -- Its disks may hold somebody's data: set before anything is written, cleared by a verified wipe alone.
    ADD COLUMN unsanitised       boolean NOT NULL DEFAULT false,
    -- When a maintenance ends by itself.
    ADD COLUMN maintenance_until timestamptz;
UPDATE nodes SET unsanitised = true
WHERE os_host_key IS NOT NULL OR reason LIKE 'unsanitised%' OR state IN ('imaging', 'installing', 'validating', 'admitting', 'in_service', 'draining', 'repairing', 'wiping')
   OR failed_phase IN ('imaging', 'wiping');

-- What a drain is for outlives its failure: its retry must not forget it.
ALTER TABLE nodes DROP CONSTRAINT nodes_check3;
UPDATE nodes SET purpose = 'maintenance' WHERE failed_phase = 'draining';
ALTER TABLE nodes ADD CONSTRAINT nodes_drain_purpose
    CHECK ((state = 'draining' OR failed_phase IS NOT DISTINCT FROM 'draining') = (purpose IS NOT NULL));

ALTER TABLE nodes DROP CONSTRAINT nodes_wish_check;
ALTER TABLE nodes ADD CONSTRAINT nodes_wish_check CHECK (wish IN ('accept', 'reject', 'inspect', 'release', 'retry', 'quarantine', 'recover', 'wipe',
    'drain', 'undrain', 'maintain', 'resume', 'retire', 'reinstate', 'replace-parts', 'adopt'));

-- A machine that somebody else installed and that serves as it is.
ALTER TABLE nodes ADD COLUMN adopted boolean NOT NULL DEFAULT false;

-- What a person gave for an adoption, until it is done.
CREATE TABLE adoptions (
    node_id       uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    -- The claim that will hold the node; its marker names it before it exists.
    claim_id      uuid NOT NULL,
    claim_name    text NOT NULL,
    pool_id       uuid NOT NULL CONSTRAINT object_in_use REFERENCES objects,
    credential_id uuid NOT NULL CONSTRAINT object_in_use_too REFERENCES objects,
    -- The fingerprint of its host key that a person confirmed.
    host_key      text,
    actor         text NOT NULL,
    created_at    timestamptz NOT NULL
);

-- Overdue nodes are looked for on every page and by every alert.
CREATE INDEX nodes_deadline ON nodes (deadline_at) WHERE deadline_at IS NOT NULL;

ALTER TABLE operations
    -- Somebody asked to stop it: nothing more of it is begun.
    ADD COLUMN cancel_asked_at timestamptz;
-- `unknown` is not an end: its message names the observation that resolves it.
ALTER TABLE operations DROP CONSTRAINT operations_check;
ALTER TABLE operations ADD CONSTRAINT operations_finished CHECK ((state IN ('queued', 'running', 'unknown')) = (finished_at IS NULL));

-- A node works on one operation at a time.
UPDATE operations o SET state = 'cancelled', finished_at = now(), message = 'overtaken'
FROM nodes n WHERE n.id = o.node_id AND o.finished_at IS NULL AND n.operation_id IS DISTINCT FROM o.id;
CREATE UNIQUE INDEX operations_open_key ON operations (node_id) WHERE finished_at IS NULL;

-- What passed before parts were replaced says nothing of the parts that are in now.
ALTER TABLE gate_runs ADD COLUMN voided_at timestamptz;

-- Boards, GPUs, NICs, disks and DIMMs by serial: where each was seen, and what took its place.
CREATE TABLE components (
    node_id         uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    kind            text NOT NULL CHECK (kind IN ('chassis', 'board', 'gpu', 'nic', 'disk', 'dimm')),
    serial          text NOT NULL,
    slot            text,
    model           text,
    first_seen      timestamptz NOT NULL,
    last_seen       timestamptz NOT NULL,
    -- By a person who said so, or by another serial seen in its slot.
    replaced_at     timestamptz,
    replaced_by     text,
    replaced_reason text,
    PRIMARY KEY (node_id, kind, serial),
    CHECK (first_seen <= last_seen),
    CHECK ((replaced_at IS NULL) = (replaced_by IS NULL))
);
CREATE INDEX components_serial ON components (serial);

-- Only the latest attempt counts, and what has ended stays ended until another round.
CREATE FUNCTION guard_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.attempt < OLD.attempt OR NEW.round < OLD.round THEN
        RAISE EXCEPTION 'the attempts of job % only rise', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_attempts_rise';
    END IF;
    IF OLD.finished_at IS NOT NULL AND NEW.state <> OLD.state AND NEW.round = OLD.round THEN
        RAISE EXCEPTION 'job % has ended', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_end_once';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER jobs_guard BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION guard_job();

CREATE FUNCTION guard_operation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'operation % has ended', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = 'operations_end_once';
END
$$;
CREATE TRIGGER operations_guard BEFORE UPDATE ON operations FOR EACH ROW
    WHEN (OLD.finished_at IS NOT NULL AND NEW.state <> OLD.state) EXECUTE FUNCTION guard_operation();

-- Assignment epochs of nodes and epochs of agents only rise: whatever was fenced stays fenced.
CREATE FUNCTION guard_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the epoch of % only rises', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = TG_TABLE_NAME || '_epoch_rises';
END
$$;
CREATE TRIGGER nodes_epoch BEFORE UPDATE ON nodes FOR EACH ROW WHEN (NEW.epoch < OLD.epoch) EXECUTE FUNCTION guard_epoch();
CREATE TRIGGER agents_epoch BEFORE UPDATE ON agents FOR EACH ROW WHEN (NEW.epoch < OLD.epoch) EXECUTE FUNCTION guard_epoch();

-- A permit is for the node's assignment of now. What is claimed is wiped by its release alone, what is protected is not written at all.
CREATE FUNCTION guard_permit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    node nodes;
BEGIN
    SELECT * INTO STRICT node FROM nodes WHERE id = NEW.node_id;
    IF NEW.epoch <> node.epoch THEN
        RAISE EXCEPTION 'a permit of epoch % for node % at epoch %', NEW.epoch, node.name, node.epoch
            USING ERRCODE = 'check_violation', CONSTRAINT = 'permits_epoch';
    END IF;
    IF NEW.kind IN ('image', 'wipe') AND node.protected THEN
        RAISE EXCEPTION 'node % is protected', node.name USING ERRCODE = 'check_violation', CONSTRAINT = 'permits_protected';
    END IF;
    IF NEW.kind = 'wipe' AND EXISTS (SELECT FROM claims WHERE node_id = node.id AND state = 'bound') THEN
        RAISE EXCEPTION 'node % is claimed', node.name USING ERRCODE = 'check_violation', CONSTRAINT = 'permits_claimed';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER permits_guard BEFORE INSERT OR UPDATE OF redemptions ON permits FOR EACH ROW EXECUTE FUNCTION guard_permit();

-- Disks that may hold somebody's data are nobody else's to claim.
CREATE FUNCTION guard_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM nodes WHERE id = NEW.node_id AND unsanitised) THEN
        RAISE EXCEPTION 'the disks of node % may hold data', NEW.node_id USING ERRCODE = 'check_violation', CONSTRAINT = 'claims_unsanitised';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER claims_guard BEFORE INSERT ON claims FOR EACH ROW EXECUTE FUNCTION guard_claim();
