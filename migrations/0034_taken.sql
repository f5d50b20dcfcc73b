-- Whose BMC it is, as a violated unique constraint tells it: the caller is told which node that is.
CREATE OR REPLACE FUNCTION guard_bmc() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    other uuid;
BEGIN
    -- Two that are declared at once are looked at one after the other.
    PERFORM pg_advisory_xact_lock(hashtextextended('bmc ' || host(NEW.bmc_address), 0));
    SELECT n.id INTO other FROM nodes n
    WHERE n.bmc_address = NEW.bmc_address AND n.id <> NEW.id AND (n.bmc_system IS NULL OR NEW.bmc_system IS NULL)
        AND n.bmc_system IS DISTINCT FROM NEW.bmc_system
        AND (CASE WHEN n.bmc_port IN (443, 623) THEN 0 ELSE n.bmc_port END) = (CASE WHEN NEW.bmc_port IN (443, 623) THEN 0 ELSE NEW.bmc_port END)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'another node is behind the BMC %, and one of the two names no system', host(NEW.bmc_address)
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'nodes_bmc_system_named', DETAIL = format('Key (id)=(%s) already exists.', other);
    END IF;
    RETURN NEW;
END $$;
