//! The shipped suite `software-gpu` on a tree with Debian's driver and without a GPU.

use std::os::unix::fs::symlink;

use muster_core::gates::{GateResult, SUITES, Shipped, Verdict};

use super::*;
use crate::gates::tests::bench::{self, PROFILE, TestBench};

/// As modprobe answers for Debian's driver: only the file of another name exists. A call without
/// messages loads the module.
const MODPROBE: &str = "#!/bin/sh\ncase \"$*\" in\n\
    '--show-depends -- nvidia') echo 'install modprobe -i nvidia-current $CMDLINE_OPTS ' ;;\n\
    '--show-depends --ignore-install -- nvidia-current') cat /run/insertion ;;\n\
    '--show-depends -- nouveau') [ -s /run/nouveau ] && cat /run/nouveau ;;\n\
    '-- nvidia') cat /run/modprobe >&2; [ ! -s /run/modprobe ] ;;\n\
    --showconfig) cat /run/config ;;\n\
    *) exit 1 ;;\nesac\n";
const LIBRARIES: &str = "3 libs found in cache `/etc/ld.so.cache'\n\
    \tlibcuda.so.1 (libc6,x86-64) => /usr/lib/nvidia/libcuda.so.1\n\
    \tlibnvidia-ml.so.1 (libc6,x86-64) => /usr/lib/nvidia/libnvidia-ml.so.1\n";
const CDI: &str = r#"{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",
    "devices": [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
    "containerEdits": {"mounts": [{"hostPath": "/usr/lib/nvidia/libcuda.so.550.163.01", "containerPath": "/x"}]}}"#;
const NOUVEAU: &str = "insmod /lib/modules/6.12/nouveau.ko.xz \n";
/// Lists containerd as inactive in the first answer, and as active in each later answer.
const STARTING: &str = "#!/bin/sh\nactive=inactive\n[ ! -e /run/asked ] || active=active\ntouch /run/asked\n\
    echo Id=containerd.service\necho Names=containerd.service\necho LoadState=loaded\n\
    echo ActiveState=$active\necho UnitFileState=enabled\n";
const CONTAINERD: &str = "\nPackage: containerd\nStatus: install ok installed\nArchitecture: amd64\n\
    Version: 1.7.24\nMaintainer: m\nDescription: d\n";

/// The messages of modprobe for Debian's driver, with an error of the inner module.
fn refused(error: &str) -> String {
    format!(
        "modprobe: ERROR: could not insert 'nvidia_current': {error}\n\
         modprobe: ERROR: could not insert 'nvidia': Invalid argument\n"
    )
}

/// Files that a test may change, with the text of a good driver.
fn files() -> Vec<(&'static str, String)> {
    vec![
        ("/proc/sys/kernel/osrelease", "6.12-amd64\n".into()),
        (
            "/run/insertion",
            "insmod /lib/modules/6.12/nvidia-current.ko.xz \n".into(),
        ),
        ("/run/modprobe", refused("No such device")),
        ("/run/config", "blacklist nouveau\n".into()),
        ("/run/nouveau", NOUVEAU.into()),
        (
            "/run/vermagic",
            "6.12-amd64 SMP preempt mod_unload\n".into(),
        ),
        ("/run/version", "550.163.01\n".into()),
        ("/run/signer", "DKMS module signing key\n".into()),
        ("/run/sig_id", "PKCS#7\n".into()),
        (
            "/run/help",
            "NVIDIA System Management Interface -- v550.163.01\n".into(),
        ),
        ("/run/libraries", LIBRARIES.into()),
        ("/usr/lib/nvidia/libcuda.so.550.163.01", String::new()),
        ("/usr/lib/nvidia/libnvidia-ml.so.1", String::new()),
        ("/etc/cdi/nvidia.json", CDI.into()),
    ]
}

fn write_all(tree: &Tree) {
    for (path, text) in files() {
        tree.write(path, &text);
    }
}

fn good() -> Option<Tree> {
    let tree = Tree::unpack()?;
    for (path, text) in [
        ("/usr/sbin/modprobe", MODPROBE),
        ("/usr/sbin/modinfo", "#!/bin/sh\ncat /run/$2\n"),
        ("/usr/sbin/ldconfig", "#!/bin/sh\ncat /run/libraries\n"),
        (
            "/usr/bin/nvidia-smi",
            "#!/bin/sh\n[ \"$*\" = -h ] && cat /run/help\n",
        ),
    ] {
        tree.program(path, text);
    }
    write_all(&tree);
    let link = tree.path("/usr/lib/nvidia/libcuda.so.1");
    symlink("libcuda.so.550.163.01", link).expect("a link");
    Some(tree)
}

/// Runs gates of the suite, all if none is named, with further lines in the profile.
fn run_suite(tree: &Tree, only: &[&str], profile: &str) -> Vec<GateResult> {
    let suite = Shipped::find(SUITES, "software-gpu").expect("a suite");
    let mut plan = bench::plan_of(toml::from_str(suite.text).expect("the shipped suite"));
    plan.profile = toml::from_str(&format!("{PROFILE}\n{profile}")).expect("a profile");
    plan.only = only.iter().map(ToString::to_string).collect();
    TestBench::on(tree.machine()).run(&plan).expect("results")
}

fn verdict(tree: &Tree, gate: &str, profile: &str) -> Verdict {
    run_suite(tree, &[gate], profile).remove(0).verdict
}

#[test]
fn a_whole_driver_passes_without_a_gpu() {
    let Some(tree) = good() else {
        return;
    };
    let results = run_suite(&tree, &[], "");
    let told: Vec<(&str, Verdict)> = results
        .iter()
        .map(|one| (one.gate.as_str(), one.verdict))
        .collect();
    let wanted = [
        ("software.module", Verdict::Pass),
        ("software.module_signer", Verdict::Skipped),
        ("software.user_space", Verdict::Pass),
        ("software.kernel_accepts", Verdict::Pass),
        ("software.libraries", Verdict::Pass),
        ("software.nccl", Verdict::Skipped),
        ("software.containers", Verdict::Skipped),
        ("software.cdi", Verdict::Pass),
        ("software.nouveau", Verdict::Pass),
        ("software.dkms", Verdict::Skipped),
    ];
    assert_eq!(told, wanted, "{results:#?}");
    let accepted = "driver.answer is accepted by the kernel, no GPU";
    assert!(
        results[3].reason.contains(accepted),
        "{}",
        results[3].reason
    );
}

#[test]
fn every_fault_of_the_driver_is_found_by_its_gate() {
    let Some(tree) = good() else {
        return;
    };
    use Verdict::{Error, Fail};
    let unsigned = refused("Required key not available");
    let unknown = refused("Cannot allocate memory");
    let table: [(&str, &str, &str, Verdict); 10] = [
        ("/run/vermagic", "6.13-amd64 SMP\n", "software.module", Fail),
        ("/run/insertion", "", "software.module", Error),
        ("/run/version", "535.274.02\n", "software.user_space", Fail),
        ("/run/help", "no help\n", "software.user_space", Error),
        ("/run/modprobe", &unsigned, "software.kernel_accepts", Fail),
        ("/run/modprobe", &unknown, "software.kernel_accepts", Error),
        ("/run/libraries", "\n", "software.libraries", Error),
        ("/run/version", "535.274.02\n", "software.cdi", Fail),
        ("/etc/cdi/nvidia.json", "{", "software.cdi", Error),
        ("/run/config", "", "software.nouveau", Fail),
    ];
    for (path, text, gate, wanted) in table {
        tree.write(path, text);
        assert_eq!(verdict(&tree, gate, ""), wanted, "{path}: {text}");
        write_all(&tree);
    }
    tree.remove("/usr/lib/nvidia/libcuda.so.550.163.01");
    for gate in ["software.libraries", "software.cdi", "software.user_space"] {
        assert_eq!(verdict(&tree, gate, ""), Fail, "{gate}");
    }
    write_all(&tree);
    std::fs::create_dir_all(tree.path("/sys/module/nouveau")).expect("a folder");
    assert_eq!(verdict(&tree, "software.nouveau", ""), Fail, "loaded");
}

#[test]
fn the_signer_and_nccl_are_judged_where_the_profile_names_them() {
    let Some(tree) = good() else {
        return;
    };
    let word =
        "[words.\"module.signer\"]\nvalue = \"Site key\"\nprovenance = \"seed\"\nsource = \"t\"\n";
    for (signer, signature, wanted, named) in [
        (
            "DKMS module signing key",
            "PKCS#7",
            Verdict::Fail,
            "DKMS module signing key",
        ),
        ("", "", Verdict::Fail, "unsigned"),
        ("", "PKCS#7", Verdict::Fail, "unknown"),
        ("Site key", "PKCS#7", Verdict::Pass, "Site key"),
    ] {
        tree.write("/run/signer", &format!("{signer}\n"));
        tree.write("/run/sig_id", &format!("{signature}\n"));
        let result = run_suite(&tree, &["software.module_signer"], word).remove(0);
        assert_eq!(result.verdict, wanted, "{named}");
        let told = format!("module.signer is {named}, expected == Site key");
        assert!(result.reason.starts_with(&told), "{}", result.reason);
    }
    let wanted = "[thresholds.\"library.nccl\"]\nvalue = 1\nunit = \"files\"\nprovenance = \"seed\"\nsource = \"t\"\n";
    assert_eq!(verdict(&tree, "software.nccl", wanted), Verdict::Fail);
}

#[test]
fn an_installed_containerd_must_be_active() {
    let Some(tree) = good() else {
        return;
    };
    let status = tree.text("/var/lib/dpkg/status");
    tree.write("/var/lib/dpkg/status", &format!("{status}{CONTAINERD}"));
    let gate = "software.containers";
    assert_eq!(verdict(&tree, gate, ""), Verdict::Fail, "inactive");
    tree.write("/var/lib/units/containerd.service.active", "");
    assert_eq!(verdict(&tree, gate, ""), Verdict::Pass);
    tree.program("/usr/bin/systemctl", STARTING);
    tree.write("/proc/uptime", "100.50 200.00\n");
    let settled = run_suite(&tree, &[gate], "").remove(0);
    let told = (settled.verdict, settled.former.len());
    assert_eq!(told, (Verdict::Pass, 1), "{}", settled.reason);
    tree.remove("/proc/uptime");
    tree.write("/var/lib/dpkg/status", "");
    assert_eq!(verdict(&tree, gate, ""), Verdict::Error, "no record");
}

#[test]
fn a_loaded_module_counts_only_with_the_version_of_the_file() {
    let Some(tree) = good() else {
        return;
    };
    tree.write("/run/modprobe", "");
    let judged = |wanted: Verdict, words: &str| {
        let result = run_suite(&tree, &["software.kernel_accepts"], "").remove(0);
        assert_eq!(result.verdict, wanted, "{}", result.reason);
        assert!(result.reason.contains(words), "{}", result.reason);
    };
    judged(Verdict::Error, "nvidia is not loaded");
    std::fs::create_dir_all(tree.path("/sys/module/nvidia")).expect("a folder");
    judged(Verdict::Error, "the loaded version is unknown");
    tree.write("/sys/module/nvidia/version", "550.163.01\n");
    judged(Verdict::Pass, "driver.answer is loaded");
    tree.write("/sys/module/nvidia/version", "535.274.02\n");
    let reboot = "version 535.274.02 is loaded, and 550.163.01 is on the disk: reboot";
    judged(Verdict::Error, reboot);
}

#[test]
fn nouveau_is_allowed_only_where_its_module_is_installed() {
    let Some(tree) = good() else {
        return;
    };
    tree.write("/run/config", "");
    for (said, wanted) in [
        (NOUVEAU, Verdict::Fail),
        ("builtin nouveau\n", Verdict::Fail),
        ("", Verdict::Pass),
        ("install /bin/logger\n", Verdict::Error),
    ] {
        tree.write("/run/nouveau", said);
        assert_eq!(verdict(&tree, "software.nouveau", ""), wanted, "{said}");
    }
}
