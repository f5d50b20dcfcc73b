//! What the tools of RDMA networks tell.

use super::{Metric, Parser, TEXT, builtin, each, metric, tool};

/// `mlx5_0/1`: the adapter and its port.
const PORT: &str = "port";

/// By the message size, `65536 B`.
const PERFTEST: &[Metric] = &[
    each("size", "rdma.bandwidth", "Gb/s"),
    each("size", "rdma.message_rate", "Mpps"),
    each("size", "rdma.latency_typical", "µs"),
    each("size", "rdma.latency_avg", "µs"),
    each("size", "rdma.latency_p99", "µs"),
    each("size", "rdma.latency_p999", "µs"),
    each("size", "rdma.latency_max", "µs"),
    each("size", "rdma.iterations", "iterations"),
];

const IBSTAT: &[Metric] = &[
    metric("ib.adapters", "adapters"),
    metric("ib.ports", "ports"),
    // Of one link layer: of the one that has most of them.
    metric("ib.ports_active", "ports"),
    each(PORT, "ib.state", TEXT),
    each(PORT, "ib.physical_state", TEXT),
    each(PORT, "ib.rate", "Gb/s"),
    // Of ports that are active; what one that is down says of its rate is none. The fastest so many are what so many ports of one link layer reach: a
    // port of another layer does not stand in for one of them.
    each(PORT, "ib.active_rate", "Gb/s"),
    each(PORT, "ib.link_layer", TEXT),
    each(PORT, "ib.adapter_type", TEXT),
    each(PORT, "ib.firmware", TEXT),
];

/// Since the counters were cleared, mostly since the port's machine was switched on. By `LID/PORT`.
const PERFQUERY: &[Metric] = &[
    each(PORT, "ib.symbol_errors", "errors"),
    each(PORT, "ib.link_recoveries", "events"),
    each(PORT, "ib.link_downed", "events"),
    each(PORT, "ib.receive_errors", "errors"),
    each(PORT, "ib.receive_remote_errors", "errors"),
    each(PORT, "ib.receive_switch_errors", "errors"),
    each(PORT, "ib.receive_constraint_errors", "errors"),
    each(PORT, "ib.transmit_discards", "packets"),
    each(PORT, "ib.transmit_constraint_errors", "errors"),
    each(PORT, "ib.integrity_errors", "errors"),
    each(PORT, "ib.buffer_overruns", "errors"),
    each(PORT, "ib.vl15_dropped", "packets"),
    each(PORT, "ib.transmit_wait", "ticks"),
];

/// What the kernel gives of every port that counts. The retries only where a driver tells them.
const COUNTERS: &[Metric] = &[
    each(PORT, "ib.symbol_errors", "errors"),
    each(PORT, "ib.link_recoveries", "events"),
    each(PORT, "ib.link_downed", "events"),
    each(PORT, "ib.integrity_errors", "errors"),
    each(PORT, "ib.buffer_overruns", "errors"),
    each(PORT, "ib.retries_spent", "events"),
];

/// `0x7fff 0xffff`: those of all active InfiniBand ports where they agree, else each port's own.
const PKEYS: &[Metric] = &[metric("ib.pkeys", TEXT)];

pub(super) const PARSERS: &[Parser] = &[
    builtin(
        "ib-counters",
        "sysfs, every port of an RDMA device that has `counters`",
        COUNTERS,
    ),
    builtin("ib-pkeys", "sysfs, every active InfiniBand port", PKEYS),
    tool(
        "perftest",
        "`ib_write_bw --report_gbits`, `ib_write_lat` and their sisters, as printed",
        PERFTEST,
    ),
    tool(
        "perftest-json",
        "the same, the file of `--out_json --out_json_file=…`",
        PERFTEST,
    )
    .experimental(),
    tool("ibstat", "`ibstat`", IBSTAT),
    tool("perfquery", "`perfquery` and `perfquery -x`", PERFQUERY),
];
