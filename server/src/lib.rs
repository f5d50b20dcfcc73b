//! The server makes all decisions. The server never opens a connection to a node, a BMC or a
//! cluster. All state is in Postgres, and memory holds only caches.

pub mod access; // Roles within scopes, places of objects, read scopes
pub mod app; // Shared state of handlers and tasks
pub mod audit; // Check of the history against the seals
pub mod auth; // Authentication and access control
pub mod db; // All SQL
pub mod document; // JSON from callers
pub mod engine; // Reconciles due nodes: runs the lifecycle, stores the result
pub mod error; // The error type, rendered in one place
pub mod http; // REST for people and machines, and the listener for agents
pub mod intents; // Use cases: requests, each in one transaction
pub mod keys; // Signing keys, and envelope encryption of secrets
pub mod oidc; // The protocol of an OpenID provider
pub mod outbound; // Calls to addresses configured by people
pub mod promql; // Queries to Prometheus, and their answers
pub mod request_id; // An id for each request
pub mod retention; // How long records are kept
pub mod router; // REST and pages on one listener
pub mod schema; // Migrations, including those of newer versions
pub mod sealed; // Sealed secrets, and hashes of tokens
pub mod streams; // Event streams of the replica, with one reader of the database
pub mod tasks; // Background tasks
pub mod ui; // Pages
pub mod webhooks; // Content and signature of webhook messages
