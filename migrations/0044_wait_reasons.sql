-- Why a node waits, as a code beside the words. The engine writes both; lifecycle/wait.rs lists the codes.
-- A node that waited before is looked at again, because its code is not known.
ALTER TABLE nodes ADD COLUMN waiting_reason text;
UPDATE nodes SET due_at = LEAST(due_at, now()) WHERE waiting_for IS NOT NULL;

-- The awaited thing is stored as a noun phrase, without the verb that agents sent before it.
UPDATE nodes SET waiting_for = regexp_replace(waiting_for, '^(waiting|waits) for ', '') WHERE waiting_for ~ '^(waiting|waits) for ';
UPDATE jobs SET waiting_for = regexp_replace(waiting_for, '^(waiting|waits) for ', '') WHERE waiting_for ~ '^(waiting|waits) for ';
