-- A boot that installs is armed by an operation, and a secret is fetched once: what of that the database can say.

-- What boots a machine into the live image is one job's: under its operation, by its permit, known by its nonce. No two boots share one.
ALTER TABLE jobs ADD CONSTRAINT jobs_armed
    CHECK (kind <> 'boot_live' OR (operation_id IS NOT NULL AND permit_id IS NOT NULL AND nonce IS NOT NULL));
CREATE UNIQUE INDEX jobs_nonce_key ON jobs (nonce);

-- A permit is redeemed by the job that works under it now, while its operation is under way.
CREATE FUNCTION guard_redemption() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM jobs j JOIN operations o ON o.id = NEW.operation_id
                   WHERE j.id = NEW.job_id AND j.permit_id = NEW.id AND j.state = 'leased' AND o.state IN ('queued', 'running')) THEN
        RAISE EXCEPTION 'permit % is not of work that is under way', NEW.id USING ERRCODE = 'check_violation', CONSTRAINT = 'permits_armed';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER permits_redemption BEFORE UPDATE ON permits FOR EACH ROW
    WHEN (NEW.redemptions > OLD.redemptions) EXECUTE FUNCTION guard_redemption();

-- What is done once, and a boot into the live image first of all, is begun under a permit that was redeemed.
CREATE FUNCTION guard_act() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM jobs j JOIN permits p ON p.id = j.permit_id
                   WHERE j.id = NEW.job_id AND j.state = 'leased' AND p.redeemed_at IS NOT NULL AND NOT p.void) THEN
        RAISE EXCEPTION 'job % begins % without its permit', NEW.job_id, NEW.act USING ERRCODE = 'check_violation', CONSTRAINT = 'job_acts_permitted';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER job_acts_guard BEFORE INSERT ON job_acts FOR EACH ROW EXECUTE FUNCTION guard_act();

-- What let Muster in for the first time is forgotten in the transaction that ends the adoption.
CREATE FUNCTION guard_adoption() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM nodes WHERE id = OLD.node_id AND adopted) AND EXISTS (SELECT FROM secrets WHERE object_id = OLD.credential_id) THEN
        RAISE EXCEPTION 'node % is adopted and its credential is kept', OLD.node_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'adoptions_secret';
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER adoptions_guard AFTER DELETE ON adoptions DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION guard_adoption();
