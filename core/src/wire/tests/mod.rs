//! Golden files: an example of each message in protocol 1. An older peer must be able to read the
//! output of this build, and vice versa. A change of a golden file requires a decision about the
//! protocol number in the same commit. `GOLDEN=write` writes the files again.

mod agents; // Between server and agent
mod gained; // Fields added to orders after the first version of a kind
mod jobs; // The report about jobs, and the reply
mod nodes; // Between agent and node
mod orders; // Orders for agents
mod outcomes; // Outcomes of orders
mod pairs; // The two ends of a pair gate

use std::fmt::Debug;
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::PROTOCOL;
use super::adopt::Adopt;
use super::bmc::{BmcTarget, IpmiTarget, Machine, Power};
use super::firmware::SetFirmware;
use super::job::{ActRecord, Job, JobSpec};
use super::login::{Login, UserKey};
use super::node::{Challenge, Marker, StaticNetwork, WipePlan, WriteImage};
use crate::clusters::{ClusterSpec, SlurmCluster};
use crate::facts::Firmware;
use crate::firmware::{BiosValue, BmcInventory, SeenFirmware, UpdateClass, Wanted, WantedFirmware};
use crate::gates::{Evidence, GateResult, Limit, Measured, Op, Stage, Verdict};
use crate::ids::{ClaimId, JobId, NodeId, OperationId, PermitId};
use crate::stacks::{ConvergePlan, LockedPackage, PlannedFile, ServiceItem};
use crate::values::{Digest, Mac, Secret};

/// Compares a message with its golden file, and reads the file back.
fn golden<T: Serialize + DeserializeOwned + Debug>(name: &str, message: &T) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(format!("{name}.json"));
    let written = serde_json::to_string_pretty(message).unwrap() + "\n";
    if std::env::var_os("GOLDEN").is_some_and(|action| action == "write") {
        std::fs::write(&path, &written).unwrap();
    }
    let golden = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(written, golden, "{name} is written differently");
    let read: T = serde_json::from_str(&golden)
        .unwrap_or_else(|error| panic!("{name} cannot be read: {error}"));
    assert_eq!(
        serde_json::to_string_pretty(&read).unwrap() + "\n",
        golden,
        "{name} does not survive reading"
    );
}

fn id(last: u128) -> Uuid {
    Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0000 + last)
}

fn at() -> Timestamp {
    Timestamp::from_second(1_770_000_000).unwrap()
}

fn cluster() -> ClusterSpec {
    ClusterSpec::Slurm(SlurmCluster {
        site: "lab".into(),
        conf: "/etc/slurm/slurm.conf".into(),
        include_dir: "/etc/slurm".into(),
        partition: "gpu".into(),
        address: "10.77.0.1".into(),
    })
}

fn user_key() -> UserKey {
    UserKey {
        private_key: Secret::new("PEM"),
        certificate: "ssh-ed25519-cert-v01@openssh.com AAAA".into(),
    }
}

fn login() -> Login {
    Login {
        address: "10.77.0.11".parse().unwrap(),
        port: 22,
        host_key: "ssh-ed25519 AAAA".into(),
        user_key: user_key(),
    }
}

fn power() -> Power {
    Power::Redfish(BmcTarget {
        address: "10.77.1.11".parse().unwrap(),
        port: 443,
        user: "admin".into(),
        password: Secret::new("secret"),
        certificate: Some(Digest::of(b"certificate")),
        system: None,
        also: None,
        machine: None,
        bmc_networks: Vec::new(),
    })
}

/// A system of several behind a BMC, and a BMC with IPMI.
fn other_powers() -> [Power; 2] {
    let Power::Redfish(target) = power() else {
        unreachable!()
    };
    let ipmi = IpmiTarget {
        address: "10.77.1.12".parse().unwrap(),
        port: 623,
        user: "admin".into(),
        password: Secret::new("secret"),
        firmware: Firmware::Uefi,
        also: None,
        machine: None,
        bmc_networks: Vec::new(),
    };
    let machine = Some(Machine {
        uuid: None,
        serial: Some("CN7475".into()),
    });
    [
        Power::Redfish(BmcTarget {
            system: Some("blade-7".into()),
            machine,
            ..target
        }),
        Power::Ipmi(ipmi),
    ]
}

fn job(spec: JobSpec) -> Job {
    Job {
        id: JobId(id(1)),
        attempt: 2,
        node: NodeId(id(2)),
        node_name: "n1".into(),
        origin: None,
        epoch: 3,
        timeout_s: 1800,
        acts: vec![ActRecord {
            attempt: 1,
            act: "reset".into(),
            before: "on".into(),
            started_at: at(),
            age_s: 7,
        }],
        revoked_keys: None,
        spec,
    }
}

fn set_firmware() -> SetFirmware {
    let bmc = WantedFirmware {
        component: "bmc".into(),
        version: "1.74".into(),
        image: Some(Digest::of(b"image")),
        class: UpdateClass::None,
    };
    let bios = [(
        "SriovGlobalEnable".to_owned(),
        BiosValue::Text("Enabled".into()),
    )]
    .into();
    SetFirmware {
        power: power(),
        permit: Some(permit()),
        login: Some(login()),
        wanted: Wanted {
            firmware: vec![bmc],
            bios,
        },
        images: "http://10.77.0.1:8090/boot/v1/blob/sha256".into(),
    }
}

fn inventory() -> BmcInventory {
    let seen = |id: &str| SeenFirmware {
        id: id.into(),
        name: "Firmware".into(),
        version: "1.74".into(),
    };
    BmcInventory {
        firmware: vec![seen("bmc")],
        bios: [
            ("Turbo".to_owned(), BiosValue::Flag(true)),
            ("NumaNodes".to_owned(), BiosValue::Number(2)),
        ]
        .into(),
        unread: vec!["it lists no firmware inventory".into()],
    }
}

fn mac() -> Mac {
    Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56])
}

fn permit() -> PermitId {
    PermitId(id(3))
}

fn write_image() -> WriteImage {
    WriteImage {
        permit: permit(),
        operation: OperationId(id(4)),
        claim: ClaimId(id(5)),
        disk_serial: "ROOT1".into(),
        url: "http://10.77.0.1:8090/boot/v1/blob/sha256/00".into(),
        digest: Digest::of(b"image"),
        size: 1000,
        raw_digest: Digest::of(b"raw"),
        raw_size: 4000,
        esp_partition: 2,
        root_partition: 3,
        hostname: "n1".into(),
        network: StaticNetwork {
            mac: mac(),
            address: "10.77.0.11/24".into(),
            gateway: Some("10.77.0.1".into()),
            dns: vec![],
            hosts: vec![("10.77.0.11".into(), "n1".into())],
            files: vec![],
        },
        user_ca: "ssh-ed25519 AAAA".into(),
        principal: "muster:n1:3".into(),
        signed_image: None,
    }
}

fn converge() -> ConvergePlan {
    ConvergePlan {
        lock: Digest::of(b"lock"),
        repository: "http://10.77.0.1:8090/boot/v1/bundle/00".into(),
        packages: vec![LockedPackage {
            name: "munge".into(),
            version: "0.5.15-2".into(),
            arch: "amd64".into(),
            size: 10,
            sha256: Digest::of(b"deb"),
            filename: "munge.deb".into(),
        }],
        absent: vec!["unattended-upgrades".into()],
        files: vec![PlannedFile {
            path: "/etc/munge/munge.key".into(),
            mode: "0400".into(),
            owner: "munge".into(),
            group: "munge".into(),
            content: "AA==".into(),
            secret: true,
        }],
        sysctl: [("vm.swappiness".into(), "10".into())].into(),
        modules_load: vec![],
        modules_blacklist: vec!["nouveau".into()],
        kernel_args: vec!["transparent_hugepage=madvise".into()],
        limits: vec![],
        services: vec![ServiceItem {
            name: "munge".into(),
            enabled: true,
            running: true,
            restart_on: vec![],
        }],
        cdi: false,
        principal: "muster:n1:3".into(),
        user_ca: "ssh-ed25519 AAAA".into(),
        marker: Marker {
            protocol: PROTOCOL,
            node: NodeId(id(2)),
            claim: ClaimId(id(5)),
            epoch: 3,
            image: Digest::of(b"image"),
        },
        dry_run: false,
    }
}

fn wipe() -> WipePlan {
    WipePlan {
        permit: permit(),
        operation: OperationId(id(4)),
        claim: None,
        disk_serials: vec!["DATA1".into(), "ROOT1".into()],
    }
}

fn adopt() -> Adopt {
    Adopt {
        address: "10.77.0.11".parse().unwrap(),
        port: 22,
        host_key: Some("SHA256:AAAA".into()),
        user: "root".into(),
        secret: Secret::new("once"),
        trust: "cert-authority,principals=\"muster:n1:1\" ssh-ed25519 AAAA muster-adopted".into(),
        marker: converge().marker,
        user_key: user_key(),
    }
}

fn challenge() -> Challenge {
    Challenge {
        protocol: PROTOCOL,
        permit: permit(),
        operation: OperationId(id(4)),
        job: JobId(id(1)),
        attempt: 2,
        node: NodeId(id(2)),
        epoch: 3,
        boot_id: "b".into(),
        chassis_serial: None,
        disk_serials: vec!["ROOT1".into()],
        nonce: "00".into(),
    }
}

fn gate_result() -> GateResult {
    GateResult {
        gate: "disk.smart".into(),
        title: "Disks report no trouble".into(),
        stage: Stage::Node,
        required: true,
        shadow: false,
        verdict: Verdict::Fail,
        reason: "critical_warning is 4, must be 0".into(),
        measured: vec![Measured {
            metric: "smart.critical_warning".into(),
            entity: "ROOT1".into(),
            value: Limit::Number(4.0),
            op: Op::Equal,
            limit: Limit::Number(0.0),
            unit: "flags".into(),
            verdict: Verdict::Fail,
        }],
        started_at: at(),
        duration_ms: 12,
        former: vec![],
        finding: String::new(),
        waived: None,
        evidence: Evidence {
            argv: vec!["smartctl".into()],
            exit: Some(0),
            ..Evidence::default()
        },
    }
}
