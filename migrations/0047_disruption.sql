-- The ledger of disruption. Which nodes are out of service is read from the rows each time; nothing here is a counter.
ALTER TABLE claims
    -- The first time that a node of the claim was in service. Absent: the claim is on the first way into service, and is not out.
    ADD COLUMN served_at timestamptz,
    -- A person has written the node off: while out of service, the node does not count against a budget until this time.
    ADD COLUMN written_off_until  timestamptz,
    ADD COLUMN written_off_reason text,
    ADD COLUMN written_off_by     text,
    ADD CONSTRAINT claims_written_off CHECK (num_nulls(written_off_until, written_off_reason, written_off_by) IN (0, 3));

UPDATE claims c SET served_at = n.entered_at FROM nodes n WHERE n.id = c.node_id AND c.state <> 'released' AND n.state = 'in_service';
UPDATE claims c SET served_at = e.at
FROM (SELECT node_id, max(at) AS at FROM events WHERE kind = 'node.advanced' AND detail ->> 'to' = 'in_service' GROUP BY node_id) e
WHERE e.node_id = c.node_id AND c.state <> 'released' AND c.served_at IS NULL AND e.at >= c.created_at;

-- Both by a trigger, because a server of the version before also moves nodes. A node that enters or leaves service is no longer written off: an act of
-- Muster that takes the node out later counts.
CREATE FUNCTION record_service() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE claims SET served_at = COALESCE(served_at, NEW.entered_at), written_off_until = NULL, written_off_reason = NULL, written_off_by = NULL
    WHERE node_id = NEW.id AND state <> 'released';
    RETURN NULL;
END
$$;
CREATE TRIGGER nodes_service AFTER UPDATE OF state ON nodes FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state = 'in_service' OR NEW.state = 'in_service')) EXECUTE FUNCTION record_service();

-- The reason of a person for an act beyond the budget.
ALTER TABLE operations ADD COLUMN override_reason text;

-- Nodes that wait for a free slot, the longest wait first.
CREATE INDEX nodes_slot ON nodes (waiting_since) WHERE waiting_reason = 'disruption_budget';
