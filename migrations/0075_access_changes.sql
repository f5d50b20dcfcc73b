-- An open event stream checks the rights of its reader again after each change of rights. Each change adds a row; the ids of later rows may be visible
-- first. Readers therefore compare the number and the sum of all ids. The rows are needed for seconds: the next change deletes older ones.
CREATE TABLE access_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX access_changes_at ON access_changes (at);

CREATE FUNCTION note_access_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Rows locked by another change are left to that change, so no change waits for another.
    DELETE FROM access_changes WHERE id IN (
        SELECT id FROM access_changes WHERE at < now() - interval '1 minute' ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED);
    INSERT INTO access_changes DEFAULT VALUES;
    RETURN NULL;
END
$$;

-- The use of a credential writes the time of the use, and each login of an identity provider writes the same groups again. Both are no change of rights.
CREATE TRIGGER tokens_access AFTER UPDATE ON tokens
    FOR EACH ROW WHEN (ROW (OLD.role, OLD.scope, OLD.person, OLD.expires_at, OLD.revoked_at, OLD.keeps_release_verbs)
        IS DISTINCT FROM ROW (NEW.role, NEW.scope, NEW.person, NEW.expires_at, NEW.revoked_at, NEW.keeps_release_verbs))
    EXECUTE FUNCTION note_access_change();
CREATE TRIGGER gone_tokens_access AFTER DELETE ON tokens
    FOR EACH ROW EXECUTE FUNCTION note_access_change();
CREATE TRIGGER users_access AFTER UPDATE ON users
    FOR EACH ROW WHEN (ROW (OLD.name, OLD.role, OLD.groups, OLD.disabled_at, OLD.password_hash, OLD.keeps_release_verbs)
        IS DISTINCT FROM ROW (NEW.name, NEW.role, NEW.groups, NEW.disabled_at, NEW.password_hash, NEW.keeps_release_verbs))
    EXECUTE FUNCTION note_access_change();
CREATE TRIGGER gone_users_access AFTER DELETE ON users
    FOR EACH ROW EXECUTE FUNCTION note_access_change();
CREATE TRIGGER sessions_access AFTER UPDATE OR DELETE ON sessions
    FOR EACH ROW EXECUTE FUNCTION note_access_change();
CREATE TRIGGER break_glass_access AFTER INSERT OR UPDATE OR DELETE ON break_glass
    FOR EACH ROW EXECUTE FUNCTION note_access_change();
CREATE TRIGGER bindings_access AFTER UPDATE OR DELETE ON objects
    FOR EACH ROW WHEN (OLD.kind = 'role_binding') EXECUTE FUNCTION note_access_change();
CREATE TRIGGER new_bindings_access AFTER INSERT ON objects
    FOR EACH ROW WHEN (NEW.kind = 'role_binding') EXECUTE FUNCTION note_access_change();
