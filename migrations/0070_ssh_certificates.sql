-- SSH user certificates of orders. A row stays until the end of its certificate: the removal of an agent names the certificates that its orders
-- carried. A server of the version before writes no rows, and its certificates have the serial 0.
CREATE TABLE ssh_certificates (
    serial    bigint PRIMARY KEY CHECK (serial > 0),
    job_id    uuid NOT NULL,
    attempt   integer NOT NULL,
    node_id   uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    -- The agent that leased the job. The row outlives the agent.
    agent_id  uuid,
    issued_at timestamptz NOT NULL,
    -- NULL: the certificate has no end, because the clock of the node was unknown.
    ends_at   timestamptz,
    -- A login of the order was refused, perhaps by the clock of the node. Until the end of the row, certificates for the node have no end.
    refused   boolean NOT NULL DEFAULT false
);
CREATE INDEX ssh_certificates_job ON ssh_certificates (job_id);
CREATE INDEX ssh_certificates_agent ON ssh_certificates (agent_id);
CREATE INDEX ssh_certificates_node ON ssh_certificates (node_id);
CREATE INDEX ssh_certificates_end ON ssh_certificates (ends_at);

-- The clock of an installed system, as reported by muster-node through the agent. The host key names the system: a report of a former system does not
-- count for the next.
CREATE TABLE node_clocks (
    node_id   uuid PRIMARY KEY REFERENCES nodes ON DELETE CASCADE,
    host_key  text NOT NULL,
    -- Positive: ahead of the server's clock.
    offset_ms bigint NOT NULL,
    seen_at   timestamptz NOT NULL
);
