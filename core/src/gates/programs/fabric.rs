//! Programs for networks.

use super::{BARE, Form, Program, Takes};
use crate::gates::gate::SideEffect;

const LOADS: &[SideEffect] = &[SideEffect::NetworkLoad];

/// iperf3(1). Left out: `-F` sends or writes any file, `--logfile` and `-I` write files, options of
/// authentication read keys, and `-D` leaves the process group.
const IPERF3: Form = Form {
    flags: &[
        "-s",
        "--server",
        "-1",
        "--one-off",
        "-J",
        "--json",
        "-R",
        "--reverse",
        "--bidir",
        "-Z",
        "--zerocopy",
        "-N",
        "--no-delay",
        "-V",
        "--verbose",
        "-4",
        "--version4",
        "-6",
        "--version6",
        "--forceflush",
        "--get-server-output",
    ],
    values: &[
        "-c",
        "--client",
        "-p",
        "--port",
        "-t",
        "--time",
        "-P",
        "--parallel",
        "-i",
        "--interval",
        "-b",
        "--bitrate",
        "-w",
        "--window",
        "-M",
        "--set-mss",
        "-O",
        "--omit",
        "-l",
        "--length",
        "-n",
        "--bytes",
        "-A",
        "--affinity",
        "-B",
        "--bind",
        "-C",
        "--congestion",
        "--connect-timeout",
        "--cport",
        "--idle-timeout",
        "--rcv-timeout",
    ],
    effects: LOADS,
    ..BARE
};

/// perftest, the programs' own help. Left out: `--payload_file_path` reads any file.
const PERFTEST: Form = Form {
    flags: &[
        "-F",
        "--report_gbits",
        "--out_json",
        "-a",
        "--all",
        "-b",
        "--bidirectional",
        "-e",
        "--events",
        "-N",
        "-R",
        "--rdma_cm",
        "-z",
        "-C",
        "--report-cycles",
        "-H",
        "--report-histogram",
        "-U",
        "--report-unsorted",
    ],
    values: &[
        "-d",
        "--ib-dev",
        "-i",
        "--ib-port",
        "-p",
        "--port",
        "-s",
        "--size",
        "-D",
        "--duration",
        "-n",
        "--iters",
        "-q",
        "--qp",
        "-x",
        "--gid-index",
        "-t",
        "--tx-depth",
        "-r",
        "--rx-depth",
        "-m",
        "--mtu",
        "-c",
        "--connection",
        "-I",
        "--inline_size",
        "-l",
        "--post_list",
        "-Q",
        "--cq-mod",
        "-S",
        "--sl",
        "-u",
        "--qp-timeout",
        "-T",
        "--tos",
        "--use_cuda",
        "--use_rocm",
    ],
    files: &["--out_json_file"],
    operands: Takes::Word,
    effects: LOADS,
    ..BARE
};

/// ibstat(8).
const IBSTAT: Form = Form {
    flags: &["-l", "--list_of_cas", "-s", "--short", "-p", "--port_list"],
    operands: Takes::Word,
    ..BARE
};

/// perfquery(8). Left out: `-r` and `-R` clear the counters, and `-z` reads any file.
const PERFQUERY: Form = Form {
    flags: &[
        "-x",
        "--extended",
        "-a",
        "--all_ports",
        "-l",
        "--loop_ports",
        "-G",
        "--Guid",
    ],
    values: &["-C", "--Ca", "-P", "--Port", "-t", "--timeout"],
    operands: Takes::Word,
    ..BARE
};

const PERFTEST_FORMS: &[Form] = &[PERFTEST];

const fn perftest(name: &'static str) -> Program {
    Program {
        name,
        forms: PERFTEST_FORMS,
    }
}

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "iperf3",
        forms: &[IPERF3],
    },
    perftest("ib_atomic_bw"),
    perftest("ib_atomic_lat"),
    perftest("ib_read_bw"),
    perftest("ib_read_lat"),
    perftest("ib_send_bw"),
    perftest("ib_send_lat"),
    perftest("ib_write_bw"),
    perftest("ib_write_lat"),
    Program {
        name: "ibstat",
        forms: &[IBSTAT],
    },
    Program {
        name: "perfquery",
        forms: &[PERFQUERY],
    },
];
