//! Admission to a cluster: the scheduler is told of a node, watched until it agrees, and made to forget it again.

pub mod slurm; // Through scontrol, sinfo and squeue
