-- What BMCs say of firmware and BIOS: a row for each time that it was another, so that it can be told since when.
CREATE TABLE bmc_inventories (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id    uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    first_seen timestamptz NOT NULL,
    last_seen  timestamptz NOT NULL CHECK (last_seen >= first_seen),
    inventory  jsonb NOT NULL
);
CREATE INDEX bmc_inventories_latest ON bmc_inventories (node_id, id DESC);
