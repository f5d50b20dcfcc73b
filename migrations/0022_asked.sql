-- What can be asked of a node where it rests: its power, and a suite of gates; and to be installed anew, for which it drains first.

ALTER TABLE nodes DROP CONSTRAINT nodes_wish_check;
ALTER TABLE nodes ADD CONSTRAINT nodes_wish_check CHECK (wish IN ('accept', 'reject', 'inspect', 'release', 'retry', 'quarantine', 'recover', 'wipe',
    'drain', 'undrain', 'maintain', 'resume', 'retire', 'reinstate', 'replace-parts', 'adopt', 'check-drift', 'sweep', 'power-on', 'power-off',
    'power-cycle', 'run-gates', 'converge', 'reinstall'));
ALTER TABLE nodes DROP CONSTRAINT nodes_purpose_check;
ALTER TABLE nodes ADD CONSTRAINT nodes_purpose_check CHECK (purpose IN ('upgrade', 'reinstall', 'repair', 'maintenance', 'release'));

ALTER TABLE nodes
    -- The power as a job saw it last, and when.
    ADD COLUMN power_seen    text CHECK (power_seen IN ('on', 'off')),
    ADD COLUMN power_seen_at timestamptz,
    ADD CHECK ((power_seen IS NULL) = (power_seen_at IS NULL));

-- The suite that was asked for by name.
ALTER TABLE operations ADD COLUMN suite text;

-- What is asked for again in the same stay is another job: a machine gives a job that ended well the result it has, and the operation that
-- asked first keeps its steps.
ALTER TABLE jobs ADD COLUMN superseded boolean NOT NULL DEFAULT false;
ALTER TABLE jobs DROP CONSTRAINT jobs_step_key;
CREATE UNIQUE INDEX jobs_step_key ON jobs (node_id, visit, step) WHERE NOT superseded;
