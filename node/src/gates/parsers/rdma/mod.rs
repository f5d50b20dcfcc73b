//! Tools of RDMA networks.

pub(super) mod counters; // Error counters of every port, read from the kernel
pub(super) mod ibstat; // Adapters and ports
pub(super) mod perfquery; // Counters of a port
pub(super) mod perftest; // `ib_write_bw` and the other tests
pub(super) mod perftest_json; // JSON file of perftest
pub(super) mod pkeys; // Partitions of every port
mod ports; // Ports listed by the kernel
