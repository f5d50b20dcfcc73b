-- A gate that does not pass, admitted all the same: for a node, a rack or a pool, with a reason and an end, agreed to by a second person. What
-- was measured is never changed; a result says which waiver counted in its place.
CREATE TABLE waivers (
    id           uuid PRIMARY KEY,
    node_id      uuid REFERENCES nodes ON DELETE CASCADE,
    rack_id      uuid REFERENCES objects ON DELETE CASCADE,
    pool_id      uuid REFERENCES objects ON DELETE CASCADE,
    gate         text NOT NULL,
    reason       text NOT NULL,
    requested_by text NOT NULL,
    -- The person behind the one who asked; somebody else agrees.
    person       text NOT NULL,
    requested_at timestamptz NOT NULL,
    -- It counts no more from then on.
    until        timestamptz NOT NULL,
    -- `asked` until somebody decides; `ended` by a person before its time.
    state        text NOT NULL CHECK (state IN ('asked', 'agreed', 'denied', 'ended')),
    agreed_by    text,
    agreed_at    timestamptz,
    ended_by     text,
    ended_at     timestamptz,
    CONSTRAINT waivers_one_place CHECK (num_nonnulls(node_id, rack_id, pool_id) = 1),
    CONSTRAINT waivers_agreed CHECK ((agreed_at IS NULL) = (agreed_by IS NULL) AND (state <> 'agreed' OR agreed_at IS NOT NULL)),
    CONSTRAINT waivers_second_person CHECK (agreed_by IS NULL OR agreed_by <> requested_by),
    CONSTRAINT waivers_ended CHECK ((state = 'ended') = (ended_at IS NOT NULL) AND (ended_at IS NULL) = (ended_by IS NULL)),
    CONSTRAINT waivers_order CHECK (until > requested_at)
);
CREATE INDEX waivers_open ON waivers (until) WHERE state IN ('asked', 'agreed');
CREATE INDEX waivers_node ON waivers (node_id) WHERE node_id IS NOT NULL;
CREATE INDEX waivers_rack ON waivers (rack_id) WHERE rack_id IS NOT NULL;
CREATE INDEX waivers_pool ON waivers (pool_id) WHERE pool_id IS NOT NULL;

-- A second person decides on these as well as on releases.
ALTER TABLE approvals ALTER COLUMN claim_id DROP NOT NULL;
ALTER TABLE approvals ADD COLUMN waiver_id uuid REFERENCES waivers ON DELETE CASCADE;
ALTER TABLE approvals ADD CONSTRAINT approvals_of_one CHECK (num_nonnulls(claim_id, waiver_id) = 1);
CREATE UNIQUE INDEX approvals_waiver_key ON approvals (waiver_id) WHERE waiver_id IS NOT NULL;
-- Only a release begins an operation.
ALTER TABLE approvals DROP CONSTRAINT approvals_check2;
ALTER TABLE approvals ADD CONSTRAINT approvals_begun CHECK ((state = 'approved' AND claim_id IS NOT NULL) = (operation_id IS NOT NULL));
