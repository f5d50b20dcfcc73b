//! Tests of the parsers on recordings of real tools, and of the runner with real programs.

pub(crate) mod bench; // A plan, facts and a machine for gates
mod broken; // Broken recordings: none may pass
mod conduct; // Needs, retries, evidence
mod dcgm; // Tests required at each level of DCGM
mod edges; // Bounds, halves of conditions, sums
mod ends; // Ends of tools: faults, and no answers
mod gpus; // Answers of nvidia-smi, judged by the shipped gates
mod hopper; // Recordings of a real H100 and H200, judged by the shipped gates
mod hostile; // Hostile answers
mod kernel_logs; // Logs of faulty machines, judged by the shipped gates
mod load; // Gates measured under the load of others
mod looks; // Readings of the kernel's log
mod moved; // Values that moved between versions of a tool
mod names; // Names of processes in answers of nvidia-smi
mod no_gpu; // A machine without a GPU
mod own_burn; // The lines of the burn in `stacks/packages`
mod parsers; // Recordings and answers of every parser
mod ports; // Errors and partitions of RDMA ports, from the kernel
mod rails; // The rate of rails, judged by the shipped gates
mod recordings; // The values of each recording
mod runner; // Stages, timeouts, disks
mod sandbox; // The sandbox at the start of a tool
mod storage; // Shared file systems, modules built on the node
mod suites; // The shipped suites
mod together; // Shared answers, and growing counters
mod words; // Words in place of numbers
