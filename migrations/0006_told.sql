-- Faults that an operator is told of, or kept from.

-- How far the clock of an agent's machine is ahead of the database's, when it was last heard. Null: it does not say.
ALTER TABLE agents ADD COLUMN clock_offset_ms bigint;

-- One machine behind a BMC, or several that each say which system they are: a node that does not say would power whichever the BMC lists first.
CREATE FUNCTION guard_bmc() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Two that are declared at once are looked at one after the other.
    PERFORM pg_advisory_xact_lock(hashtextextended('bmc ' || host(NEW.bmc_address), 0));
    IF EXISTS (
        SELECT FROM nodes n WHERE n.bmc_address = NEW.bmc_address AND n.id <> NEW.id AND (n.bmc_system IS NULL OR NEW.bmc_system IS NULL)
            AND n.bmc_system IS DISTINCT FROM NEW.bmc_system
            AND (CASE WHEN n.bmc_port IN (443, 623) THEN 0 ELSE n.bmc_port END) = (CASE WHEN NEW.bmc_port IN (443, 623) THEN 0 ELSE NEW.bmc_port END))
    THEN
        RAISE EXCEPTION 'another node is behind the BMC %, and one of the two names no system', host(NEW.bmc_address)
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'nodes_bmc_system_named';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER nodes_bmc_guard BEFORE INSERT OR UPDATE OF bmc_address, bmc_port, bmc_system ON nodes
    FOR EACH ROW WHEN (NEW.bmc_address IS NOT NULL) EXECUTE FUNCTION guard_bmc();
