//! Tests of every rule, with a rejected combination and the correct combination, and tests of
//! missing facts.

mod branches; // Each driver branch with its CUDA
mod modules; // Kernel modules: open or proprietary, and for which kernel
mod nodes; // The same stack on other nodes
mod storage; // Lustre, Storage Scale

use serde_json::{Value, json};

use super::*;
use crate::facts::{Facts, Gpu, PciDevice};
use crate::images::ImageManifest;
use crate::stacks::{LockedPackage, StackLock, StackSpec};
use crate::values::Digest;

/// A complete and correct Hopper stack. A value of `null` removes a package.
fn stack(packages: &Value, change: &Value) -> StackSpec {
    let driver = "580.126.20-1";
    let mut stack = json!({
        "version": "1", "image": "debian-12",
        "selector": { "os": "debian", "os_version": "12", "arch": "amd64", "gpu": "hopper", "nvswitch": true },
        "packages": {
            "linux-image-6.1.0-40-amd64": "6.1.153-1", "linux-headers-6.1.0-40-amd64": "6.1.153-1",
            "nvidia-open": driver, "nvidia-kernel-open-dkms": driver, "libcuda1": driver, "nvidia-modprobe": driver,
            "nvidia-fabricmanager": driver, "libnvidia-nscq": driver, "libnvsdm": driver,
            "cuda-toolkit-12-8": "12.8.1-1",
            "datacenter-gpu-manager-4-core": "1:4.6.0-1", "datacenter-gpu-manager-4-cuda13": "1:4.6.0-1",
            "nvidia-container-toolkit": "1.19.1-1", "nvidia-container-toolkit-base": "1.19.1-1",
            "libnvidia-container-tools": "1.19.1-1", "libnvidia-container1": "1.19.1-1",
        },
    });
    for (name, version) in packages.as_object().expect("packages") {
        match version {
            Value::Null => {
                _ = stack["packages"]
                    .as_object_mut()
                    .expect("packages")
                    .remove(name)
            }
            version => stack["packages"][name] = version.clone(),
        }
    }
    for (member, value) in change.as_object().expect("members") {
        stack[member] = value.clone();
    }
    serde_json::from_value(stack).expect("a stack")
}

fn refused(stack: &StackSpec) -> Vec<(String, String)> {
    let subject = Subject {
        stack,
        image: None,
        facts: None,
    };
    let found = findings(subject)
        .into_iter()
        .filter(|finding| finding.level == Level::Refused);
    found
        .map(|finding| (finding.rule, finding.sentence))
        .collect()
}

/// The rule, packages differing from the complete Hopper stack, other differences, and words
/// required in the sentence. Then the corrected set.
type Tuple = (
    &'static str,
    Value,
    Value,
    &'static [&'static str],
    Value,
    Value,
);

#[expect(clippy::too_many_lines, reason = "a table, a row for each tuple")]
fn wrong_tuples() -> Vec<Tuple> {
    let none = || json!({});
    let blackwell = |more: &[&str]| {
        let modules: Vec<&str> = ["ib_umad"].iter().chain(more).copied().collect();
        json!({ "selector": { "gpu": "blackwell", "nvswitch": true, "nvlink5": true }, "modules_load": modules })
    };
    let nvlsm = || json!({ "nvlsm": "2025.06.6-1", "infiniband-diags": "44.0-2" });
    let grace = |text: &str| {
        json!({ "selector": { "gpu": "grace_blackwell" },
                "files": [{ "path": "/etc/modprobe.d/nvidia.conf", "mode": "0644", "content": [{ "text": text }] }] })
    };
    let large = || {
        json!({ "linux-image-6.1.0-40-amd64": null, "linux-image-6.1.0-40-64k": "6.1.153-1",
                "linux-headers-6.1.0-40-64k": "6.1.153-1", "kubelet": "1.33.1-1.1" })
    };
    let channel = "options nvidia NVreg_CreateImexChannel0=1";
    let both = "options nvidia NVreg_CreateImexChannel0=1 NVreg_CoherentGPUMemoryMode=driver";
    let all = |version: &str| {
        let names = [
            "nvidia-open",
            "nvidia-kernel-open-dkms",
            "libcuda1",
            "nvidia-modprobe",
            "nvidia-fabricmanager",
            "libnvidia-nscq",
            "libnvsdm",
        ];
        Value::Object(
            names
                .into_iter()
                .map(|name| (name.to_owned(), json!(version)))
                .collect(),
        )
    };
    let mut old = all("550.90.07-1");
    old["datacenter-gpu-manager-4-cuda12"] = json!("1:4.6.0-1");
    let mut new = all("570.124.06-1");
    new["datacenter-gpu-manager-4-cuda12"] = json!("1:4.6.0-1");
    let newer = |toolkit: &str| {
        let mut packages = new.clone();
        packages["cuda-toolkit-12-8"] = Value::Null;
        packages[toolkit] = json!(format!(
            "{}.0-1",
            toolkit
                .trim_start_matches("cuda-toolkit-")
                .replace('-', ".")
        ));
        packages
    };
    let peermem = || json!({ "modules_load": ["nvidia_peermem"] });
    let built = "linux-modules-nvidia-580-server-open-6.1.0-40-amd64";
    vec![
        (
            "R1",
            old,
            none(),
            &["cuda-toolkit-12-8 12.8.1-1", "570.124.06", "550.90.07-1"],
            new.clone(),
            none(),
        ),
        (
            "R2",
            newer("cuda-toolkit-12-9"),
            none(),
            &["cuda-toolkit-12-9 12.9.0-1", "CUDA 12.8", "570.124.06-1"],
            newer("cuda-toolkit-12-6"),
            none(),
        ),
        (
            "R3",
            json!({ "nvidia-fabricmanager": "580.95.05-1" }),
            none(),
            &["nvidia-fabricmanager 580.95.05-1", "580.126.20-1"],
            none(),
            none(),
        ),
        (
            "R4",
            json!({ "libnvidia-nscq": "580.95.05-1" }),
            none(),
            &["libnvidia-nscq 580.95.05-1"],
            none(),
            none(),
        ),
        (
            "R5",
            none(),
            blackwell(&["mlx5_core"]),
            &["nvlsm, infiniband diags"],
            nvlsm(),
            blackwell(&["mlx5_core"]),
        ),
        (
            "R5",
            nvlsm(),
            blackwell(&[]),
            &["mlx5_core in modules_load"],
            nvlsm(),
            blackwell(&["mlx5-core"]),
        ),
        (
            "R5",
            json!({ "nvidia-fabricmanager": null }),
            none(),
            &["fabric manager"],
            none(),
            none(),
        ),
        (
            "R6",
            json!({ "nvidia-open": null, "nvidia-kernel-open-dkms": null, "cuda-drivers": "580.126.20-1", "nvlsm": "1", "infiniband-diags": "1" }),
            blackwell(&["mlx5_core"]),
            &[
                "cuda-drivers 580.126.20-1",
                "open kernel modules only",
                "blackwell",
            ],
            nvlsm(),
            blackwell(&["mlx5_core"]),
        ),
        (
            "R6",
            none(),
            json!({ "selector": { "gpu": "volta" } }),
            &["proprietary kernel modules only"],
            json!({ "nvidia-open": null, "nvidia-kernel-open-dkms": null, "cuda-drivers": "580.126.20-1" }),
            json!({ "selector": { "gpu": "volta" } }),
        ),
        (
            "R7",
            json!({ "linux-headers-6.1.0-40-amd64": null }),
            none(),
            &["nvidia-kernel-open-dkms", "linux-headers-6.1.0-40-amd64"],
            none(),
            none(),
        ),
        (
            "R7",
            json!({ "linux-modules-nvidia-580-server-open-6.1.0-39-amd64": "580.126.20-1" }),
            none(),
            &["6.1.0-40-amd64"],
            json!({ built: "580.126.20-1" }),
            none(),
        ),
        (
            "R8",
            json!({ "libcuda1": "580.95.05-1" }),
            none(),
            &["580.95.05-1", "580.126.20-1", "mismatch"],
            // NVIDIA's tool for choosing a driver is not part of a driver.
            json!({ "nvidia-driver-assistant": "0.21.57-1" }),
            none(),
        ),
        (
            "R9",
            json!({ built: "580.126.20-1", "doca-ofed": "3.2.3-1" }),
            peermem(),
            &["doca-ofed 3.2.3-1", "ib_register_peer_memory_client"],
            json!({ "doca-ofed": "3.2.3-1" }),
            peermem(),
        ),
        (
            "R10",
            json!({ "gdrdrv-dkms": "2.5.1-1", "nvidia-open": null, "nvidia-kernel-open-dkms": null, "libcuda1": null, "nvidia-fabricmanager": null,
            "libnvidia-nscq": null, "libnvsdm": null, "nvidia-modprobe": null }),
            none(),
            &["driver must be in the same stack"],
            json!({ "gdrdrv-dkms": "2.5.1-1" }),
            none(),
        ),
        (
            "R11",
            json!({ "datacenter-gpu-manager-4-cuda13": null, "datacenter-gpu-manager-4-cuda12": "1:4.6.0-1" }),
            none(),
            &["CUDA 13", "datacenter-gpu-manager-4-cuda13"],
            none(),
            none(),
        ),
        (
            "R11",
            json!({ "datacenter-gpu-manager-4-proprietary": "1:4.6.0-1", "datacenter-gpu-manager-4-proprietary-cuda12": "1:4.6.0-1" }),
            none(),
            &[
                "datacenter-gpu-manager-4-proprietary 1:4.6.0-1",
                "CUDA 13",
                "datacenter-gpu-manager-4-proprietary-cuda13",
            ],
            json!({ "datacenter-gpu-manager-4-proprietary": "1:4.6.0-1", "datacenter-gpu-manager-4-proprietary-cuda13": "1:4.6.0-1" }),
            none(),
        ),
        (
            "R11",
            json!({ "datacenter-gpu-manager-4-cuda13": "1:4.5.0-1" }),
            none(),
            &["4.5.0-1", "4.6.0-1"],
            none(),
            none(),
        ),
        (
            "R11",
            {
                let mut oldest = all("418.226.00-1");
                oldest["cuda-toolkit-12-8"] = Value::Null;
                oldest
            },
            none(),
            &["driver 450 or newer"],
            none(),
            none(),
        ),
        (
            "R12",
            json!({ "kubelet": "1.30.2-1.1" }),
            json!({ "beside": { "network_operator": "26.4.0" } }),
            &["1.31 to 1.35", "kubelet 1.30.2-1.1"],
            json!({ "kubelet": "1.33.1-1.1" }),
            json!({ "beside": { "network_operator": "26.4.0" } }),
        ),
        (
            "R12",
            none(),
            json!({ "beside": { "network_operator": "26.4.0", "gpu_operator": "26.3.2", "kubernetes": "1.33" } }),
            &["gpu_operator 26.3.2"],
            none(),
            json!({ "beside": { "network_operator": "26.4.0", "gpu_operator": "26.7.0", "kubernetes": "1.33" } }),
        ),
        (
            "R13",
            json!({ "doca-ofed": "3.2.3-1", "rdma-core": "44.0-2" }),
            none(),
            &["rdma-core 44.0-2", "mlnx"],
            json!({ "doca-ofed": "3.2.3-1", "rdma-core": "2510mlnx61-1.2510097" }),
            none(),
        ),
        (
            "R13",
            json!({ "mft": "4.34.0-145", "kernel-mft-dkms": "4.33.0-169" }),
            none(),
            &["4.33.0-169", "4.34.0-145"],
            // Pair from one DOCA repository: the module has the build as a fourth number.
            json!({ "mft": "4.33.0-169", "kernel-mft-dkms": "4.33.0.169-1" }),
            none(),
        ),
        (
            "R14",
            large(),
            grace("# NVreg_CreateImexChannel0=1\n"),
            &["NVreg_CreateImexChannel0=1"],
            large(),
            grace(both),
        ),
        (
            "R14",
            large(),
            grace(channel),
            &["NVreg_CoherentGPUMemoryMode=driver"],
            large(),
            grace(both),
        ),
        (
            "R14",
            json!({}),
            grace(channel),
            &["kernel 64k"],
            large(),
            grace(both),
        ),
        (
            "R15",
            json!({ "slurmd": "24.11.5-1" }),
            json!({ "beside": { "slurm_controller": "24.05.4" } }),
            &["slurmd 24.11.5-1", "23.02", "24.05"],
            json!({ "slurmd": "24.05.4-1" }),
            json!({ "beside": { "slurm_controller": "24.11.5" } }),
        ),
        (
            "R15",
            json!({ "slurmd": "22.05.8-4" }),
            json!({ "beside": { "slurm_controller": "24.11.5" } }),
            &["23.02 to 24.11"],
            json!({ "slurmd": "23.02.8-4" }),
            json!({ "beside": { "slurm_controller": "24.11.5" } }),
        ),
        (
            "R15",
            json!({ "slurmd": "24.11.5-1", "nvslurm-plugin-pyxis": "0.21.0-1" }),
            json!({ "beside": { "slurm_controller": "24.11.5", "pyxis_slurm": "24.05.4" } }),
            &["pyxis_slurm 24.05.4"],
            json!({ "slurmd": "24.11.5-1", "nvslurm-plugin-pyxis": "0.21.0-1" }),
            json!({ "beside": { "slurm_controller": "24.11.5", "pyxis_slurm": "24.11.1" } }),
        ),
        (
            "R16",
            json!({ "nvidia-imex": "580.126.20-1" }),
            none(),
            &["/etc/nvidia-imex/nodes_config.cfg"],
            json!({ "nvidia-imex": "580.126.20-1" }),
            json!({ "files": [{ "path": "/etc/nvidia-imex/nodes_config.cfg", "mode": "0644", "content": [{ "text": "10.0.0.1\n" }] }] }),
        ),
        (
            "R17",
            json!({ "rocm": "6.1.3.60103-122~22.04", "amdgpu-dkms": "1:6.12.12.60404-2202139.22.04" }),
            none(),
            &[
                "rocm 6.1.3.60103-122~22.04",
                "amdgpu-dkms 1:6.12.12.60404-2202139.22.04",
                "ROCm 6.2 to 7.1",
            ],
            json!({ "rocm": "6.4.4.60404-129~22.04", "amdgpu-dkms": "1:6.12.12.60404-2202139.22.04" }),
            none(),
        ),
        (
            "toolkit",
            json!({ "libnvidia-container1": "1.17.0-1" }),
            none(),
            &["libnvidia-container1 1.17.0-1", "1.19.1-1"],
            none(),
            none(),
        ),
    ]
}

#[test]
fn every_rule_refuses_its_wrong_tuple_and_takes_the_right_one() {
    let tuples = [
        wrong_tuples(),
        modules::wrong_tuples(),
        storage::wrong_tuples(),
    ];
    for (rule, packages, change, says, right, right_change) in tuples.into_iter().flatten() {
        let wrong = refused(&stack(&packages, &change));
        let by_rule: Vec<&String> = wrong
            .iter()
            .filter(|(by, _)| by == rule)
            .map(|(_, sentence)| sentence)
            .collect();
        let fits = by_rule
            .iter()
            .any(|sentence| says.iter().all(|word| sentence.contains(word)));
        assert!(
            fits,
            "{rule} {packages} {change} must be refused saying {says:?}: {wrong:#?}"
        );
        let right = refused(&stack(&right, &right_change));
        // The old driver of R1 and R2 violates other rules, but a correct combination must pass
        // every rule.
        assert!(
            right.iter().all(|(by, _)| by != rule),
            "{rule} must take the right one: {right:#?}"
        );
    }
    assert_eq!(
        refused(&stack(&json!({}), &json!({}))),
        [],
        "the whole stack is right"
    );
}

#[test]
fn every_rule_of_the_book_is_in_the_table() {
    let tested: std::collections::BTreeSet<&str> = [wrong_tuples(), storage::wrong_tuples()]
        .iter()
        .flatten()
        .map(|(rule, ..)| *rule)
        .collect();
    for rule in &book().rules {
        assert!(
            tested.contains(rule.id.as_str()),
            "{} has no wrong tuple",
            rule.id
        );
        assert!(!rule.source.is_empty() && !rule.title.is_empty());
    }
    for number in 1..=16 {
        assert!(tested.contains(format!("R{number}").as_str()), "R{number}");
    }
    // A rule with an unknown component would never apply, and the error would stay unnoticed.
    let text = include_str!("../rules.toml");
    for word in text
        .split("of = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        assert!(book().components.contains_key(word), "{word}");
    }
}

fn locked(stack: &StackSpec) -> StackSpec {
    let package = |(name, version): (&String, &String)| LockedPackage {
        name: name.clone(),
        version: version.clone(),
        arch: "amd64".into(),
        size: 1,
        sha256: Digest::of(b""),
        filename: format!("{name}.deb"),
    };
    let packages = stack.packages.iter().map(package).collect();
    let (image_digest, arch) = (Digest::of(b"image"), "amd64".into());
    let (firmware, bios) = (stack.firmware.clone(), stack.bios.clone());
    let lock = StackLock {
        image_digest,
        arch,
        packages,
        firmware,
        bios,
        repositories: Vec::new(),
    };
    StackSpec {
        lock: Some(lock),
        ..stack.clone()
    }
}

fn level(stack: &StackSpec, rule: &str) -> Vec<Level> {
    let found = findings(Subject {
        stack,
        image: None,
        facts: None,
    });
    found
        .into_iter()
        .filter(|finding| finding.rule == rule && finding.level > Level::Note)
        .map(|finding| finding.level)
        .collect()
}

#[test]
fn what_is_not_known_is_never_fine() {
    // Without the driver, the owner of this Fabric Manager is unknown: a note before the lock,
    // rejected after.
    let alone = json!({ "version": "1", "image": "i", "packages": { "nvidia-fabricmanager": "580.126.20-1" } });
    let alone: StackSpec = serde_json::from_value(alone).expect("a stack");
    assert_eq!(
        (level(&alone, "R3"), level(&locked(&alone), "R3")),
        (vec![Level::Unknown], vec![Level::Refused])
    );
    // Without a family, the flavour cannot be checked.
    let nowhere = stack(&json!({}), &json!({ "selector": {} }));
    assert_eq!(
        (level(&nowhere, "R6"), level(&locked(&nowhere), "R6")),
        (vec![Level::Unknown], vec![Level::Refused])
    );
    // An unlisted branch, with a toolkit newer than the toolkit of every listed branch.
    let future = stack(
        &json!({ "nvidia-open": "610.57.04-1", "nvidia-kernel-open-dkms": "610.57.04-1", "libcuda1": "610.57.04-1", "cuda-toolkit-12-8": null, "cuda-toolkit-13-3": "13.3.0-1" }),
        &json!({}),
    );
    assert_eq!(level(&future, "R2"), [Level::Unknown]);
    // The controller's version is a fact about a site: reported, without effect.
    let slurm = stack(&json!({ "slurmd": "24.11.5-1" }), &json!({}));
    assert_eq!(level(&locked(&slurm), "R15"), [Level::Unknown]);
    // An open version is an unknown version.
    let open = stack(&json!({ "nvidia-fabricmanager": "*" }), &json!({}));
    assert_eq!(level(&open, "R3"), [Level::Unknown]);
}

fn image(change: &Value) -> ImageManifest {
    let nothing = Digest::of(b"image");
    let mut image = json!({
        "name": "debian-12", "version": "1", "os": "debian", "os_version": "12.11", "arch": "amd64", "digest": nothing, "size": 1,
        "raw_digest": nothing, "raw_size": 1, "kernel": "6.1.0-40-amd64", "packages": [], "partitions": { "esp": 1, "root": 2 },
    });
    for (member, value) in change.as_object().expect("members") {
        image[member] = value.clone();
    }
    serde_json::from_value(image).expect("an image")
}

fn machine(device: &str) -> Facts {
    let address = "0000:1b:00.0".to_owned();
    let pci = PciDevice {
        address: address.clone(),
        vendor: "10de".into(),
        device: device.into(),
        ..PciDevice::default()
    };
    let gpu = Gpu {
        pci_address: address,
        vendor: "10de".into(),
        ..Gpu::default()
    };
    Facts {
        pci: vec![pci],
        gpus: vec![gpu],
        ..Facts::default()
    }
}

#[test]
fn a_stack_is_for_its_image_and_its_gpus() {
    let stack = stack(
        &json!({}),
        &json!({ "firmware": [{ "component": "bios", "version": "2.1", "source": "the maker" }, { "component": "bmc", "version": "1" }] }),
    );
    let told = |image: Option<&ImageManifest>,
                facts: Option<&Facts>,
                rule: &str|
     -> Vec<(Level, String)> {
        let found = findings(Subject {
            stack: &stack,
            image,
            facts,
        });
        found
            .into_iter()
            .filter(|finding| finding.rule == rule)
            .map(|finding| (finding.level, finding.sentence))
            .collect()
    };
    let (right, hopper) = (image(&json!({})), machine("2330"));
    assert_eq!(told(Some(&right), Some(&hopper), "selector"), []);
    let other = image(&json!({ "os": "ubuntu", "os_version": "24.04", "arch": "arm64" }));
    assert_eq!(told(Some(&other), None, "selector").len(), 3);
    let blackwell = told(Some(&right), Some(&machine("2901")), "selector");
    assert_eq!(
        blackwell,
        [(
            Level::Refused,
            "the stack is for hopper GPUs, and the node has blackwell".to_owned()
        )]
    );
    assert_eq!(
        told(Some(&right), Some(&machine("ffff")), "selector")[0].0,
        Level::Unknown
    );
    assert_eq!(
        told(Some(&right), Some(&Facts::default()), "selector")[0].0,
        Level::Refused
    );

    let mut old = hopper.clone();
    old.smbios.bios_version = Some("1.9".into());
    let firmware = told(None, Some(&old), "firmware");
    assert!(
        firmware.contains(&(Level::Note, "the bios is 1.9, wanted 2.1".to_owned())),
        "{firmware:?}"
    );
    assert!(
        firmware
            .iter()
            .any(|(level, sentence)| *level == Level::Unknown && sentence.contains("bmc")),
        "{firmware:?}"
    );
    assert!(
        refusal(Subject {
            stack: &stack,
            image: Some(&right),
            facts: Some(&old)
        })
        .is_none(),
        "firmware stops nothing"
    );
}

#[test]
fn an_item_for_a_product_replaces_one_for_every_product() {
    let stack = stack(
        &json!({}),
        &json!({ "firmware": [
            { "component": "bios", "version": "2.1", "source": "the maker" },
            { "component": "bios", "version": "3.0", "product": "SYS-*", "source": "the maker" },
            { "component": "bmc", "version": "1", "source": "the maker" },
        ] }),
    );
    let list = |product: Option<&str>| -> Vec<String> {
        let mut facts = machine("2330");
        facts.smbios.bios_version = Some("2.1".to_owned());
        facts.smbios.product = product.map(str::to_owned);
        let found = findings(Subject {
            stack: &stack,
            image: None,
            facts: Some(&facts),
        });
        found
            .into_iter()
            .filter(|finding| finding.rule == "firmware")
            .map(|finding| format!("{:?}: {}", finding.level, finding.sentence))
            .collect()
    };
    let bmc = "Unknown: the bmc's firmware was not observed, wanted 1";
    assert_eq!(list(Some("XE9680")), [bmc]);
    let of_product = "Note: the bios is 2.1, wanted 3.0";
    assert_eq!(list(Some("SYS-821GE")), [bmc, of_product]);
    let unknown =
        "Unknown: the machine's product is unknown; for SYS-* the bios is wanted in version 3.0";
    for product in [None, Some("")] {
        assert_eq!(list(product), [bmc, unknown]);
    }
}

#[test]
fn what_no_node_would_take_is_heard_before_one_has_it() {
    let wrong = stack(
        &json!({ "runc": "not-a-version" }),
        &json!({
            "absent": ["nvidia-open"], "modules_load": ["nouveau"], "modules_blacklist": ["nouveau"], "kernel_args": ["a$(id)"],
            "files": [
                { "path": "/etc/muster/marker.json", "mode": "0644", "content": [] },
                { "path": "/etc/a", "mode": "0644", "content": [{ "value": "hostnam" }] },
                { "path": "/etc/containerd/config.toml", "mode": "0644", "content": [] },
            ],
            "container_runtime": { "default_runtime": "nvidia" },
            "known_bad": [
                { "packages": { "libcuda1": "580.126.*", "libnvsdm": "580.*" }, "because": "it was tried" },
                { "packages": { "libcuda1": "580.126.*" }, "because": "it was tried alone" },
            ],
        }),
    );
    let said = refused(&wrong)
        .into_iter()
        .map(|(_, sentence)| sentence)
        .collect::<Vec<_>>()
        .join("\n");
    for word in [
        "runc",
        "both wanted and absent",
        "both loaded and blacklisted",
        "a$(id)",
        "marker.json",
        "\"hostnam\", which is no value",
        "config.toml\" is there twice",
        "libcuda1 580.126.20-1 and libnvsdm 580.126.20-1 are known not to work together: it was tried",
        "libcuda1 580.126.20-1 is known not to work here: it was tried alone",
    ] {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[test]
fn the_page_is_what_the_book_says() {
    let page = page::table(book());
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/stacks.md");
    let (begin, end) = ("<!-- rules -->\n", "<!-- /rules -->");
    let written = std::fs::read_to_string(&path).expect("docs/stacks.md");
    let (head, rest) = written.split_once(begin).expect("the place of the rules");
    let (held, tail) = rest.split_once(end).expect("the end of the rules");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{begin}{page}{end}{tail}"))
            .expect("docs/stacks.md is written");
        return;
    }
    assert!(
        held == page,
        "docs/stacks.md is not what the book says: UPDATE_DOCS=1 writes it"
    );
}
