-- The removal of an agent revokes the certificates of its orders. Each node gets the list of its revoked certificates with its next order.
ALTER TABLE ssh_certificates
    ADD COLUMN revoked_at    timestamptz,
    -- The latest order with the revoked certificate in its list.
    ADD COLUMN sent_job      uuid,
    ADD COLUMN sent_attempt  integer,
    -- The host key of the installed system that refuses the certificate. Another installation has another host key, and an empty list.
    ADD COLUMN held_host_key text;
CREATE INDEX ssh_certificates_revoked ON ssh_certificates (node_id) WHERE revoked_at IS NOT NULL;
CREATE INDEX ssh_certificates_sent ON ssh_certificates (sent_job) WHERE sent_job IS NOT NULL;

-- The sessions of people at their identity provider. A logout token may name such a session instead of a person, also after the end of the session
-- here. Servers of the version before write no rows: for their sign-ins, a logout token must name the person.
CREATE TABLE provider_sessions (
    -- SHA-256 over issuer and id.
    session_hash bytea PRIMARY KEY,
    user_id      uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    seen_at      timestamptz NOT NULL
);
CREATE INDEX provider_sessions_seen ON provider_sessions (seen_at);
CREATE INDEX provider_sessions_user ON provider_sessions (user_id);

-- Logout tokens received in the last minutes. The provider sends each token once.
CREATE TABLE provider_logouts (
    token_hash  bytea PRIMARY KEY,
    received_at timestamptz NOT NULL
);

-- A logout at the provider takes rights away from tokens too. Other sign-ins only move the time forward.
CREATE TRIGGER ended_vouching_access AFTER UPDATE ON users
    FOR EACH ROW WHEN (NEW.vouched_at < OLD.vouched_at)
    EXECUTE FUNCTION note_access_change();
