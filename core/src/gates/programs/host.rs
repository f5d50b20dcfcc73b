//! Programs for memory, processors, the kernel's log and the BMC.

use super::{BARE, Form, Program, Takes};
use crate::gates::gate::SideEffect;

/// dmesg(1). Left out: `-C`, `-c`, `-D`, `-E` and `-n` change the kernel's log or console, and `-F`
/// prints any file.
const DMESG: Form = Form {
    flags: &[
        "-T",
        "--ctime",
        "-x",
        "--decode",
        "-k",
        "--kernel",
        "-r",
        "--raw",
        "-t",
        "--notime",
        "-d",
        "--show-delta",
        "-e",
        "--reltime",
        "-S",
        "--syslog",
        "-P",
        "--nopager",
    ],
    values: &[
        "-l",
        "--level",
        "-f",
        "--facility",
        "--since",
        "--until",
        "--time-format",
        "--color",
    ],
    ..BARE
};

/// journalctl(1) of the kernel alone. Left out: `--file`, `--directory` and `--root` read other
/// files, and `--vacuum-size`, `--rotate`, `--flush` change the journal.
const JOURNALCTL: Form = Form {
    words: &["-k"],
    flags: &[
        "-b",
        "--boot",
        "--no-pager",
        "--no-hostname",
        "-q",
        "--quiet",
        "-a",
        "--all",
        "--utc",
    ],
    values: &[
        "-o",
        "--output",
        "-p",
        "--priority",
        "-S",
        "--since",
        "-U",
        "--until",
        "-n",
        "--lines",
    ],
    ..BARE
};

/// stressapptest(1). Left out: `-l` writes a log, `-f` and `-d` write files and raw devices, `-n`
/// and `--listen` use the network.
const STRESSAPPTEST: Form = Form {
    flags: &[
        "-W",
        "-A",
        "-F",
        "--cc_test",
        "--local_numa",
        "--remote_numa",
        "--coarse_grain_lock",
    ],
    values: &[
        "-s",
        "-M",
        "-m",
        "-i",
        "-c",
        "-C",
        "-v",
        "-p",
        "--max_errors",
        "--pause_delay",
        "--pause_duration",
        "--cc_inc_count",
        "--cc_line_count",
    ],
    effects: &[SideEffect::MemoryLoad],
    ..BARE
};

/// stress-ng(1): stressors of processors and memory alone. Left out: stressors of disks, devices
/// and the kernel, `--job` and `--exec`, and `--log-file`.
const STRESS_NG: Form = Form {
    flags: &[
        "--verify",
        "--metrics",
        "--metrics-brief",
        "--verbose",
        "--times",
        "--tz",
        "--vm-keep",
        "--keep-name",
        "--oomable",
        "--stdout",
    ],
    values: &[
        "-t",
        "--timeout",
        "--taskset",
        "--seed",
        "-c",
        "--cpu",
        "--cpu-load",
        "--cpu-method",
        "--cpu-ops",
        "--cache",
        "--cache-ops",
        "--fp",
        "--fp-ops",
        "--matrix",
        "--matrix-method",
        "--matrix-ops",
        "--matrix-size",
        "--memcpy",
        "--memcpy-ops",
        "--stream",
        "--stream-ops",
        "--vecmath",
        "--vecmath-ops",
        "-m",
        "--vm",
        "--vm-bytes",
        "--vm-method",
        "--vm-ops",
    ],
    files: &["-Y", "--yaml", "--temp-path"],
    effects: &[SideEffect::CpuLoad],
    ..BARE
};

/// lshw(1). Left out: `-dump` writes a database, and `-X` starts a window.
const LSHW: Form = Form {
    flags: &["-json", "-quiet", "-sanitize", "-numeric", "-notime"],
    values: &["-class", "-C", "-disable", "-enable"],
    ..BARE
};

/// ipmitool(1): the commands beside `sdr elist` change power, users and settings of the BMC, and
/// `exec` and `shell` run scripts.
const IPMITOOL: Form = Form {
    words: &["sdr", "elist"],
    operands: Takes::OneOf(&["all", "full", "compact", "event", "mcloc", "fru", "generic"]),
    ..BARE
};

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "dmesg",
        forms: &[DMESG],
    },
    Program {
        name: "journalctl",
        forms: &[
            JOURNALCTL,
            Form {
                words: &["--dmesg"],
                ..JOURNALCTL
            },
        ],
    },
    Program {
        name: "stressapptest",
        forms: &[STRESSAPPTEST],
    },
    Program {
        name: "stress-ng",
        forms: &[STRESS_NG],
    },
    Program {
        name: "lshw",
        forms: &[LSHW],
    },
    Program {
        name: "ipmitool",
        forms: &[IPMITOOL],
    },
];
