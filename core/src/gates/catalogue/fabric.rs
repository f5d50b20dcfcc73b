//! Metrics reported by the tools of RDMA networks.

use super::{Metric, Network, Parser, TEXT, builtin, each, metric, tool};

/// Entity name `mlx5_0/1`: the adapter and its port.
const PORT: &str = "port";

/// Entity: the message size, for example `65536 B`.
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
    // Active ports of the most common link layer only.
    metric("ib.ports_active", "ports"),
    each(PORT, "ib.state", TEXT),
    each(PORT, "ib.physical_state", TEXT),
    each(PORT, "ib.rate", "Gb/s"),
    // Active ports only, because the rate reported for an inactive port is meaningless. The N
    // fastest values are limited to ports of the same link layer: a port of another layer cannot
    // replace a slow port.
    each(PORT, "ib.active_rate", "Gb/s"),
    each(PORT, "ib.link_layer", TEXT),
    each(PORT, "ib.adapter_type", TEXT),
    each(PORT, "ib.firmware", TEXT),
];

/// Counted since the last clear, usually since the switch or host was powered on. Entity:
/// `LID/PORT`.
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

/// Counters in sysfs for every port with counters. Retries exist only with drivers that report
/// them.
const COUNTERS: &[Metric] = &[
    each(PORT, "ib.symbol_errors", "errors"),
    each(PORT, "ib.link_recoveries", "events"),
    each(PORT, "ib.link_downed", "events"),
    each(PORT, "ib.integrity_errors", "errors"),
    each(PORT, "ib.buffer_overruns", "errors"),
    each(PORT, "ib.retries_spent", "events"),
];

/// Partition keys such as `0x7fff 0xffff`: a single list if all active InfiniBand ports agree, else
/// a list per port.
const PKEYS: &[Metric] = &[metric("ib.pkeys", TEXT)];

/// The programs of perftest.
const PERFTEST_PROGRAMS: &[&str] = &[
    "ib_atomic_bw",
    "ib_atomic_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
];

pub(super) const PARSERS: &[Parser] = &[
    builtin(
        "ib-counters",
        "sysfs, every port of an RDMA device that has `counters`",
        COUNTERS,
    ),
    builtin("ib-pkeys", "sysfs, every active InfiniBand port", PKEYS),
    tool(
        "perftest",
        "`ib_write_bw --report_gbits`, `ib_write_lat` and the other perftest tools, as printed",
        PERFTEST,
    )
    .run_by(PERFTEST_PROGRAMS)
    .on_network(Network::Host),
    tool(
        "perftest-json",
        "the same tools, the file written by `--out_json --out_json_file=…`",
        PERFTEST,
    )
    .run_by(PERFTEST_PROGRAMS)
    .on_network(Network::Host)
    .experimental(),
    tool("ibstat", "`ibstat`", IBSTAT).run_by(&["ibstat"]),
    tool("perfquery", "`perfquery` and `perfquery -x`", PERFQUERY)
        .run_by(&["perfquery"])
        .on_network(Network::Host),
];
