//! The program as people run it: against a real server on a private Postgres, on this host, in a terminal and in a pipe.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin; // Acts of an administrator on the host
mod claims; // Claims, from the first word to the last
mod client; // Nouns and verbs
mod contexts; // Several servers
mod doctor; // Faults made for real
mod gates; // Suites and profiles shipped with Muster
mod guide; // docs/api.md, typed as the roles that it names
mod images; // Keys of release owners, and signed manifests
mod logs; // The log's format and level
mod machines; // Simulated machines behind the server
mod muster; // The program, and a server for each test
mod rollouts; // Budgets and rollouts, typed
mod stacks; // Lint, diff, publish
mod startup; // Errors at the start of a program, and versions
mod upgrade; // Rows of the version before, and both servers on them
