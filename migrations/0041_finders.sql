-- The gate that a node's open recovery began with, as the suites of its pool have it now: the sweep's before that of the health check. The engine's turn and the
-- order of a node's gates both ask for it. Not a gate that needs a second node, or another gate's load, for it could not be run alone.
CREATE VIEW recovery_finders AS
SELECT r.id AS recovery_id, found.gate
FROM recoveries r
JOIN claims c ON c.node_id = r.node_id AND c.state <> 'released'
JOIN objects pool ON pool.id = c.pool_id
CROSS JOIN LATERAL (
    SELECT gate
    FROM objects o, jsonb_array_elements(o.spec -> 'gates') gate
    WHERE o.kind = 'suite' AND o.name IN (pool.spec #>> '{health,sweep}', pool.spec #>> '{health,smoke}')
      AND r.signature = 'gate:' || (gate ->> 'id')
      AND COALESCE(gate -> 'peer', 'null') = 'null' AND COALESCE(gate -> 'during', 'null') = 'null'
    ORDER BY o.name = pool.spec #>> '{health,sweep}' DESC
    LIMIT 1) found
WHERE r.ended_at IS NULL;
