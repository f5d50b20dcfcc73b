-- Raw text of machines (consoles, logs, evidence of gates) has verbs of its own, which viewers have not (docs/access.md). Tokens, people and role
-- bindings of the version before keep them for one version, by the mark of migration 0065. `muster doctor` lists them.
UPDATE users SET keeps_release_verbs = true WHERE role = 'viewer';
UPDATE tokens SET keeps_release_verbs = true WHERE role = 'viewer' AND revoked_at IS NULL;
UPDATE objects SET keeps_release_verbs = true WHERE kind = 'role_binding' AND spec ->> 'role' = 'viewer';

-- The latest sign-in of a person by an identity provider. For people stored before, the time counts from the upgrade.
ALTER TABLE users
    ADD COLUMN vouched_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN vouch_warned_at timestamptz;
-- The latest use of a session. A session without use ends early.
ALTER TABLE sessions ADD COLUMN seen_at timestamptz NOT NULL DEFAULT now();
