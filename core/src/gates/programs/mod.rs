//! Programs that a gate may start by the bare name, with the allowed arguments. Many tools run
//! another program, write a file or change the machine by an option, so an argument outside of the
//! list is refused.

mod disks; // Disks and file systems
mod fabric; // Networks
mod gpus; // GPUs of NVIDIA and AMD
mod host; // Memory, processors, the kernel's log, the BMC

use super::gate::SideEffect;

/// The folder of the programs that an image ships for gates. A gate names such a program by the
/// absolute path, with any arguments.
pub const PROGRAMS_FOLDER: &str = "/usr/libexec/muster/gates";

/// Variables allowed in `env` of a gate. Other variables name files, libraries or programs
/// (ld.so(8), the manuals of NCCL and Open MPI).
pub(super) const ENVIRONMENT: &[&str] = &[
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_CROSS_NIC",
    "NCCL_CUMEM_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DMABUF_ENABLE",
    "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_DISABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_SL",
    "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IB_TC",
    "NCCL_IB_TIMEOUT",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MNNVL_ENABLE",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_PXN_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "ROCR_VISIBLE_DEVICES",
];

/// A program with the allowed calls. The first form with the call's first words decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) forms: &'static [Form],
}

/// The allowed arguments of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// The first arguments of the call, exactly.
    pub(super) words: &'static [&'static str],
    /// Options without a value.
    pub(super) flags: &'static [&'static str],
    /// Options with a number, a name or a list.
    pub(super) values: &'static [&'static str],
    /// Options with a file that the program writes into the gate's scratch folder.
    pub(super) files: &'static [&'static str],
    /// Options with a file of test data: a file in the scratch folder, or `.muster-NAME` on a mount.
    pub(super) data: &'static [&'static str],
    /// Options with a file that the program reads.
    pub(super) reads: &'static [&'static str],
    /// Options with parameters of tests.
    pub(super) parameters: &'static [&'static str],
    pub(super) choices: &'static [Choice],
    /// Arguments beside the options.
    pub(super) operands: Takes,
    /// Effects of each such call. The gate must name them.
    pub(super) effects: &'static [SideEffect],
}

/// An option with a closed list of values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) option: &'static str,
    pub(super) values: &'static [&'static str],
}

/// The values of an option or operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// No operand.
    Nothing,
    /// A number, a name or a list: no path.
    Word,
    /// The scratch folder, or a file inside.
    Scratch,
    /// A file in the scratch folder, or a file of Muster on a mount.
    Data,
    /// Parameters of tests: `TEST.NAME=VALUE`, with `;` between.
    Parameters,
    /// An absolute path, only read.
    Path,
    /// A device of the node, only read.
    Device,
    OneOf(&'static [&'static str]),
}

/// A form without arguments and effects.
const BARE: Form = Form {
    words: &[],
    flags: &[],
    values: &[],
    files: &[],
    data: &[],
    reads: &[],
    parameters: &[],
    choices: &[],
    operands: Takes::Nothing,
    effects: &[],
};

/// A program that starts a program of the parser on several nodes or ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launcher {
    pub(super) name: &'static str,
    /// Options before the program.
    pub(super) flags: &'static [&'static str],
    pub(super) values: &'static [&'static str],
}

/// Left out of Open MPI's options (mpirun(1)): `-x`, `--mca`, `--prefix`, `--app`, `--hostfile`,
/// `--wdir` and `--output-filename` name programs, files or variables.
pub(super) const LAUNCHERS: &[Launcher] = &[Launcher {
    name: "mpirun",
    flags: &["--allow-run-as-root", "--tag-output"],
    values: &["--host", "--map-by", "--bind-to", "-n", "-np", "-N"],
}];

impl Program {
    /// Returns the program with the given bare name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|program| program.name == name)
    }

    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        let lists = [
            host::PROGRAMS,
            disks::PROGRAMS,
            gpus::PROGRAMS,
            fabric::PROGRAMS,
        ];
        lists.into_iter().flatten()
    }
}

impl Form {
    /// Returns whether a call begins with the words of the form.
    pub(super) fn begins(&self, arguments: &[String]) -> bool {
        arguments.len() >= self.words.len()
            && self
                .words
                .iter()
                .zip(arguments)
                .all(|(own, given)| own == given)
    }

    /// Returns the values of an option with a value.
    pub(super) fn takes(&self, option: &str) -> Option<Takes> {
        let choice = self.choices.iter().find(|choice| choice.option == option);
        if let Some(choice) = choice {
            return Some(Takes::OneOf(choice.values));
        }
        let lists = [
            (self.values, Takes::Word),
            (self.files, Takes::Scratch),
            (self.data, Takes::Data),
            (self.reads, Takes::Path),
            (self.parameters, Takes::Parameters),
        ];
        let mut lists = lists.into_iter();
        lists
            .find(|(names, _)| names.contains(&option))
            .map(|(_, takes)| takes)
    }
}

impl Launcher {
    /// Returns the launcher with the given bare name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        LAUNCHERS.iter().find(|launcher| launcher.name == name)
    }
}
