//! Tools of RDMA networks.

pub(super) mod counters; // Errors of every port, by the kernel
pub(super) mod ibstat; // Adapters and ports
pub(super) mod perfquery; // Counters of a port
pub(super) mod perftest; // `ib_write_bw` and its sisters
pub(super) mod perftest_json; // Their file
pub(super) mod pkeys; // Partitions of every port
mod ports; // As the kernel lists them
