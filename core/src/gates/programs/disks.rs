//! Programs for disks and file systems.

use super::{BARE, Choice, Form, Program, Takes};
use crate::gates::gate::SideEffect;

/// fio(1). Left out: `--exec_prerun`, `--exec_postrun`, `--trigger` and the engines `exec` and
/// `external` run programs; `--server` takes jobs from the network; job files and options for logs
/// name any file. A raw device is no file of test data.
const FIO: Form = Form {
    flags: &[
        "--time_based",
        "--group_reporting",
        "--thread",
        "--norandommap",
        "--refill_buffers",
        "--stonewall",
        "--zero_buffers",
    ],
    values: &[
        "--name",
        "--size",
        "--io_size",
        "--offset",
        "--rw",
        "--readwrite",
        "--rwmixread",
        "--rwmixwrite",
        "--bs",
        "--bsrange",
        "--bssplit",
        "--blocksize",
        "--direct",
        "--iodepth",
        "--numjobs",
        "--runtime",
        "--ramp_time",
        "--time_based",
        "--loops",
        "--rate",
        "--rate_iops",
        "--fsync",
        "--fdatasync",
        "--end_fsync",
        "--fallocate",
        "--buffered",
        "--continue_on_error",
        "--cpus_allowed",
        "--filesize",
        "--invalidate",
        "--nrfiles",
        "--randseed",
        "--thinktime",
        "--group_reporting",
        "--norandommap",
        "--randrepeat",
        "--refill_buffers",
        "--verify",
        "--verify_fatal",
        "--verify_backlog",
        "--do_verify",
        "--unlink",
        "--lat_percentiles",
        "--percentile_list",
        "--output-format",
        "--eta",
    ],
    files: &["--output"],
    data: &["--filename"],
    choices: &[Choice {
        option: "--ioengine",
        values: &[
            "sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "posixaio", "io_uring", "mmap",
        ],
    }],
    effects: &[SideEffect::WritesDisk],
    ..BARE
};

/// smartctl(8). Left out: `-s`, `-o`, `-S`, `-t` and `-X` change settings and tests of a disk, `-B`
/// reads any file, and `-l scterc,…` sets timeouts.
const SMARTCTL: Form = Form {
    flags: &[
        "-j",
        "--json",
        "-a",
        "--all",
        "-x",
        "--xall",
        "-i",
        "--info",
        "-H",
        "--health",
        "-A",
        "--attributes",
        "-c",
        "--capabilities",
    ],
    values: &[
        "--json",
        "-d",
        "--device",
        "-n",
        "--nocheck",
        "-T",
        "--tolerance",
        "-q",
        "--quietmode",
        "-f",
        "--format",
    ],
    choices: &[
        Choice {
            option: "-l",
            values: SMART_LOGS,
        },
        Choice {
            option: "--log",
            values: SMART_LOGS,
        },
    ],
    operands: Takes::Device,
    ..BARE
};
const SMART_LOGS: &[&str] = &[
    "error",
    "xerror",
    "selftest",
    "xselftest",
    "sasphy",
    "sataphy",
    "scttemp",
    "devstat",
    "defects",
    "ssd",
    "background",
    "envrep",
    "genstats",
];

/// nvme(1): other commands format, sanitise and write disks.
const NVME: Form = Form {
    words: &["smart-log"],
    flags: &["-H", "--human-readable"],
    values: &["-o", "--output-format", "-n", "--namespace-id"],
    operands: Takes::Device,
    ..BARE
};

/// mdadm(8): other modes create, stop and erase arrays.
const MDADM: Form = Form {
    words: &["--detail"],
    operands: Takes::Device,
    ..BARE
};

/// df(1).
const DF: Form = Form {
    flags: &[
        "-P",
        "--portability",
        "-k",
        "-i",
        "--inodes",
        "-l",
        "--local",
        "-a",
        "--all",
    ],
    values: &["-x", "--exclude-type", "-t", "--type"],
    operands: Takes::Path,
    ..BARE
};

/// cat(1) prints any file, so only the file of the parser is allowed.
const CAT: Form = Form {
    words: &["/proc/mdstat"],
    ..BARE
};

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "fio",
        forms: &[FIO],
    },
    Program {
        name: "smartctl",
        forms: &[SMARTCTL],
    },
    Program {
        name: "nvme",
        forms: &[NVME],
    },
    Program {
        name: "mdadm",
        forms: &[
            MDADM,
            Form {
                words: &["-D"],
                ..MDADM
            },
        ],
    },
    Program {
        name: "df",
        forms: &[DF],
    },
    Program {
        name: "cat",
        forms: &[CAT],
    },
];
