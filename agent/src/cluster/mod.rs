//! Admission to a cluster: the agent adds a node to the scheduler, waits until the scheduler
//! accepts the node, and later removes the node.

pub mod slurm; // Slurm, by scontrol, sinfo and squeue
