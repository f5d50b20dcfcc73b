//! Headers of the calls between server and agent: detection of a restored database, and clock
//! comparison.

/// Header of a response: the id of an event. The agent must store the id on disk before acting on
/// the response.
pub const MARK: &str = "muster-mark";
/// Header of a call: the latest event id stored by the agent. If the server's database lacks the
/// event, the database was restored to an earlier state.
pub const HEARD: &str = "muster-heard";
/// Header of a response with [`MARK`]: the server's seal over the event. The agent stores both. An
/// agent or a server of the previous version ignores the seal.
pub const MARK_SEAL: &str = "muster-mark-seal";
/// Header of a call with [`HEARD`]: the seal received with the event.
pub const HEARD_SEAL: &str = "muster-heard-seal";
/// Header of every response: the server's time, in milliseconds since the epoch.
pub const SERVED_AT: &str = "muster-served-at";
/// Header of every call: the `SERVED_AT` of the latest response received by the agent. The site's
/// lease counts from this time, so an agent without responses loses the lease.
pub const ANSWERED_AT: &str = "muster-answered-at";
/// Header of every call: the time of the agent's machine, in milliseconds since the epoch.
pub const CLOCK: &str = "muster-clock";
/// Header of every response: the valid authorities of agents' certificates, as of
/// [`write_authorities`](super::enrol::write_authorities). The agent stores the list, and trusts
/// exactly these. Header of a call: the stored list. An agent or a server of the previous version
/// ignores the header.
pub const AUTHORITIES: &str = "muster-authorities";
/// Header of an outcome: the offset of the node's clock from the server's in milliseconds, positive
/// for a clock that is ahead. Absent where muster-node did not work on the node. A server of the
/// previous version ignores the header.
pub const NODE_CLOCK: &str = "muster-node-clock";
/// Header of an outcome: `1` where the installed system of the node has the complete list of
/// revoked certificates in the order, and refuses them. A server of the previous version ignores
/// the header.
pub const KEYS_REVOKED: &str = "muster-keys-revoked";
