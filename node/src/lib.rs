//! muster-node: does the work on the node. One static binary, no listener, no secret of its own; JSON in, JSON lines out, over SSH.
//!
//! It must not decide anything: what to write, install or wipe comes in a plan, and nothing is destroyed without a permit the server signed.

pub mod cli; // The verbs, and how they end
pub mod converge; // Makes the installed OS what its plan says
pub mod disk; // Disks: found by serial, marked, imaged, wiped
pub mod exec; // The detached process of a job
pub mod failure; // Failures, as they travel to the agent
pub mod files; // Small files: read with a cap, written whole or not at all
pub mod gates; // Runs gates and judges what they measured
pub mod health; // Is this node fit for the next job?
pub mod inventory; // Facts from /sys, /proc and the firmware's tables
pub mod job; // Detached jobs: spool, lock, fence, attach
pub mod live; // What the live image does at its start: clock, host key, sshd, report
pub(crate) mod machine; // The system that is read and changed: the running one, or a tree
pub mod paths; // Where things are on a node, under one movable root
pub mod permit; // The challenge before a disk is touched, and the check of its answer
pub mod record; // Outputs of this machine's tools, scrubbed, for parsers to be written from
pub(crate) mod terminal; // Usage, version, and failures on stderr
pub mod tool; // Other programs, with deadline, output cap and process group
