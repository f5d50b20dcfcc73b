-- An outside observer of the disruption budget of pools: at every commit that takes a serving node out of service, the nodes out are counted again,
-- without the product's code. Failure domains have tests of their own. A drain of Muster seen before the return to service has ended.
CREATE TABLE ledger_log (node text NOT NULL, pool text NOT NULL, out_nodes integer NOT NULL, allowed integer NOT NULL, overridden boolean NOT NULL);

CREATE FUNCTION observe_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    of_pool uuid; pool_name text; budget text; counted integer; out_nodes integer; allowed integer;
BEGIN
    SELECT pool.id, pool.name, COALESCE(pool.spec ->> 'max_unavailable', '10%') INTO of_pool, pool_name, budget
    FROM claims c JOIN objects pool ON pool.id = c.pool_id WHERE c.node_id = NEW.id AND c.state = 'bound';
    -- A node out of service for another reason needs no slot.
    IF NOT FOUND OR EXISTS (SELECT FROM scheduler_outs s WHERE s.node_id = NEW.id AND (s.reason LIKE 'muster:%' AND s.seen_at <= OLD.entered_at) IS NOT TRUE)
       OR EXISTS (SELECT FROM pair_ends e WHERE e.node_id = NEW.id AND e.back_at IS NULL) THEN
        RETURN NULL;
    END IF;
    SELECT count(*) FILTER (WHERE NOT off), count(*) FILTER (WHERE gone AND NOT off) INTO counted, out_nodes
    FROM (SELECT n.state <> 'in_service' OR n.held_back OR EXISTS (SELECT FROM scheduler_outs s WHERE s.node_id = n.id AND (s.reason LIKE 'muster:%' AND s.seen_at <= n.entered_at) IS NOT TRUE)
                 OR EXISTS (SELECT FROM pair_ends e WHERE e.node_id = n.id AND e.back_at IS NULL) AS gone,
                 c.written_off_until IS NOT NULL AS off
          FROM claims c JOIN nodes n ON n.id = c.node_id
          WHERE c.pool_id = of_pool AND c.state = 'bound' AND (c.served_at IS NOT NULL OR n.state = 'in_service')) AS member;
    allowed := CASE WHEN budget LIKE '%\%' THEN GREATEST(counted * trim(trailing '%' FROM budget)::integer / 100, 1) ELSE budget::integer END;
    INSERT INTO ledger_log VALUES (NEW.name, pool_name, out_nodes, allowed,
        EXISTS (SELECT FROM operations o WHERE o.id = NEW.operation_id AND o.override_reason IS NOT NULL));
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER ledger_observer AFTER UPDATE ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.state = 'in_service' AND NOT OLD.held_back AND (NEW.state = 'draining' AND NEW.purpose <> 'release' OR NEW.held_back))
    EXECUTE FUNCTION observe_ledger();
