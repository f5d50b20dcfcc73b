//! The server decides. It never opens a connection to a node, a BMC or a cluster, and holds no truth in memory: Postgres does.

pub mod app; // What every handler and task is given
pub mod audit; // Whether the history is what was sealed
pub mod auth; // Who is asking, and what they may do
pub mod db; // All SQL
pub mod engine; // Takes due nodes, asks the lifecycle, persists the answer
pub mod error; // One transport-free error, rendered once
pub mod http; // REST for people and machines, and the agents' own listener
pub mod keys; // The signing keys and the envelope around every secret
pub mod outbound; // Calls to addresses that people wrote
pub mod schema; // Migrations, also of newer versions
pub mod tasks; // Background work with an owner
pub mod ui; // Pages
pub mod webhooks; // What a webhook is sent, and how it is signed
