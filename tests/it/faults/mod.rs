//! What breaks around the programs, injected from outside. `docs/faults.md` says which test stands for which fault.

mod bad_wire; // Datagrams that are lost, repeated, reordered
mod clocks; // Clocks that are wrong, and set
mod connections; // Callers that hold connections
mod cut_off; // Agents that hear nothing
mod database; // Postgres that is slow, or has no room
mod keys; // The key outside the database
mod replicas; // Servers that are frozen or killed in the middle
