-- What was asked to stop is given no leave to write disks, whether or not its agent has heard of it: a cancelled wipe was still agreed to until the agent
-- renewed its lease.
CREATE OR REPLACE FUNCTION guard_redemption() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM jobs j JOIN operations o ON o.id = NEW.operation_id
                   WHERE j.id = NEW.job_id AND j.permit_id = NEW.id AND j.state = 'leased' AND o.state IN ('queued', 'running')
                     AND (NEW.kind = 'power' OR NOT (j.cancel OR o.cancel_asked_at IS NOT NULL))) THEN
        RAISE EXCEPTION 'permit % is not of work that is under way', NEW.id USING ERRCODE = 'check_violation', CONSTRAINT = 'permits_armed';
    END IF;
    RETURN NEW;
END
$$;
