//! Use cases: what people, pages, tasks and monitoring request. An intent checks the request, then writes the request and its event in one
//! transaction. It never sets a node's state, and knows no route.

pub mod alerts; // Alerts of monitoring, per node
pub mod answer; // The result of a use case: JSON, ETag, Location
pub mod approvals; // Limits, and the decision of a second person
pub mod caution; // The end of caution mode
pub mod claims; // Binding, release, replacement, replicas
pub mod dry_run; // Whether a request only asks for its effect
pub mod events; // An event as readers get it
pub mod idempotency; // The same request again has the same effect once
pub mod nodes; // Requests of actions, registration, adoption, matching
pub mod operations; // An operation as readers get it, and its cancellation
pub mod pairs; // Runs of pairs
pub mod preconditions; // The generation that a write expects
pub mod standing; // What an operation waits for, and its results
pub mod taken; // The holder of a taken key
pub mod users; // Disabled and enabled people
pub mod waivers; // Gates that count as passed
pub mod writing; // One transaction per request, once per key
