-- What is asked of a claim beside its node: what waiting for it means, whether Muster leaves its node as it is, and another node in its place.

ALTER TABLE claims
    -- What whoever waits for it waits for.
    ADD COLUMN wait_for text NOT NULL DEFAULT 'in_service' CONSTRAINT claims_wait_for CHECK (wait_for IN ('bound', 'in_service')),
    -- Nothing that happens by itself changes what its node runs.
    ADD COLUMN hold boolean NOT NULL DEFAULT false,
    -- The claim that it was made for: while it is bound, its node is to be that claim's; while it is released, its node is given up for that claim.
    ADD COLUMN replaces uuid REFERENCES claims ON DELETE SET NULL,
    -- The claim that the disks of its node are marked with, where that is another one: two claims changed nodes, and no disk is written for that.
    ADD COLUMN marker uuid,
    ADD CONSTRAINT claims_replaces_another CHECK (replaces <> id);

-- One node at a time is on its way for a claim.
CREATE UNIQUE INDEX claims_replacement_key ON claims (replaces) WHERE state = 'bound' AND replaces IS NOT NULL;
CREATE INDEX claims_replaces ON claims (replaces) WHERE state <> 'released' AND replaces IS NOT NULL;

-- A replacement that is under way will release a node: it counts before it does.
CREATE INDEX operations_replacing ON operations (claim_id) WHERE kind = 'replace' AND finished_at IS NULL;

-- What a second person agrees to may be a release that comes with another node.
ALTER TABLE approvals
    ADD COLUMN replaces boolean NOT NULL DEFAULT false,
    -- The node that was named for it; null: any that fits.
    ADD COLUMN spare text;
