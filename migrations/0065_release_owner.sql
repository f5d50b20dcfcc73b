-- A role for the rights that are equal to root on nodes (docs/access.md): operators and automation lose them. Tokens, people and role bindings of the
-- version before keep the rights for one version, so that an upgrade stops no pipeline. `muster doctor` lists them. `release_verbs_used_at` bounds the
-- warnings to one a day.
ALTER TABLE users DROP CONSTRAINT users_role_check;
ALTER TABLE users
    ADD CONSTRAINT users_role_check CHECK (role IN ('admin', 'release_owner', 'operator', 'automation', 'viewer', 'guest')),
    ADD COLUMN keeps_release_verbs boolean NOT NULL DEFAULT false,
    ADD COLUMN release_verbs_used_at timestamptz;
ALTER TABLE tokens DROP CONSTRAINT tokens_role_check;
ALTER TABLE tokens
    ADD CONSTRAINT tokens_role_check CHECK (role IN ('admin', 'release_owner', 'operator', 'automation', 'viewer', 'guest')),
    ADD COLUMN keeps_release_verbs boolean NOT NULL DEFAULT false,
    ADD COLUMN release_verbs_used_at timestamptz;
-- Of a role binding. Another spec ends the mark.
ALTER TABLE objects ADD COLUMN keeps_release_verbs boolean NOT NULL DEFAULT false;

UPDATE users SET keeps_release_verbs = true WHERE role IN ('operator', 'automation');
UPDATE tokens SET keeps_release_verbs = true WHERE role IN ('operator', 'automation') AND revoked_at IS NULL;
UPDATE objects SET keeps_release_verbs = true WHERE kind = 'role_binding' AND spec ->> 'role' IN ('operator', 'automation');

-- When a recovery began to write a root disk anew: such a write counts like a reinstallation.
ALTER TABLE recoveries ADD COLUMN reimaged_at timestamptz;
CREATE INDEX recoveries_reimaged ON recoveries (reimaged_at) WHERE reimaged_at IS NOT NULL;
