-- Nodes powered by IPMI, and several systems behind one BMC.

ALTER TABLE nodes
    -- The Redfish id of the node's system, where its BMC has more than one.
    ADD COLUMN bmc_system text,
    -- What an IPMI machine boots by: its boot flags say it each time.
    ADD COLUMN bmc_firmware text CHECK (bmc_firmware IN ('uefi', 'bios')),
    DROP CONSTRAINT nodes_power_check,
    DROP CONSTRAINT nodes_check1,
    DROP CONSTRAINT nodes_bmc_address_key,
    ADD CONSTRAINT nodes_power_check CHECK (power IN ('redfish', 'ipmi', 'manual')),
    ADD CONSTRAINT nodes_power_bmc_check
        CHECK ((power IN ('redfish', 'ipmi')) = (bmc_address IS NOT NULL AND bmc_credential_id IS NOT NULL)),
    ADD CONSTRAINT nodes_power_system_check CHECK (bmc_system IS NULL OR power = 'redfish'),
    ADD CONSTRAINT nodes_power_firmware_check CHECK ((power = 'ipmi') = (bmc_firmware IS NOT NULL));

-- No machine is two nodes. The usual ports of one address are one BMC, whatever it speaks there; other ports are other BMCs: simulators, or a BMC behind
-- a forwarded port.
CREATE UNIQUE INDEX nodes_bmc_key
    ON nodes (bmc_address, (CASE WHEN bmc_port IN (443, 623) THEN 0 ELSE bmc_port END), (COALESCE(bmc_system, '')));
