//! Use cases: the requests of people, pages, tasks and monitoring. An intent checks the request,
//! then writes the request and its event in one transaction. An intent never sets a node's state
//! and has no knowledge of routes.

pub mod alerts; // Alerts of monitoring, per node
pub mod answer; // Result of a use case: JSON, ETag, Location
pub mod approvals; // Limits, and the decision of a second person
pub mod caution; // The end of caution mode
pub mod claims; // Binding, release, replacement, replicas
pub(crate) mod disruption; // The disruption budget of a pool
pub mod dry_run; // Whether a request is a dry run
pub mod events; // An event as returned to readers
pub mod idempotency; // Repeated requests: one effect, one stored answer
pub mod nodes; // Requests of actions, registration, adoption, matching
pub mod operations; // Operations as returned to readers, and cancellation
pub mod pairs; // Runs of pairs
pub mod preconditions; // The generation a writer expects
pub mod references; // The verb of a write at each new target
pub mod revisions; // Documents that the nodes of a pool install
pub mod rollouts; // Plans, acts of people, and ticks of rollouts
pub mod rotations; // Rotations of the server's keys
pub mod standing; // The blocker of an operation, and the results
pub mod taken; // The holder of a taken key
pub mod users; // Disabled and enabled people
pub mod waivers; // Gates that count as passed
pub mod writing; // One transaction per request, once per key
