-- Why the reservations that keep long jobs away from waiting nodes fail, by the last report of an agent.
ALTER TABLE scheduler_looks
    ADD COLUMN failure_code text,
    ADD COLUMN failure text,
    ADD COLUMN failing_since timestamptz,
    ADD CONSTRAINT scheduler_looks_failure_check CHECK ((failure IS NULL) = (failing_since IS NULL) AND (failure_code IS NULL) = (failing_since IS NULL));
