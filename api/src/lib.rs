//! The public contract: what people, automation and pages exchange with the server, and a typed client over it.
//! It must not hold rules: those are the domain's.

pub mod access; // Who may do what, where
pub mod agents; // The processes that act for a site, and their enrolment
pub mod alerts; // What monitoring says of nodes, and what became of it
pub mod approvals; // What a second person must agree to
pub mod audit; // The seal over the history
pub mod break_glass; // The local administrator, armed or not
pub mod cautions; // The database is older than what others remember
pub mod claims; // One node bound to one pool
pub mod client; // The typed client
pub mod clusters; // Where nodes are admitted
pub mod credentials; // Secrets, by name
pub mod events; // The append-only history
pub mod gate_runs; // Runs of a suite on a node
pub mod hardware_profiles; // What a model must have
pub mod images; // OS disk images
pub mod kind; // Kinds: how they are called in paths and documents
pub mod network_profiles; // How the network of nodes is built
pub mod nodes; // One server: what is wanted of it and where it is on its way
pub mod object; // The shape every object has
pub mod operations; // Something long that was asked for
pub mod pairs; // Nodes of a pool, measured against each other
pub mod plans; // What writing a set of objects would do
pub mod pools; // What the nodes of a pool run
pub mod problem; // RFC 9457 answers
pub mod racks; // Cabinets
pub mod recoveries; // What is tried on nodes that fail
pub mod sites; // Places with a provisioning network
pub mod stacks; // Pins over an image
pub mod subnets; // Provisioning networks
pub mod suites; // Ordered gates
pub mod tokens; // Tokens of machines
pub mod users; // People, and whom an administrator keeps out
pub mod waivers; // Gates that count as passed all the same
pub mod webhooks; // Events told to somebody else's server
