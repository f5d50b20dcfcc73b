//! One integration binary, with a file per resource.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]
#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access; // Access rights of every role
mod agents; // Agents that die, and the successors
mod alerts; // Alerts of monitoring about nodes
mod audit; // Detection of changes to the sealed history
mod bmc; // The agent's Redfish client against the lab's BMC
mod break_glass; // The local administrator, disabled until armed
mod budgets; // Sizes of logs and results from machines
mod cabling; // Declared cables, and swapped cables
mod canary; // Planted secrets, searched in every output
mod certificates; // Certificates of agents: enrolment, renewal, end
mod claims; // Claims: binding and release of nodes
mod client; // The typed client over a real socket
mod consoles; // Console output of nodes
mod contention; // Many callers for one object
mod cut_lists; // Lists of pages that show a part of their rows
mod declared; // The shared contract of declared kinds
mod dependents; // Rules between objects and the nodes that depend on them
mod discoveries; // Machines that discover themselves, within limits
mod disruption; // Nodes out of service, and the disruption budget
mod documents; // Malformed documents: the checked shape is the stored shape
mod dry_runs; // Dry runs of every write
mod engine; // The engine, from declaration to release
mod events; // The history by topic
mod failover; // Failover of Postgres
mod faults; // Faults around the programs, injected from outside
mod firmware; // Firmware and BIOS, from a stack to a machine
mod former_suites; // Programs of gates, and suites from before the rule
mod front; // TLS of the public listener, and the proxies before it
mod holds; // Legal holds by the API
mod hostile; // Malformed and hostile requests to every documented route
mod key_rotations; // Rotations of the server's keys
mod limits; // Rate limits of callers
mod lists; // The shared grammar of all lists
mod logs; // From a request id to the agent's log lines
mod matching; // Discovered machines matched to waiting declared nodes
mod migrations; // Migrations: complete, or without a trace
mod networks; // Bonds, VLANs and addresses of installed nodes
mod nodes; // Registration, actions, filters
mod oidc; // Sign-in through a third-party OpenID provider
mod openapi; // The description of the contract
mod operations; // Long polls, events, blobs
mod orders; // Orders for agents of the previous version
mod out_of_band; // Networks of BMCs and consoles
mod overdue; // Nodes past the deadline of their state
mod pairs; // Pairs of nodes measured against each other, and blame for failures
mod permits; // Permits to power, image and wipe
mod plans; // Plans: the effects of a set of objects
mod previous; // The agent, muster-node and server of the previous version
mod races; // Concurrent claims, releases and retries
mod recoveries; // Recovery of failed nodes, and the breaker of the fleet
mod releases; // Releases: undo, and approval by a second person
mod remains; // Memory of deleted nodes: data, epoch, adoption
mod replacements; // Replacement of a claim's node
mod replicas; // Pools with automatic claims
mod restores; // A database restored from a backup
mod retention; // Removal of old records and events
mod revisions; // Revisions of a pool, and the time at which a change reaches nodes
mod rollout_adjust; // Changes to the policy of an open rollout
mod rollout_alerts; // An alert on a node that a rollout has taken halts the rollout
mod rollout_automatic; // Rollouts that start by themselves, and pools on hold
mod rollout_back; // Rollouts to the former revision, and nodes out of service
mod rollout_estimates; // The estimated end of a large rollout, calculated by a task
mod rollout_facts; // The facts of nodes that the planner reads
mod rollout_fits; // Nodes left out by a rollout, named by its plan
mod rollout_guards; // Changes between the plan of a tick and the acts, and members that come and go
mod rollout_jobs; // Rollouts and the jobs of nodes
mod rollout_links; // The link of a site bounds the nodes that change at the same time
mod rollout_monitors; // A query to Prometheus halts a rollout
mod rollout_pages; // The console of rollouts
mod rollout_promotion; // A rollout of a test pool before that of production
mod rollout_regressions; // Values of gates worse after the change of a node
mod rollout_reinstalls; // Reinstalls by rollouts, and the second person
mod rollout_reservations; // Reservations that keep long jobs from waiting nodes
mod rollout_units; // Failure domains whose nodes a rollout changes together
mod rollout_windows; // Rollouts and maintenance windows
mod rollouts; // Moves of a pool to a revision, in waves
mod row_seals; // Seals over tokens, people and sessions
mod schedulers; // Nodes that take no jobs, as reported by the schedulers
mod scopes; // Lists and pages for readers of a part of the fleet
mod second_door; // Administrators' tokens without a person, beside a provider
mod sign_ins; // Delays of logins, an office behind one address, and sums of failures
mod signatures; // Signatures of images, and pools that ask for them
mod simulated; // The server over simulated machines with state
mod ssh_certificates; // SSH certificates of orders, and a real sshd
mod stack_conditions; // Items of a stack for nodes with certain hardware
mod stack_pages; // The console of stacks
mod stacks; // Stacks: refusals, comparison with nodes, hidden secrets
mod strangers; // The documented contract, tested by Schemathesis
mod streams; // Event streams: bounds, one reader, the end of rights
mod support; // Shared support of all tests
mod sweeps; // Sweeps: nodes held for load gates, and returned to the scheduler
mod taken; // Refusals of a natural key in use
mod terraform; // Terraform over the whole contract
mod tidy; // Rules of the code base without a clippy lint
mod tokens; // Tokens as stored in the database
mod topology; // Switches of a cluster's members
mod unused_blobs; // Blobs of the server without a use
mod waivers; // Waivers: failed gates counted as passed
mod webhooks; // Events sent to an external server
mod witnesses; // Witnesses of a caution, by site
