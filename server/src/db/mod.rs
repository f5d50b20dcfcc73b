//! All SQL of the server, as free functions over one connection. The owner of the unit of work
//! begins and commits the transaction.
//!
//! Every function here returns an error when the database fails. A section `# Errors` names only
//! the further errors of a function.

pub mod access; // Sites, racks and pools of objects
pub mod access_changes; // Changes of rights
pub mod acts; // Starts of once-only acts
pub mod adoptions; // Machines under adoption
pub mod agent_authorities; // Agents in a rotation of the authority of their certificates
pub mod agents; // Agents, and the data of their boot services
pub mod alerts; // Alerts from monitoring
pub mod approvals; // Approvals by a second person
pub mod blob_uses; // Documents that name blobs
pub mod blobs; // Uploads of blobs
pub mod bmc_passwords; // BMC passwords chosen by Muster
pub mod break_glass; // Emergency sign-in of the local administrator
pub mod breakers; // Failure signatures with an open circuit breaker
pub mod cabling; // Declared cables, and switch ports observed by nodes
pub mod cautions; // A database older than other systems remember
pub mod claims; // One node bound to one pool
pub mod components; // Parts by serial, with their node and slot
pub mod consoles; // Output of serial consoles
pub mod dependents; // Nodes that depend on a declared object
pub mod disruption; // Nodes out of service, and slots of the disruption budget
pub mod drift; // Differences between a node and its stack
pub mod due_rollouts; // Rollouts that start by themselves
pub mod enrolments; // Tokens exchanged for agent certificates
pub mod events; // The append-only history
pub mod facts; // Facts observed by inspection
pub mod filter; // The filter grammar of lists
pub mod firmware; // Firmware and BIOS reported by BMCs
pub mod former_suites; // Suites stored before the rule of programs
pub mod gates; // Runs of suites
pub mod idempotency; // Stored answers by idempotency key
pub mod job_logs; // Log lines of jobs, within a size
pub mod jobs; // Units of work leased to agents
pub mod kept; // Roles that keep lost verbs for one version
pub mod key_rotations; // Rotations of keys, and the keys that servers hold
pub mod keys; // Sealed keys and secrets
pub mod legal_holds; // Nodes with records of any age
pub mod lifecycle; // Due nodes, snapshots, the one guarded advance
pub mod macs; // Boot MACs of nodes, with addresses
pub mod maintenance_windows; // Maintenance windows of a rollout
pub mod matches; // Machines found to be a declared node
pub mod monitoring; // Node counts and scrape targets for monitoring
pub mod monitors; // Monitors, with their last answers
pub mod networks; // Input for rendering a node's network
pub mod node_clocks; // Clocks of installed systems
pub mod nodes; // Nodes as clients declare and read them
pub mod objects; // Declared objects and the references between them
pub mod observed; // Columns of a node, observed by jobs
pub mod operations; // Requested operations and their progress
pub mod outside; // Nodes with an address outside of declared networks
pub mod overdue; // Nodes past the deadline of their state
pub mod pages; // Queries used by the console only
pub mod pairs; // Runs of pairs
pub mod permits; // The right to act
pub mod plans; // Nodes affected by a change
pub mod power; // Power budgets of racks
pub mod primary; // The server that takes writes
pub mod provider_sessions; // Sessions at the identity provider, and received logout tokens
pub mod recoveries; // Recoveries tried on failing nodes
pub mod remains; // Facts of deleted nodes, for the next record of the same machine
pub mod replacements; // Claims moving to another node
pub mod replicas; // Claims made by pools
pub mod retention; // Removal of old records
pub mod revisions; // Documents that the nodes of a pool install
pub mod role_bindings; // Role bindings and their seals
pub mod rollout_comparisons; // Values of gates before and after the change of a node
pub mod rollout_facts; // Nodes of rollouts with the facts of claims and lifecycles
pub mod rollout_nodes; // Marks of the nodes of rollouts
pub mod rollout_places; // Sites, racks and hardware profiles of nodes
pub mod rollout_waits; // Nodes that wait for their jobs
pub mod rollouts; // Rollouts: plan, state and policy
pub mod row_seals; // Seals of the rows that decide rights
pub mod scheduler; // Scheduler state of nodes without jobs
pub mod scheduler_jobs; // Jobs on the nodes of clusters
pub mod seals; // Seals that make the history provable
pub mod seen; // The history within a read scope
pub mod segments; // Removed segments of the history
pub mod sign_ins; // Delays of logins, and failed logins of the present minute
pub mod signing_keys; // Trusted keys, and signatures of images
pub mod specs; // Specs and node data for a job's order
pub mod ssh_certificates; // SSH user certificates of orders
pub mod stack_versions; // Digests of published versions of stacks
pub mod stays; // The steps of a node's stay in a state
pub mod strangers; // Machines that discovered themselves, within bounds
pub mod sweeps; // Nodes next in line for a sweep
pub mod taken; // Owners of natural keys
pub mod taken_keys; // New keys, as taken by agents and nodes
pub mod tokens; // API tokens of machines
pub mod unarmed; // Administrators' tokens without a person, and plain hashes
pub mod unused_blobs; // Stored blobs without a use
pub mod users; // People and their sessions
pub mod vouching; // Latest sign-ins by a provider, and latest uses of sessions
pub mod waivers; // Gates waived by a person
pub mod webhooks; // Progress and deliveries of webhooks
pub mod wrapped_keys; // Secrets by their master key

/// Checks the connection with a trivial query, for the readiness endpoint and the lease task.
pub async fn ping(conn: &mut sqlx::PgConnection) -> Result<(), crate::error::Error> {
    sqlx::query!("SELECT true AS up").fetch_one(conn).await?;
    Ok(())
}

/// Checks every deferred constraint now instead of at the end of the transaction.
///
/// # Errors
/// When a deferred constraint is violated.
pub async fn check_constraints(conn: &mut sqlx::PgConnection) -> Result<(), crate::error::Error> {
    sqlx::query!("SET CONSTRAINTS ALL IMMEDIATE")
        .execute(conn)
        .await?;
    Ok(())
}
