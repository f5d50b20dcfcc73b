//! Every tool used by a gate comes from the image, the stack, or a part listed here. A gate with an
//! uninstalled tool would admit no node.

use std::collections::BTreeSet;

use super::shipped::suites;
use crate::gates::*;
use crate::stacks::{StackPart, StackSpec};

/// A program, the package containing the program on Debian 12 with the stacks' repositories, and
/// the source of the package.
const TOOLS: &[(&str, &str, &str)] = &[
    ("cat", "coreutils", "Debian, an essential package"),
    ("df", "coreutils", "Debian, an essential package"),
    ("dmesg", "util-linux", "Debian, an essential package"),
    ("fio", "fio", "Debian"),
    ("iperf3", "iperf3", "Debian"),
    ("smartctl", "smartmontools", "Debian"),
    ("stress-ng", "stress-ng", "Debian"),
    ("stressapptest", "stressapptest", "Debian"),
    ("ibstat", "infiniband-diags", "Debian"),
    (
        "nvidia-smi",
        "nvidia-open",
        "NVIDIA driver installation guide: the metapackage of the whole driver",
    ),
    (
        "dcgmi",
        "datacenter-gpu-manager-4-core",
        "NVIDIA DCGM installation guide",
    ),
    (
        "rocm-smi",
        "rocm",
        "ROCm installation guide: the metapackage brings rocm-smi-lib",
    ),
    (
        "nvbandwidth",
        "nvbandwidth",
        "built by the site: stacks/parts/gpu-tests.toml",
    ),
    (
        "all_reduce_perf",
        "nccl-tests",
        "built by the site: stacks/parts/gpu-tests.toml",
    ),
    (
        "gpu_burn",
        "gpu-burn",
        "built by the site: stacks/parts/gpu-tests.toml",
    ),
];
/// Packages missing from every list, because Debian always installs them.
const ESSENTIAL: [&str; 2] = ["coreutils", "util-linux"];
const IMAGE: &str = include_str!("../../../../images/debian/packages");
const GPU_TESTS: &str = include_str!("../../../../stacks/parts/gpu-tests.toml");
const RCCL_TESTS: &str = include_str!("../../../../stacks/parts/rccl-tests.toml");

/// The shipped stacks, with the extra part needed by the suites and the suffix of the suites
/// (`-amd`, `-cpu` or empty).
const STACKS: &[(&str, &str, &str, &str)] = &[
    (
        "h100-cuda12.8",
        include_str!("../../../../stacks/h100-cuda12.8.toml"),
        GPU_TESTS,
        "",
    ),
    (
        "h200-cuda13",
        include_str!("../../../../stacks/h200-cuda13.toml"),
        GPU_TESTS,
        "",
    ),
    (
        "b200-cuda13",
        include_str!("../../../../stacks/b200-cuda13.toml"),
        GPU_TESTS,
        "",
    ),
    (
        "mi300x-rocm6",
        include_str!("../../../../stacks/mi300x-rocm6.toml"),
        RCCL_TESTS,
        "-amd",
    ),
    (
        "cpu-slurm",
        include_str!("../../../../stacks/cpu-slurm.toml"),
        "",
        "-cpu",
    ),
];

/// The stacks of Debian's own archive. The archive has no DCGM: the suites for NVIDIA GPUs need
/// more.
const DEBIAN_STACKS: [(&str, &str); 4] = [
    (
        "cuda-debian-12",
        include_str!("../../../../stacks/cuda-debian-12.toml"),
    ),
    (
        "cuda-debian-13",
        include_str!("../../../../stacks/cuda-debian-13.toml"),
    ),
    (
        "cuda-535-debian-13",
        include_str!("../../../../stacks/cuda-535-debian-13.toml"),
    ),
    (
        "rocm-debian-13",
        include_str!("../../../../stacks/rocm-debian-13.toml"),
    ),
];

fn stack(text: &str, part: &str) -> StackSpec {
    let stack: StackSpec = toml::from_str(text).expect("a shipped stack");
    let part: StackPart = toml::from_str(part).expect("a shipped part");
    stack.with(part).expect("they fit")
}

#[test]
fn every_tool_of_a_required_gate_is_installed_by_image_stack_or_part() {
    let image: BTreeSet<&str> = IMAGE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    for (name, text, part, kind) in STACKS {
        let whole = stack(text, part);
        let names = ["admit", "smoke", "sweep"].map(|name| format!("{name}{kind}"));
        let run = suites()
            .into_iter()
            .filter(|(suite, _)| names.iter().any(|name| name == suite));
        let gates = run
            .flat_map(|(_, suite)| suite.gates)
            .filter(|gate| gate.mode(None) == Mode::Required);
        for tool in gates.filter_map(|gate| gate.argv.first().cloned()) {
            let mut packages = TOOLS
                .iter()
                .filter(|(known, ..)| *known == tool)
                .map(|(_, package, _)| *package);
            // rccl-tests uses the program names of nccl-tests.
            let wanted = match packages.next() {
                Some("nccl-tests") if *kind == "-amd" => "rccl-tests",
                Some(package) => package,
                None => panic!("no package is known to have {tool}"),
            };
            let there = ESSENTIAL.contains(&wanted)
                || image.contains(wanted)
                || whole.packages.contains_key(wanted);
            assert!(there, "{name}: {wanted}, which has {tool}");
        }
    }
}

#[test]
fn what_dcgm_must_pass_on_every_gpu_has_its_plugins_and_its_service() {
    for (name, text, part, _) in STACKS.iter().filter(|(.., kind)| kind.is_empty()) {
        let whole = stack(text, part);
        let core = &whole.packages["datacenter-gpu-manager-4-core"];
        for plugins in [
            "datacenter-gpu-manager-4-proprietary",
            "datacenter-gpu-manager-4-proprietary-cuda13",
        ] {
            assert_eq!(whole.packages.get(plugins), Some(core), "{name}: {plugins}");
        }
        assert!(
            whole
                .services
                .iter()
                .any(|service| service.name == "nvidia-dcgm" && service.running),
            "{name}"
        );
    }
}

/// Traffic between GPUs and NICs takes the short path only if no PCIe bridge redirects the traffic
/// to the processor.
#[test]
fn every_stack_of_gpus_switches_acs_off_before_slurmd_starts() {
    let files = [
        "/usr/local/sbin/muster-acs-off",
        "/etc/systemd/system/acs-off.service",
    ];
    let reference = stack(STACKS[0].1, "");
    let of_gpus = STACKS.iter().filter(|(_, _, tests, _)| !tests.is_empty());
    let of_gpus = of_gpus.map(|(name, text, ..)| (*name, *text));
    for (name, text) in of_gpus.chain(DEBIAN_STACKS) {
        let whole = stack(text, "").with_conditional_items().into_owned();
        for path in files {
            let file =
                |stack: &StackSpec| stack.files.iter().find(|file| file.path == path).cloned();
            assert!(
                file(&whole).is_some() && file(&whole) == file(&reference),
                "{name}: {path}"
            );
        }
        let runs = whole
            .services
            .iter()
            .any(|service| service.name == "acs-off" && service.enabled && service.running);
        assert!(runs, "{name}");
    }
    assert!(
        IMAGE.lines().any(|line| line == "pciutils"),
        "which has lspci and setpci"
    );
}

/// Files shared by all stacks must be identical in all stacks.
#[test]
fn every_shipped_stack_starts_slurmd_and_sets_the_clock_alike() {
    let shared = [
        "/etc/default/slurmd",
        "/etc/systemd/system/slurmd.service.d/muster.conf",
        "/usr/local/sbin/muster-prolog",
        "/usr/local/sbin/muster-health-check",
        "/etc/chrony/chrony.conf",
        "/etc/munge/munge.key",
    ];
    let reference = stack(STACKS.last().expect("cpu-slurm").1, "");
    let all = STACKS.iter().map(|(name, text, ..)| (*name, *text));
    for (name, text) in all.chain(DEBIAN_STACKS) {
        let whole = stack(text, "");
        for path in shared {
            let file =
                |stack: &StackSpec| stack.files.iter().find(|file| file.path == path).cloned();
            assert!(
                file(&whole).is_some() && file(&whole) == file(&reference),
                "{name}: {path}"
            );
        }
        let service = |stack: &StackSpec| {
            stack
                .services
                .iter()
                .find(|service| service.name == "chrony")
                .cloned()
        };
        assert!(
            service(&whole).is_some() && service(&whole) == service(&reference),
            "{name}: chrony"
        );
    }
}
