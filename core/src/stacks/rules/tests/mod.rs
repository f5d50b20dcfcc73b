//! Tests of every rule, with a rejected combination and the correct combination, and tests of
//! missing facts.

mod branches; // Each driver branch with its CUDA
mod compat; // CUDA's user space over an older driver
mod debian; // Debian's own packages, and prebuilt modules
mod kernels; // Which kernel a node boots
mod modules; // Kernel modules: open or proprietary, and for which kernel
mod nodes; // The same stack on other nodes
mod storage; // Lustre, Storage Scale
mod tuples; // Drivers, CUDA, fabric, kernels and containers

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

#[test]
fn every_rule_refuses_its_wrong_tuple_and_takes_the_right_one() {
    let tuples = [
        tuples::wrong_tuples(),
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
    let tested: std::collections::BTreeSet<&str> =
        [tuples::wrong_tuples(), storage::wrong_tuples()]
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
        &json!({ "nvidia-open": "620.10.01-1", "nvidia-kernel-open-dkms": "620.10.01-1", "libcuda1": "620.10.01-1", "cuda-toolkit-12-8": null, "cuda-toolkit-13-4": "13.4.0-1" }),
        &json!({}),
    );
    assert_eq!(level(&future, "R2"), [Level::Unknown]);
    // The controller's version is a fact about a site: reported, without effect.
    let slurm = stack(&json!({ "slurmd": "24.11.5-1" }), &json!({}));
    assert_eq!(level(&locked(&slurm), "R15"), [Level::Unknown]);
    // The version of containerd is open; podman alone reads the specification by itself.
    let runtime = json!({ "container_runtime": { "default_runtime": "runc", "cdi": true } });
    let containerd = stack(&json!({ "containerd": "*" }), &runtime);
    assert_eq!(level(&containerd, "cdi"), [Level::Unknown]);
    let podman = stack(&json!({ "podman": "5.4.2+ds1-2+b1" }), &runtime);
    assert_eq!(level(&locked(&podman), "cdi"), []);
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
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/stacks.md");
    let written = std::fs::read_to_string(&path).expect("docs/stacks.md");
    let mut wanted = written.clone();
    for (name, table) in [
        ("rules", page::table(book())),
        ("branches", page::branch_rows(branch_table())),
    ] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        let (head, rest) = wanted.split_once(&begin).expect("the place of the table");
        let (_, tail) = rest.split_once(&end).expect("the end of the table");
        wanted = format!("{head}{begin}{table}{end}{tail}");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, wanted).expect("docs/stacks.md is written");
        return;
    }
    assert!(
        written == wanted,
        "docs/stacks.md is not what the data says: UPDATE_DOCS=1 writes it"
    );
}
