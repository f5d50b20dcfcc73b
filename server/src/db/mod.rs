//! All SQL. Free functions over one connection; whoever owns the unit of work begins and commits it.

pub mod access; // Where objects lie, and who holds which role there
pub mod acts; // Starts of once-only acts
pub mod adoptions; // Machines that are being adopted
pub mod agents; // Agents, and what their boot services need
pub mod alerts; // What monitoring said of nodes
pub mod approvals; // What a second person must agree to
pub mod blobs; // Who brought which blob
pub mod bmc_passwords; // Passwords of BMCs that Muster chose
pub mod break_glass; // When the local administrator may sign in
pub mod breakers; // Kinds of failure that nothing is done about any more
pub mod cabling; // Declared cables, and what was heard of switches
pub mod cautions; // When the database is older than what others remember
pub mod claims; // One node bound to one pool
pub mod components; // Parts by serial, and where they were
pub mod consoles; // What nodes wrote on their serial consoles
pub mod drift; // How a node compares with its stack
pub mod enrolments; // Tokens that become certificates of agents
pub mod events; // The append-only history
pub mod facts; // What inspection observed
pub mod filter; // The filter grammar of lists
pub mod firmware; // What BMCs said of firmware and BIOS
pub mod gates; // Runs of suites
pub mod held_back; // Jobs that no agent can read
pub mod idempotency; // Answers under their keys
pub mod jobs; // Units of work leased to agents
pub mod keys; // Sealed keys and secrets
pub mod lifecycle; // Due nodes, snapshots, the one guarded advance
pub mod macs; // Boot MACs of nodes, with addresses
pub mod matches; // Machines that turned out to be a declared node
pub mod monitoring; // What monitoring asks of all nodes
pub mod networks; // What the network of a node is rendered from
pub mod nodes; // Nodes as clients declare and read them
pub mod objects; // Declared objects and the references between them
pub mod observed; // Columns of a node, observed by jobs
pub mod operations; // What was asked for, and how it stands
pub mod pages; // What only the console reads
pub mod pairs; // Runs of pairs
pub mod permits; // The right to act
pub mod plans; // Whom a change reaches
pub mod power; // What racks can feed
pub mod primary; // The server that takes writes
pub mod recoveries; // What was tried on nodes that fail
pub mod replacements; // Claims that get another node
pub mod replicas; // Claims that pools make by themselves
pub mod scheduler; // What schedulers say of nodes that take no jobs
pub mod seals; // What makes the history provable
pub mod seen; // The history for who may see a part of the fleet
pub mod specs; // What a job's order is built from
pub mod stays; // The steps of a node's stay in a state
pub mod sweeps; // Which nodes are swept next
pub mod taken; // Whose a natural key is
pub mod tokens; // Tokens of machines
pub mod users; // People and their sessions
pub mod waivers; // Gates that count as passed all the same
pub mod webhooks; // How far each webhook is, and what was tried

/// Whether the database answers.
///
/// # Errors
/// When it does not.
pub async fn ping(conn: &mut sqlx::PgConnection) -> Result<(), crate::error::Error> {
    sqlx::query!("SELECT true AS up").fetch_one(conn).await?;
    Ok(())
}

/// Lets every constraint that waits for the end of the transaction speak now.
///
/// # Errors
/// What one of them refuses, or the database's.
pub async fn check_constraints(conn: &mut sqlx::PgConnection) -> Result<(), crate::error::Error> {
    sqlx::query!("SET CONSTRAINTS ALL IMMEDIATE")
        .execute(conn)
        .await?;
    Ok(())
}
