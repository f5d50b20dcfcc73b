//! Parsers on recordings of the real tools, and what must never pass; the runner with real programs.

mod bench; // A plan, facts and a machine to run gates on
mod broken; // Every recording broken in every way: none may pass
mod conduct; // Needs, retries, evidence
mod dcgm; // What a level must have tested
mod edges; // Where decisions turn: bounds, halves of conditions, sums
mod gpus; // What nvidia-smi says of GPUs, held by the shipped gates
mod h200; // What the tools told of a real H200, held by the shipped gates
mod hostile; // Answers made to hurt
mod load; // Looked at while others load the machine
mod looks; // At the kernel's log
mod names; // Of processes, in nvidia-smi's answer
mod parsers; // Recordings, broken in every way
mod ports; // Errors and partitions of RDMA ports, by the kernel
mod rails; // The rails' rate, held by the shipped gates
mod recordings; // What each recording reads as
mod runner; // Stages, timeouts, disks
mod storage; // Shared file systems, modules built on the node
mod suites; // What the repository ships
mod together; // Shared answers, and what grows
mod words; // What stands where a GPU has no answer
