//! Headers of the calls between server and agent, beside what they say: whose word is newer, and by whose clock.

/// Header of an answer: the id of an event that the agent is to remember, on disk, before it does what it was allowed.
pub const MARK: &str = "muster-mark";
/// Header of every call of an agent that remembers an event: a server whose database does not have it was put back to an earlier state.
pub const HEARD: &str = "muster-heard";
/// Header of every answer: the server's time, in milliseconds since the epoch.
pub const SERVED_AT: &str = "muster-served-at";
/// Header of every call: the `SERVED_AT` of the latest answer that arrived. A site's lease is kept from then on: who is not answered lets it lapse.
pub const ANSWERED_AT: &str = "muster-answered-at";
/// Header of every call: the time of the agent's machine, in milliseconds since the epoch.
pub const CLOCK: &str = "muster-clock";
