-- Logs every change of the ledger's facts, in the transaction of the change. The server does not know of it.
CREATE SCHEMA observer;
CREATE TABLE observer.facts (
    seq bigserial PRIMARY KEY,
    txid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    fact json NOT NULL);

CREATE FUNCTION observer.note_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observer.facts (fact) VALUES (json_build_object(
        'node', json_build_object('id', NEW.id, 'state', NEW.state, 'held', NEW.held_back)));
    RETURN NULL;
END $$;

CREATE FUNCTION observer.note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observer.facts (fact) VALUES (json_build_object(
        'claim', json_build_object('node', NEW.node_id, 'served', NEW.served_at IS NOT NULL, 'bound', NEW.state = 'bound')));
    RETURN NULL;
END $$;

CREATE FUNCTION observer.note_rollout() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observer.facts (fact) VALUES (json_build_object('rollout', NEW.state));
    RETURN NULL;
END $$;

BEGIN;
LOCK TABLE nodes, claims, rollouts;
CREATE TRIGGER observer_node AFTER UPDATE ON nodes FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.held_back IS DISTINCT FROM NEW.held_back)
    EXECUTE FUNCTION observer.note_node();
CREATE TRIGGER observer_claim AFTER INSERT OR UPDATE ON claims FOR EACH ROW EXECUTE FUNCTION observer.note_claim();
CREATE TRIGGER observer_rollout AFTER UPDATE ON rollouts FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION observer.note_rollout();
INSERT INTO observer.facts (fact)
    SELECT json_build_object('place', json_build_object('id', n.id, 'name', n.name, 'rack', r.name)) FROM nodes n JOIN objects r ON r.id = n.rack_id
    UNION ALL
    SELECT json_build_object('node', json_build_object('id', id, 'state', state, 'held', held_back)) FROM nodes
    UNION ALL
    SELECT json_build_object('claim', json_build_object('node', node_id, 'served', served_at IS NOT NULL, 'bound', state = 'bound'))
    FROM claims WHERE node_id IS NOT NULL;
COMMIT;
