//! muster-node runs on a node: inventory, disk imaging, convergence of packages and files, gates,
//! records. The program is a static binary without a listener and without secrets. Input is JSON;
//! output is JSON lines over SSH.
//!
//! The plan decides which image to write, which packages to install and which disks to wipe;
//! muster-node decides none of these. Destructive work needs a permit signed by the server.

pub mod cli; // The verbs and their exit codes
pub mod converge; // Brings the installed OS to its plan
pub mod disk; // Disks: found by serial, marked, imaged, wiped
pub mod exec; // The detached process of a job
pub mod failure; // Failures as sent to the agent
pub mod files; // Small files: capped reads, atomic writes
pub mod gates; // Runs gates and judges the measured values
pub mod health; // Decides whether the node is fit for the next Slurm job
pub mod inventory; // Facts from /sys, /proc and the firmware's tables
pub mod job; // Detached jobs: spool, lock, fence, attach
pub mod live; // Start of the live image: clock, host key, sshd, report
pub(crate) mod machine; // The system to read and change: the running system, or a tree
pub mod paths; // Paths on a node, under one movable root
pub mod permit; // The challenge before a disk is written, and the check of the answer
pub mod record; // Scrubbed tool outputs of this machine, the base for new parsers
pub(crate) mod terminal; // Usage, version, and failures on stderr
pub mod tool; // Runs programs with deadline, limits, output cap and process group
