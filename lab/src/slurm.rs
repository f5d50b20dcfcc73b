//! munged and slurmctld inside the namespace.
