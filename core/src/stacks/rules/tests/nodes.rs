//! The same stack on other nodes. A generally valid stack is wrong for some nodes. Unknown facts
//! about a node are reported without effect.

use serde_json::{Value, json};

use super::{image, locked, machine, stack};
use crate::facts::{Facts, PciDevice};
use crate::images::ImageManifest;
use crate::stacks::StackSpec;
use crate::stacks::rules::{Level, Subject, findings_of_node, refusal};

fn told(
    stack: &StackSpec,
    image: Option<&ImageManifest>,
    facts: Option<&Facts>,
) -> Vec<(Level, String)> {
    let found = findings_of_node(Subject {
        stack,
        image,
        facts,
    })
    .into_iter();
    found
        .map(|finding| (finding.level, finding.to_string()))
        .filter(|(level, _)| *level > Level::Note)
        .collect()
}

fn refused(told: &[(Level, String)]) -> Vec<&str> {
    told.iter()
        .filter(|(level, _)| *level == Level::Refused)
        .map(|(_, sentence)| sentence.as_str())
        .collect()
}

#[test]
fn a_driver_fit_for_a_family_is_refused_for_the_nodes_model() {
    // Proprietary modules support Hopper, but neither Grace Hopper nor Blackwell. The selector
    // names no GPUs.
    let closed = json!({ "nvidia-open": null, "nvidia-kernel-open-dkms": null, "cuda-drivers": "580.126.20-1" });
    let closed = locked(&stack(&closed, &json!({ "selector": { "gpu": "hopper" } })));
    let (over, hopper) = (image(&json!({})), machine("2330"));
    assert_eq!(told(&closed, Some(&over), Some(&hopper)), []);
    for (device, family) in [
        ("2342", "grace hopper"),
        ("2901", "blackwell"),
        ("2941", "grace blackwell"),
    ] {
        let told = told(&closed, Some(&over), Some(&machine(device)));
        let refused = refused(&told);
        let flavour = refused
            .iter()
            .find(|sentence| sentence.starts_with("R6"))
            .expect(family);
        assert!(
            flavour.contains(family) && flavour.contains("cuda-drivers 580.126.20-1"),
            "{flavour}"
        );
        assert!(
            flavour.contains("open kernel modules only") && flavour.contains("docs.nvidia.com"),
            "{flavour}"
        );
    }
    // The rules of a family apply by the node's GPUs: Grace Blackwell needs an IMEX channel and
    // large pages.
    let grace = told(&closed, Some(&over), Some(&machine("2941")));
    assert!(
        refused(&grace)
            .iter()
            .any(|sentence| sentence.starts_with("R14")),
        "{grace:?}"
    );
    // An unlisted family and an uninspected node are both reported.
    let other = told(&closed, Some(&over), Some(&machine("ffff")));
    assert!(
        refused(&other).is_empty() && other.iter().any(|(level, _)| *level == Level::Unknown),
        "{other:?}"
    );
    let unseen = told(&closed, Some(&over), None);
    assert!(
        refused(&unseen).is_empty() && unseen[0].1.contains("was never inspected"),
        "{unseen:?}"
    );
    let plain: StackSpec =
        serde_json::from_value(json!({ "version": "1", "image": "i" })).expect("a stack");
    assert_eq!(
        told(&plain, Some(&over), None),
        [],
        "of hardware it asks nothing"
    );
}

/// Items for nodes with a GPU alone make the stack fit for nodes without a GPU. Other families stay
/// refused.
#[test]
fn a_stack_with_items_for_gpus_fits_a_node_without_a_gpu() {
    let over = image(&json!({}));
    let bare = Facts::default();
    let rigid = locked(&stack(&json!({}), &json!({})));
    let refusal = told(&rigid, Some(&over), Some(&bare));
    assert!(
        refused(&refusal)[0].contains("hopper GPUs, and the node has none"),
        "{refusal:?}"
    );
    let when = json!({ "when": { "gpu": { "modules_load": ["nvidia"] } } });
    let flexible = locked(&stack(&json!({}), &when));
    assert_eq!(told(&flexible, Some(&over), Some(&bare)), []);
    let other = told(&flexible, Some(&over), Some(&machine("2901")));
    assert!(
        refused(&other)
            .iter()
            .any(|sentence| sentence.starts_with("selector")),
        "{other:?}"
    );
}

#[test]
fn what_the_image_brings_counts_with_what_the_stack_does() {
    let parts =
        json!({ "datacenter-gpu-manager-4-core": null, "datacenter-gpu-manager-4-cuda13": null });
    let stack = locked(&stack(&parts, &json!({})));
    let with = |cuda: &str| {
        let dcgm = |part: &str| json!({ "name": format!("datacenter-gpu-manager-4-{part}"), "version": "1:4.6.0-1", "arch": "amd64" });
        image(&json!({ "packages": [dcgm("core"), dcgm(cuda)] }))
    };
    assert_eq!(
        told(&stack, Some(&with("cuda13")), Some(&machine("2330"))),
        []
    );
    let old = told(&stack, Some(&with("cuda12")), Some(&machine("2330")));
    assert!(
        refused(&old)[0].starts_with("R11: datacenter-gpu-manager-4-cuda12"),
        "{old:?}"
    );
}

/// A node installed without Muster, with this driver on the GPU.
fn adopted(driver: Option<&str>) -> Facts {
    let mut facts = machine("2330");
    facts.kernel = "6.1.0-44-amd64".into();
    facts.pci[0] = PciDevice {
        driver: driver.map(str::to_owned),
        ..facts.pci[0].clone()
    };
    facts
}

#[test]
fn of_a_system_that_somebody_else_installed_only_what_was_seen_counts() {
    let change = |packages: Value| locked(&stack(&packages, &json!({})));
    let none = json!({
        "linux-image-6.1.0-40-amd64": null, "linux-headers-6.1.0-40-amd64": null, "nvidia-open": null, "nvidia-kernel-open-dkms": null,
        "libcuda1": null, "nvidia-modprobe": null, "nvidia-fabricmanager": null, "libnvidia-nscq": null, "libnvsdm": null,
    });
    // DCGM needs a driver, but the stack has none: over an image the stack is rejected.
    let without = change(none.clone());
    let over = image(&json!({}));
    assert!(
        refusal(Subject {
            stack: &without,
            image: Some(&over),
            facts: Some(&adopted(None))
        })
        .is_some()
    );
    // With a running driver, only the version is unknown; without one, the driver is known to be
    // absent.
    let runs = told(&without, None, Some(&adopted(Some("nvidia"))));
    assert!(refused(&runs).is_empty(), "{runs:?}");
    assert!(
        runs.iter().any(|(_, sentence)| sentence
            .contains("the driver nvidia that runs on the node (version not known)")),
        "{runs:?}"
    );
    assert!(
        runs.iter()
            .any(|(_, sentence)| sentence.contains("somebody else installed")),
        "{runs:?}"
    );
    let lacks = told(&without, None, Some(&adopted(None)));
    assert!(
        refused(&lacks)
            .iter()
            .any(|sentence| sentence.contains("and no driver")),
        "{lacks:?}"
    );

    // Modules built on the node, for the running kernel. The headers may be installed already.
    let mut dkms = none.clone();
    for name in [
        "nvidia-open",
        "nvidia-kernel-open-dkms",
        "libcuda1",
        "nvidia-fabricmanager",
    ] {
        dkms[name] = json!("580.126.20-1");
    }
    let told_of = |packages: &Value| {
        told(
            &change(packages.clone()),
            None,
            Some(&adopted(Some("nvidia"))),
        )
    };
    let built = told_of(&dkms);
    assert!(refused(&built).is_empty(), "{built:?}");
    assert!(
        built
            .iter()
            .any(|(_, sentence)| sentence.contains("linux-headers-6.1.0-44-amd64")),
        "{built:?}"
    );
    // Built for another kernel than the running kernel, the module is known to be wrong.
    dkms["nvidia-kernel-open-dkms"] = Value::Null;
    dkms["linux-modules-nvidia-580-server-open-6.1.0-40-amd64"] = json!("580.126.20-1");
    let other = told_of(&dkms);
    assert!(
        refused(&other)
            .iter()
            .any(|sentence| sentence.contains("6.1.0-44-amd64")),
        "{other:?}"
    );
}

#[test]
fn the_boards_of_one_family_are_all_of_it() {
    let (hopper, over) = (locked(&stack(&json!({}), &json!({}))), image(&json!({})));
    // H100 NVL, H20, H100 PCIe.
    for device in ["2321", "2329", "2331"] {
        assert_eq!(
            told(&hopper, Some(&over), Some(&machine(device))),
            [],
            "{device}"
        );
    }
    // L40S: another family, supported by both flavours of modules.
    let ada = told(&hopper, Some(&over), Some(&machine("26b9")));
    let refused = refused(&ada);
    assert!(
        refused.len() == 1 && refused[0].contains("hopper GPUs, and the node has ada"),
        "{ada:?}"
    );
}
