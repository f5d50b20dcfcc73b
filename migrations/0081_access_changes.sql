-- Migration 0075 counted each use of a session, and each new seal of a session or a role binding, as a change of rights. Every open event stream then
-- checked its rights again. Number 0073 was never used, and stays unused.
DROP TRIGGER sessions_access ON sessions;
CREATE TRIGGER sessions_access AFTER UPDATE ON sessions
    FOR EACH ROW WHEN (ROW (OLD.token_hash, OLD.user_id, OLD.expires_at) IS DISTINCT FROM ROW (NEW.token_hash, NEW.user_id, NEW.expires_at))
    EXECUTE FUNCTION note_access_change();
CREATE TRIGGER gone_sessions_access AFTER DELETE ON sessions
    FOR EACH ROW EXECUTE FUNCTION note_access_change();
DROP TRIGGER bindings_access ON objects;
CREATE TRIGGER bindings_access AFTER UPDATE ON objects
    FOR EACH ROW WHEN (OLD.kind = 'role_binding'
        AND ROW (OLD.spec, OLD.keeps_release_verbs) IS DISTINCT FROM ROW (NEW.spec, NEW.keeps_release_verbs))
    EXECUTE FUNCTION note_access_change();
CREATE TRIGGER gone_bindings_access AFTER DELETE ON objects
    FOR EACH ROW WHEN (OLD.kind = 'role_binding') EXECUTE FUNCTION note_access_change();
