//! The public contract: the types exchanged with the server by people, automation and web pages,
//! and a typed client for the contract. Rules do not belong here: rules are part of the domain
//! crate.

pub mod access; // Verbs, roles and scopes
pub mod agents; // Processes acting for a site, and their enrolment
pub mod alerts; // Alerts from monitoring, and the outcome of each
pub mod approvals; // Requests needing a second person
pub mod audit; // The seal over the event history
pub mod break_glass; // The local administrator: armed or disarmed
pub mod cautions; // Caution mode: the database is older than an agent's records
pub mod claims; // One node bound to one pool
pub mod client; // The typed client
pub mod clusters; // Clusters admitting nodes
pub mod credentials; // Secrets, by name
pub mod disruption; // Nodes out of service, and the disruption budget
pub mod events; // The append-only event history
pub mod filters; // The filter grammar of lists
pub mod gate_runs; // Runs of a suite on a node
pub mod hardware_profiles; // Required hardware of a server model
pub mod holds; // Records of nodes kept at any age
pub mod images; // OS disk images
pub mod kind; // Kinds, with their names in paths and documents
pub mod maintenance_windows; // Times at which rollouts may take nodes
pub mod monitors; // Queries to Prometheus that halt rollouts
pub mod network_profiles; // Network layout of installed nodes
pub mod nodes; // One server: desired state and progress
pub mod object; // The common shape of all objects
pub mod operations; // Long-running requests and their progress
pub mod page_tokens; // Positions in a list
pub mod pairs; // Measurements between two nodes of a pool
pub mod plans; // Effects of writing a set of objects
pub mod pools; // Desired software of a set of nodes
pub mod problem; // RFC 9457 error responses
pub mod racks; // Cabinets
pub mod recoveries; // Recovery of failing nodes
pub mod revisions; // Documents that the nodes of a pool install
pub mod rollouts; // The claims of a pool, moving to a revision
pub mod signing_keys; // Public keys of release owners
pub mod sites; // Places with a provisioning network
pub mod stacks; // Pins over an image
pub mod subnets; // Provisioning networks
pub mod suites; // Ordered gates
pub mod tokens; // Tokens of machines
pub mod users; // People, and accounts disabled by an administrator
pub mod waivers; // Failing gates counted as passed
pub mod webhooks; // Events sent to external servers
