//! One integration binary, a file per resource.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]
#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access; // Who may do what
mod agents; // Agents that die, and their successors
mod alerts; // What monitoring says of nodes
mod audit; // The history after somebody changed it
mod bmc; // The agent's Redfish against the lab's
mod break_glass; // The local administrator, off until armed
mod cabling; // Declared cables, and those that are swapped
mod canary; // Secrets, planted and looked for
mod certificates; // What agents show
mod claims; // Who gets a node
mod client; // The typed client over a socket
mod consoles; // What nodes write on their consoles
mod contention; // Many callers, one thing
mod declared; // The contract of declared kinds
mod disruption; // Nodes out of service, and the disruption budget
mod documents; // What is checked is what is stored
mod dry_runs; // What a request would do
mod engine; // The engine, from declaration to release
mod events; // The history by topic
mod failover; // Postgres as it fails
mod faults; // What breaks around the programs
mod firmware; // Firmware and BIOS, from a stack to a machine
mod hostile; // What nobody sane sends
mod limits; // How much a caller may send
mod lists; // Every list has the one grammar
mod logs; // From a request's id to the agent's lines
mod matching; // Discovered machines that declared nodes wait for
mod migrations; // The schema, whole or not there
mod networks; // Bonds, VLANs and addresses of installed nodes
mod nodes; // Registration, actions, filters
mod oidc; // Signing in by a provider that is not ours
mod openapi; // The description of the contract
mod operations; // Long polls, events, blobs
mod orders; // Agents of the version before
mod pairs; // Nodes measured against each other, and whom failures blame
mod permits; // The right to power, image and wipe
mod plans; // What a set of objects would do
mod previous; // The version before: its agent, its muster-node, its server
mod races; // Claims, releases and retries at once
mod recoveries; // Nodes that fail, and the breaker of the fleet
mod releases; // Undone, and agreed to by a second person
mod replacements; // Claims that get another node
mod replicas; // Pools that claim nodes by themselves
mod restores; // A database that was put back
mod revisions; // What a pool installs, and when a change reaches its nodes
mod rollouts; // Moves of a pool to a revision, in waves
mod schedulers; // Nodes that take no jobs, as their schedulers say
mod scopes; // Lists for who may see a part of the fleet
mod simulated; // The server over machines that keep state
mod stacks; // Refused, compared, silent about secrets
mod strangers; // The documented contract, held against by a program that knows nothing else
mod support; // What every test stands on
mod sweeps; // Held back for what loads them, and given back
mod taken; // What a natural key names already
mod terraform; // Terraform over the whole contract
mod tidy; // Rules of the house
mod tokens; // Tokens as the database has them
mod waivers; // Gates that count as passed all the same
mod webhooks; // Events told to somebody else's server
