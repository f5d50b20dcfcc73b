//! Packages of Debian's own archive, and prebuilt modules of a site and of Ubuntu.

use serde_json::{Map, Value, json};

use super::{Subject, image, locked, machine, refusal, refused};
use crate::facts::Facts;
use crate::stacks::StackSpec;
use crate::stacks::diff::{Class, package_class};

const BOOKWORM: &str = "6.1.0-56-amd64";
const TRIXIE: &str = "6.12.118+deb13-amd64";
const OLDER: &str = "6.12.117+deb13-amd64";
const NOBLE: &str = "6.8.0-60-generic";
const V535: &str = "535.309.01-0+deb12u1";
const V550: &str = "550.163.01-2";
const TESLA: &str = "535.274.02-1~deb13u1";

/// A stack, and the rules refusing the locked stack.
struct Row {
    name: &'static str,
    kernel: &'static str,
    gpu: &'static str,
    /// A version of `null` removes a package.
    packages: Vec<Value>,
    rules: &'static [&'static str],
    /// Words in a sentence of every rule.
    says: &'static [&'static str],
}

impl Row {
    fn new(
        name: &'static str,
        kernel: &'static str,
        gpu: &'static str,
        packages: Vec<Value>,
    ) -> Self {
        Self {
            name,
            kernel,
            gpu,
            packages,
            rules: &[],
            says: &[],
        }
    }

    fn refused_by(self, rules: &'static [&'static str], says: &'static [&'static str]) -> Self {
        Self {
            rules,
            says,
            ..self
        }
    }

    fn stack(&self) -> StackSpec {
        let mut packages = Map::new();
        for kind in ["linux-image", "linux-headers"] {
            packages.insert(format!("{kind}-{}", self.kernel), json!("6.1-1"));
        }
        for (name, version) in self.packages.iter().filter_map(Value::as_object).flatten() {
            packages.insert(name.clone(), version.clone());
        }
        packages.retain(|_, version| !version.is_null());
        let stack = json!({
            "version": "1", "image": "debian", "selector": { "gpu": self.gpu }, "packages": packages,
        });
        let stack: StackSpec = serde_json::from_value(stack).expect("a stack");
        locked(&stack)
    }
}

fn with_version(version: &str, names: &[&str]) -> Value {
    let packages = names
        .iter()
        .map(|name| ((*name).to_owned(), json!(version)));
    Value::Object(packages.collect())
}

/// The headless user space of Debian's driver.
fn user_space(version: &str) -> Value {
    let names = [
        "firmware-nvidia-gsp",
        "libcuda1",
        "libnvidia-cfg1",
        "libnvidia-ml1",
        "libnvidia-pkcs11-openssl3",
        "libnvidia-ptxjitcompiler1",
        "nvidia-alternative",
        "nvidia-kernel-support",
        "nvidia-legacy-check",
        "nvidia-smi",
    ];
    with_version(version, &names)
}

/// The user space of the second driver branch in Debian 13.
fn tesla() -> Value {
    let names = [
        "firmware-nvidia-tesla-535-gsp",
        "libnvidia-tesla-535-cfg1",
        "libnvidia-tesla-535-cuda1",
        "libnvidia-tesla-535-ml1",
        "libnvidia-tesla-535-pkcs11-openssl3",
        "libnvidia-tesla-535-ptxjitcompiler1",
        "nvidia-tesla-535-alternative",
        "nvidia-tesla-535-kernel-support",
        "nvidia-tesla-535-smi",
    ];
    with_version(TESLA, &names)
}

fn tesla_modules() -> Value {
    json!({ "nvidia-tesla-535-kernel-dkms": TESLA })
}

/// The packages shared by all branches in Debian 13, with other versions.
fn shared() -> Value {
    json!({
        "nvidia-modprobe": "570.133.07-1", "nvidia-persistenced": "550.163.01-1", "nvidia-legacy-check": V550,
        "nvidia-installer-cleanup": "20240109+1", "nvidia-kernel-common": "20240109+1", "nvidia-support": "20240109+1",
        "glx-alternative-mesa": "1.2.2", "glx-alternative-nvidia": "1.2.2", "glx-diversions": "1.2.2", "update-glx": "1.2.2",
        "dkms": "3.2.2-1~deb13u1",
    })
}

/// Debian 13's driver, without modules.
fn trixie() -> Vec<Value> {
    vec![user_space(V550), shared()]
}

fn proprietary() -> Value {
    json!({ "nvidia-kernel-dkms": V550 })
}

fn prebuilt() -> Value {
    json!({ "linux-modules-nvidia-550-6.12.118+deb13-amd64": V550 })
}

fn toolkit() -> Value {
    json!({ "nvidia-cuda-toolkit": "12.4.131~12.4.1-2" })
}

/// Ubuntu's user space of a branch.
fn noble(version: &str, branch: &str) -> Value {
    let names = ["libnvidia-compute", "nvidia-kernel-common", "nvidia-utils"]
        .map(|part| format!("{part}-{branch}"));
    with_version(version, &names.each_ref().map(String::as_str))
}

/// Debian 12's driver of its security suite, beside a nvidia-persistenced of the release.
fn bookworm() -> Vec<Value> {
    let shared = json!({
        "nvidia-kernel-dkms": V535, "nvidia-modprobe": V535, "nvidia-persistenced": "535.171.04-1~deb12u1",
        "nvidia-kernel-common": "20220217+3~deb12u1", "nvidia-support": "20220217+3~deb12u1",
    });
    vec![user_space(V535), shared]
}

fn with(mut packages: Vec<Value>, more: Vec<Value>) -> Vec<Value> {
    packages.extend(more);
    packages
}

fn right_rows() -> Vec<Row> {
    let open = json!({ "nvidia-open-kernel-dkms": V550, "nvidia-open-kernel-support": V550 });
    let open_prebuilt =
        json!({ "linux-modules-nvidia-550-open-6.12.118+deb13-amd64": "550.163.01+6.12.118-1" });
    let canonical = |package: &str| with_version("6.8.0-60.63+1", &[package]);
    let hopper = |name, kernel, packages| Row::new(name, kernel, "hopper", packages);
    vec![
        hopper(
            "Debian 13",
            TRIXIE,
            with(trixie(), vec![proprietary(), toolkit()]),
        ),
        hopper("Debian 13, open", TRIXIE, with(trixie(), vec![open])),
        hopper(
            "Debian 13, the other branch",
            TRIXIE,
            vec![tesla(), tesla_modules(), shared()],
        ),
        hopper(
            "Debian 12",
            BOOKWORM,
            with(
                bookworm(),
                vec![json!({ "nvidia-cuda-toolkit": "11.8.89~11.8.0-5~deb12u1" })],
            ),
        ),
        hopper("prebuilt", TRIXIE, with(trixie(), vec![prebuilt()])),
        hopper(
            "prebuilt, open",
            TRIXIE,
            with(trixie(), vec![open_prebuilt]),
        ),
        hopper(
            "Ubuntu, prebuilt",
            NOBLE,
            vec![
                noble("550.127.05-0ubuntu0.24.04.1", "550-server"),
                canonical("linux-modules-nvidia-550-server-6.8.0-60-generic"),
            ],
        ),
        Row::new(
            "Ubuntu, prebuilt, open",
            NOBLE,
            "blackwell",
            vec![
                noble("570.133.20-0ubuntu0.24.04.1", "570-server"),
                canonical("linux-modules-nvidia-570-server-open-6.8.0-60-generic"),
            ],
        ),
        Row::new(
            "Debian 13, ROCm of several releases",
            TRIXIE,
            "cdna3",
            vec![
                json!({ "rocminfo": "6.1.2-2", "rocm-smi": "6.1.2-1", "librccl1": "5.4.3", "libamdhip64-5": "5.7.1" }),
            ],
        ),
    ]
}

fn wrong_branches() -> Vec<Row> {
    let old_firmware = json!({ "firmware-nvidia-gsp": V535 });
    let old_modprobe = json!({ "nvidia-modprobe": V535 });
    let hopper = |name, packages| Row::new(name, TRIXIE, "hopper", packages);
    vec![
        hopper(
            "modules of 550, user space of 535",
            vec![tesla(), shared(), proprietary()],
        )
        .refused_by(&["R8"], &["nvidia-kernel-dkms 550.163.01-2", TESLA]),
        hopper(
            "prebuilt modules of 550, user space of 535",
            vec![user_space(V535), shared(), prebuilt()],
        )
        .refused_by(
            &["R8"],
            &[
                "linux-modules-nvidia-550-6.12.118+deb13-amd64 550.163.01-2",
                V535,
            ],
        ),
        hopper(
            "firmware of another driver",
            with(trixie(), vec![proprietary(), old_firmware]),
        )
        .refused_by(&["R8"], &["firmware-nvidia-gsp 535.309.01", V550]),
        hopper(
            "nvidia-modprobe of an older driver",
            with(trixie(), vec![proprietary(), old_modprobe]),
        )
        .refused_by(&["R4"], &["nvidia-modprobe 535.309.01", V550]),
        hopper(
            "toolkit of a newer driver",
            vec![tesla(), tesla_modules(), shared(), toolkit()],
        )
        .refused_by(&["R2"], &["nvidia-cuda-toolkit 12.4.131~12.4.1-2", TESLA]),
        Row::new(
            "a branch without open modules, on Blackwell",
            TRIXIE,
            "blackwell",
            vec![tesla(), tesla_modules(), shared()],
        )
        .refused_by(&["R6"], &["nvidia-tesla-535-kernel-dkms", "blackwell"]),
    ]
}

fn modules_of_both_ways() -> Vec<Row> {
    let hopper = |name, packages| Row::new(name, TRIXIE, "hopper", packages);
    vec![
        hopper(
            "prebuilt modules beside the source of the open modules",
            with(
                trixie(),
                vec![prebuilt(), json!({ "nvidia-open-kernel-dkms": V550 })],
            ),
        )
        .refused_by(
            &["R8"],
            &[
                "linux-modules-nvidia-550-6.12.118+deb13-amd64 550.163.01-2",
                "leave out nvidia-open-kernel-dkms 550.163.01-2",
            ],
        ),
        hopper(
            "prebuilt modules beside their own source",
            with(trixie(), vec![prebuilt(), proprietary()]),
        )
        .refused_by(&["R8"], &["leave out nvidia-kernel-dkms 550.163.01-2"]),
        hopper(
            "prebuilt modules beside the source of another branch",
            vec![
                tesla(),
                shared(),
                tesla_modules(),
                json!({ "linux-modules-nvidia-535-6.12.118+deb13-amd64": TESLA }),
            ],
        )
        .refused_by(
            &["R8"],
            &["leave out nvidia-tesla-535-kernel-dkms 535.274.02-1~deb13u1"],
        ),
    ]
}

fn wrong_kernels() -> Vec<Row> {
    let headers = format!("linux-headers-{TRIXIE}");
    let lacks_headers = json!({ headers: null });
    let canonical = |package: &str| with_version("6.8.0-60.63+1", &[package]);
    let driver = || noble("550.127.05-0ubuntu0.24.04.1", "550-server");
    let hopper = |name, kernel, packages| Row::new(name, kernel, "hopper", packages);
    vec![
        hopper(
            "no headers",
            TRIXIE,
            vec![tesla(), tesla_modules(), shared(), lacks_headers],
        )
        .refused_by(
            &["R7"],
            &["nvidia-tesla-535-kernel-dkms", "linux-headers-6.12.118"],
        ),
        hopper(
            "prebuilt for another kernel",
            OLDER,
            with(trixie(), vec![prebuilt()]),
        )
        .refused_by(
            &["R7"],
            &["linux-modules-nvidia-550-6.12.118+deb13-amd64", OLDER],
        ),
        hopper(
            "Ubuntu, prebuilt for another kernel",
            NOBLE,
            vec![
                driver(),
                canonical("linux-modules-nvidia-550-server-open-6.8.0-59-generic"),
            ],
        )
        .refused_by(&["R7"], &["open-6.8.0-59-generic", NOBLE]),
        hopper(
            "Ubuntu, prebuilt of another branch",
            NOBLE,
            vec![
                driver(),
                canonical("linux-modules-nvidia-535-server-6.8.0-60-generic"),
            ],
        )
        .refused_by(&["R8"], &["linux-modules-nvidia-535-server", "550.127.05"]),
    ]
}

#[test]
fn debians_own_packages_are_read_like_the_vendors() {
    let wrong = [wrong_branches(), modules_of_both_ways(), wrong_kernels()];
    for row in right_rows().into_iter().chain(wrong.into_iter().flatten()) {
        let found = refused(&row.stack());
        let mut rules: Vec<&str> = found.iter().map(|(rule, _)| rule.as_str()).collect();
        rules.sort_unstable();
        rules.dedup();
        assert_eq!(rules, row.rules, "{}: {found:#?}", row.name);
        for rule in row.rules {
            let fits = found.iter().any(|(by, sentence)| {
                by == rule && row.says.iter().all(|word| sentence.contains(word))
            });
            assert!(fits, "{} {rule} {:?}: {found:#?}", row.name, row.says);
        }
    }
}

#[test]
fn parts_of_debians_driver_cost_a_reload_and_modules_a_reboot() {
    for (name, class) in [
        ("nvidia-tesla-535-kernel-dkms", Class::Reboot),
        (
            "linux-modules-nvidia-550-6.12.118+deb13-amd64",
            Class::Reboot,
        ),
        ("firmware-nvidia-gsp", Class::DriverReload),
        ("firmware-nvidia-tesla-535-gsp", Class::DriverReload),
        ("libcudadebugger1", Class::DriverReload),
        ("libnvidia-tesla-535-cuda1", Class::DriverReload),
        ("nvidia-alternative", Class::DriverReload),
        ("nvidia-smi", Class::DriverReload),
        ("nvidia-tesla-535-smi", Class::DriverReload),
        ("firmware-nvidia-graphics", Class::None),
        ("glx-diversions", Class::None),
        ("nvidia-cuda-toolkit", Class::None),
        ("nvidia-modprobe", Class::None),
    ] {
        assert_eq!(package_class(name), class, "{name}");
    }
}

/// The shipped stacks of Debian's archive, with the release of the image.
const SHIPPED: [(&str, &str); 4] = [
    (
        "12",
        include_str!("../../../../../stacks/cuda-debian-12.toml"),
    ),
    (
        "13",
        include_str!("../../../../../stacks/cuda-debian-13.toml"),
    ),
    (
        "13",
        include_str!("../../../../../stacks/cuda-535-debian-13.toml"),
    ),
    (
        "13",
        include_str!("../../../../../stacks/rocm-debian-13.toml"),
    ),
];

#[test]
fn shipped_debian_stacks_fit_nodes_with_and_without_a_gpu() {
    for (release, text) in SHIPPED {
        let stack: StackSpec = toml::from_str(text).expect("a shipped stack");
        let name = format!("debian-{release}");
        assert_eq!(stack.image, name);
        let image = image(&json!({ "name": name, "os_version": release }));
        let judge = |facts: &Facts| {
            refusal(Subject {
                stack: &stack,
                image: Some(&image),
                facts: Some(facts),
            })
        };
        assert_eq!(judge(&Facts::default()), None, "{text}");
        assert_eq!(judge(&machine("2330")), None, "{text}");
        // Debian's branches know no Blackwell.
        let is_of_a_family = text.contains("gpu = \"hopper\"");
        assert_eq!(judge(&machine("2901")).is_some(), is_of_a_family, "{text}");
    }
}
