//! Programs of the version before against today's. tests/previous/COMMIT names the commit, `make previous` builds the programs, CONTRIBUTING.md says how to
//! add a case. cli/tests/it/upgrade.rs has the stored rows of an upgrade: today's `muster` is a program of that crate.

mod agent; // Agents over the whole life of a node
mod hardware; // Hardware, disk and tools as files
mod machine; // A machine without hardware
mod network; // A network of the test's own
mod node; // muster-node, plan in and lines out
mod programs; // The programs of both versions
mod server; // A replica on today's schema
mod site; // Today's server, an agent, a machine
mod wire; // Calls between an agent and today's server
