-- A token that a token made ends with it: it is revoked with its maker, and expires no later.
ALTER TABLE tokens ADD COLUMN made_by uuid REFERENCES tokens, ADD CONSTRAINT tokens_made_by_another CHECK (made_by <> id);
CREATE INDEX tokens_made_by ON tokens (made_by) WHERE made_by IS NOT NULL;
-- Who made those that there are, the history says: names of tokens are never used twice.
UPDATE tokens t SET made_by = m.id
FROM events e JOIN tokens m ON e.actor = 'token:' || m.name
WHERE e.kind = 'token.created' AND e.detail ->> 'token' = t.id::text AND m.id <> t.id;
