-- Revisions of a pool: full copies of the documents that a node of the pool installs. A revision never changes. Publishing another image, stack or
-- network profile under a used name adds a revision and changes no node: orders are built from the revision that the node's claim is assigned.
CREATE TABLE pool_revisions (
    id                   uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    pool_id              uuid NOT NULL REFERENCES objects ON DELETE CASCADE,
    number               integer NOT NULL CHECK (number > 0),
    -- The number of the revision before.
    parent               integer CHECK (parent < number),
    image_name           text NOT NULL,
    image                jsonb NOT NULL,
    stack_name           text NOT NULL,
    stack                jsonb NOT NULL,
    network_profile_name text,
    network_profile      jsonb,
    actor                text NOT NULL,
    created_at           timestamptz NOT NULL,
    CHECK ((network_profile_name IS NULL) = (network_profile IS NULL)),
    UNIQUE (pool_id, number)
);
CREATE FUNCTION refuse_change_of_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'revision % of a pool never changes', OLD.number USING ERRCODE = 'check_violation', CONSTRAINT = 'pool_revisions_immutable';
END
$$;
CREATE TRIGGER pool_revisions_immutable BEFORE UPDATE ON pool_revisions FOR EACH ROW EXECUTE FUNCTION refuse_change_of_revision();

-- The revision that new claims of a pool are assigned.
CREATE TABLE present_revisions (
    pool_id     uuid PRIMARY KEY REFERENCES objects ON DELETE CASCADE,
    revision_id uuid NOT NULL REFERENCES pool_revisions ON DELETE CASCADE
);

-- Of an open claim: the revision that its node is to run, absent in a claim written by the version before; the revision whose image was written to the
-- node's disk; and the revision that the node was observed to run. The last two are absent while unknown, as for every claim made before this migration.
ALTER TABLE claims
    ADD COLUMN assigned_id uuid REFERENCES pool_revisions,
    ADD COLUMN imaged_id   uuid REFERENCES pool_revisions,
    ADD COLUMN running_id  uuid REFERENCES pool_revisions;

INSERT INTO pool_revisions (pool_id, number, image_name, image, stack_name, stack, network_profile_name, network_profile, actor, created_at)
SELECT pool.id, 1, image.name, image.spec, stack.name, stack.spec, network.name, network.spec, 'muster', now()
FROM objects pool
JOIN objects image ON image.kind = 'image' AND image.name = pool.spec ->> 'image'
JOIN objects stack ON stack.kind = 'stack' AND stack.name = pool.spec ->> 'stack'
LEFT JOIN objects network ON network.kind = 'network_profile' AND network.name = pool.spec ->> 'network_profile'
WHERE pool.kind = 'pool';
INSERT INTO present_revisions (pool_id, revision_id) SELECT pool_id, id FROM pool_revisions;
UPDATE claims c SET assigned_id = present.revision_id FROM present_revisions present WHERE present.pool_id = c.pool_id AND c.state <> 'released';
CREATE INDEX claims_assigned ON claims (assigned_id) WHERE state <> 'released';
