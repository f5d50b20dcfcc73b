-- Who may do what, where. A role is a set of verbs (docs/access.md); a person's or a token's own holds everywhere, or where its scope says; a role
-- binding gives a person or a group of the identity provider another one, within a scope.

ALTER TABLE objects DROP CONSTRAINT objects_kind_check;
ALTER TABLE objects ADD CONSTRAINT objects_kind_check CHECK (kind IN ('site', 'rack', 'subnet', 'hardware_profile', 'image', 'stack', 'suite', 'cluster',
    'pool', 'credential', 'role_binding'));
CREATE INDEX objects_bindings ON objects ((spec ->> 'subject')) WHERE kind = 'role_binding';

ALTER TABLE users DROP CONSTRAINT users_role_check;
ALTER TABLE users ADD CONSTRAINT users_role_check CHECK (role IN ('admin', 'operator', 'automation', 'viewer', 'guest'));
ALTER TABLE tokens DROP CONSTRAINT tokens_role_check;
ALTER TABLE tokens ADD CONSTRAINT tokens_role_check CHECK (role IN ('admin', 'operator', 'automation', 'viewer', 'guest'));
ALTER TABLE tokens ADD COLUMN scope jsonb NOT NULL DEFAULT '{}';

-- Whom an identity provider vouches for is who it says by issuer and subject. The name is for people to read: it never decides who somebody is,
-- and has an @ in it, which a local one has not.
ALTER TABLE users ALTER COLUMN password_hash DROP NOT NULL;
ALTER TABLE users ADD COLUMN issuer text;
ALTER TABLE users ADD COLUMN subject text;
ALTER TABLE users ADD COLUMN groups text[] NOT NULL DEFAULT '{}';
ALTER TABLE users ADD CONSTRAINT users_identity_key UNIQUE (issuer, subject);
ALTER TABLE users ADD CONSTRAINT users_one_way CHECK ((issuer IS NULL) = (subject IS NULL) AND (issuer IS NULL) = (password_hash IS NOT NULL));
