//! Rotations of the server's keys. A rotation has two acts of an administrator on the host: the
//! first makes the new key valid beside the former key, the second ends the former key.

pub mod events; // The act, and its events
pub mod master; // The master key
pub mod report; // Ages of keys, and holders of former keys
pub mod signing; // The SSH user CA, the permit key and the authority of agents
