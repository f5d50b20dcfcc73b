//! Programs for GPUs.

use super::{BARE, Form, Program, Takes};
use crate::gates::gate::SideEffect;

const LOADS: &[SideEffect] = &[SideEffect::GpuLoad];

/// nvidia-smi(1). Left out: `-f` writes any file, and `-r`, `-pm`, `-pl`, `-mig`, `-c`, `-e`,
/// `-lgc`, `drain` and `mig` reset GPUs or change settings.
const SMI: Form = Form {
    flags: &["-q", "--query", "-x", "--xml-format", "-L", "--list-gpus"],
    values: &["-i", "--id", "-d", "--display", "--query-gpu", "--format"],
    ..BARE
};
/// Left out: `-r` and `-sc` change the counters of links.
const SMI_NVLINK: Form = Form {
    words: &["nvlink"],
    flags: &["-s", "--status"],
    values: &["-i", "--id"],
    ..BARE
};
const SMI_TOPO: Form = Form {
    words: &["topo"],
    flags: &["-m", "--matrix"],
    ..BARE
};

/// `dcgmi diag`. Left out: `-c` reads any file, `--plugin-path` loads libraries, `--statspath` and
/// `--debugLogFile` write files.
const DIAG: Form = Form {
    words: &["diag"],
    flags: &["-j", "--json", "-v", "--verbose", "--fail-early"],
    values: &[
        "-r",
        "--run",
        "-i",
        "--gpuList",
        "-g",
        "--group",
        "--entity-id",
        "--expectedNumEntities",
        "--iterations",
        "--timeout",
        "--check-interval",
    ],
    parameters: &["-p", "--parameters"],
    effects: LOADS,
    ..BARE
};
/// Level 1 takes seconds, and looks at the software beside jobs.
const DIAG_SHORT: Form = Form {
    words: &["diag", "-r", "1"],
    flags: &["-j", "--json", "-v", "--verbose"],
    values: &["-i", "--gpuList", "-g", "--group", "--entity-id"],
    ..BARE
};

const PROFTESTER: Form = Form {
    flags: &["--no-dcgm-validation"],
    values: &["-t", "-d", "-i"],
    effects: LOADS,
    ..BARE
};

const NVBANDWIDTH: Form = Form {
    flags: &[
        "-j",
        "--json",
        "-v",
        "--verbose",
        "-s",
        "--skipVerification",
        "-d",
        "--disableAffinity",
        "-m",
        "--useMean",
    ],
    values: &[
        "-t",
        "--testcase",
        "-p",
        "--testcasePrefixes",
        "-i",
        "--testSamples",
        "-b",
        "--bufferSize",
    ],
    operands: Takes::Word,
    effects: LOADS,
    ..BARE
};

/// nccl-tests, README.md.
const NCCL: Form = Form {
    values: &[
        "-b",
        "--minbytes",
        "-e",
        "--maxbytes",
        "-i",
        "--stepbytes",
        "-f",
        "--stepfactor",
        "-g",
        "--ngpus",
        "-t",
        "--nthreads",
        "-n",
        "--iters",
        "-m",
        "--agg_iters",
        "-w",
        "--warmup_iters",
        "-N",
        "--run_cycles",
        "-p",
        "--parallel_init",
        "-c",
        "--check",
        "-o",
        "--op",
        "-d",
        "--datatype",
        "-r",
        "--root",
        "-z",
        "--blocking",
        "-y",
        "--stream_null",
        "-T",
        "--timeout",
        "-G",
        "--cudagraph",
        "-C",
        "--report_cputime",
        "-a",
        "--average",
        "-R",
        "--local_register",
    ],
    files: &["-J", "--output_file"],
    effects: LOADS,
    ..BARE
};

/// gpu_burn, README.md. `-c` loads a kernel for GPUs.
const GPU_BURN: Form = Form {
    flags: &["-tc", "-d"],
    values: &["-m", "-i", "-stts"],
    reads: &["-c"],
    operands: Takes::Word,
    effects: LOADS,
    ..BARE
};

/// gpu-fryer. Left out: `--nvml-lib-path` loads a library.
const GPU_FRYER: Form = Form {
    flags: &[
        "--use-bf16",
        "--use-fp32",
        "--use-fp8",
        "--tolerate-software-throttling",
    ],
    values: &["--tflops-tolerance"],
    operands: Takes::Word,
    effects: LOADS,
    ..BARE
};

/// rocm-smi. Left out: `--set…`, `--reset…`, `--gpureset`, `--load` and `--save` change settings or
/// name files.
const ROCM_SMI: Form = Form {
    flags: &[
        "-a",
        "--showallinfo",
        "--json",
        "--alldevices",
        "--showbus",
        "--showclocks",
        "--showfan",
        "--showfwinfo",
        "--showhw",
        "--showmemuse",
        "--showperflevel",
        "--showretiredpages",
        "--showtopo",
        "--showuniqueid",
        "--showxgmierr",
        "--showdriverversion",
        "--showid",
        "--showpower",
        "--showproductname",
        "--showserial",
        "--showtemp",
        "--showuse",
        "--showvbios",
    ],
    values: &["--showmeminfo", "--showrasinfo", "-d", "--device"],
    operands: Takes::Word,
    ..BARE
};

/// amd-smi. Left out: `set` and `reset`, and `--file` writes any file.
const AMD_SMI: Form = Form {
    words: &["metric"],
    flags: &[
        "--json",
        "--usage",
        "--mem-usage",
        "--power",
        "--clock",
        "--temperature",
        "--ecc",
        "--ecc-blocks",
        "--energy",
        "--fan",
        "--pcie",
        "--throttle",
        "--xgmi-err",
    ],
    values: &["-g", "--gpu"],
    operands: Takes::Word,
    ..BARE
};

const NCCL_FORMS: &[Form] = &[NCCL];

const fn nccl(name: &'static str) -> Program {
    Program {
        name,
        forms: NCCL_FORMS,
    }
}

const PROFTESTER_FORMS: &[Form] = &[PROFTESTER];

const fn proftester(name: &'static str) -> Program {
    Program {
        name,
        forms: PROFTESTER_FORMS,
    }
}

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "nvidia-smi",
        forms: &[SMI_NVLINK, SMI_TOPO, SMI],
    },
    Program {
        name: "dcgmi",
        forms: &[DIAG_SHORT, DIAG],
    },
    proftester("dcgmproftester11"),
    proftester("dcgmproftester12"),
    proftester("dcgmproftester13"),
    Program {
        name: "nvbandwidth",
        forms: &[NVBANDWIDTH],
    },
    nccl("all_gather_perf"),
    nccl("all_reduce_perf"),
    nccl("alltoall_perf"),
    nccl("broadcast_perf"),
    nccl("gather_perf"),
    nccl("hypercube_perf"),
    nccl("reduce_perf"),
    nccl("reduce_scatter_perf"),
    nccl("scatter_perf"),
    nccl("sendrecv_perf"),
    Program {
        name: "gpu_burn",
        forms: &[GPU_BURN],
    },
    Program {
        name: "gpu-fryer",
        forms: &[GPU_FRYER],
    },
    Program {
        name: "rocm-smi",
        forms: &[ROCM_SMI],
    },
    Program {
        name: "amd-smi",
        forms: &[AMD_SMI],
    },
];
