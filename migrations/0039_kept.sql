-- A claim is taken back while its disks are what they were: not once the wipe of its release was given leave. And what was given back stays so.
-- A replacement exchanges two claims' nodes, and one of them is nobody's for a moment: that is not taking it back.
CREATE FUNCTION guard_end_of_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'released' THEN
        RAISE EXCEPTION 'claim % was released', NEW.name USING ERRCODE = 'check_violation', CONSTRAINT = 'claims_end_once';
    END IF;
    IF EXISTS (SELECT FROM permits WHERE node_id = NEW.node_id AND kind = 'wipe' AND epoch = OLD.epoch AND redeemed_at IS NOT NULL) THEN
        RAISE EXCEPTION 'the disks of claim % are being wiped', NEW.name USING ERRCODE = 'check_violation', CONSTRAINT = 'claims_kept';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER claims_end BEFORE UPDATE OF state ON claims FOR EACH ROW
    WHEN (NEW.node_id = OLD.node_id AND NEW.state <> OLD.state AND (OLD.state = 'released' OR NEW.state = 'bound')) EXECUTE FUNCTION guard_end_of_claim();
