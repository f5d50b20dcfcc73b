//! One integration binary, a file per resource.

mod tidy; // Rules of the house
mod access; // Who may do what
mod claims; // Who gets a node
mod client; // The typed client over a socket
mod declared; // The contract of declared kinds
mod nodes; // Registration, actions, filters
mod openapi; // The description of the contract
mod operations; // Long polls, events, blobs
mod support; // What every test stands on
