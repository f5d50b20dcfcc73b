//! Golden files: an example of each message in protocol 1. An older peer must be able to read the
//! output of this build, and vice versa. A change of a golden file requires a decision about the
//! protocol number in the same commit. `GOLDEN=write` writes the files again.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

mod jobs; // The report about jobs, and its reply

use std::fmt::Debug;
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::PROTOCOL;
use super::adopt::Adopt;
use super::bmc::{BmcTarget, IpmiTarget, Machine, Power, RotateBmc};
use super::calls::*;
use super::consoles::{ConsoleChunk, ConsoleReport};
use super::firmware::SetFirmware;
use super::job::*;
use super::login::*;
use super::members::ClusterMembers;
use super::node::*;
use super::result::*;
use super::scheduler::{ClusterLook, NodeOut, SchedulerReport, SchedulerWatch, WatchedCluster};
use crate::clusters::{ClusterSpec, Member, SlurmCluster};
use crate::facts::Firmware;
use crate::firmware::{BiosValue, BmcInventory, SeenFirmware, UpdateClass, Wanted, WantedFirmware};
use crate::gates::{Evidence, GateResult, Limit, Measured, Op, Stage, Verdict};
use crate::ids::{AgentId, ClaimId, JobId, NodeId, ObjectId, OperationId, PermitId};
use crate::stacks::{
    ConvergePlan, ConvergeReport, ItemOutcome, ItemReport, LockedPackage, PlannedFile, ServiceItem,
};
use crate::values::{Digest, Mac, Secret};

mod gained; // Fields added to orders after the first version of a kind
mod pairs; // The two ends of a pair gate

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
    })
}

/// One of several systems behind a BMC, and a BMC with IPMI.
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

#[test]
fn between_server_and_agent() {
    golden(
        "agent-hello",
        &Hello {
            protocol: PROTOCOL,
            version: "0.1.0".into(),
            instance: "i".into(),
        },
    );
    golden(
        "agent-welcome",
        &Welcome {
            protocol: PROTOCOL,
            agent: AgentId(id(6)),
            site: "lab".into(),
            epoch: 1,
            lease_s: 30,
            permit_public_key: "AA==".into(),
            user_ca: "ssh-ed25519 AAAA".into(),
        },
    );
    golden(
        "agent-lease",
        &LeaseJobs {
            epoch: 1,
            capacity: 8,
            wait_s: 30,
        },
    );
    let act = StartAct {
        epoch: 1,
        attempt: 2,
        act: "reset".into(),
        before: "on".into(),
    };
    golden("agent-act", &act);
    golden("agent-act-reply", &ActReply::Go);
    let earlier = ActRecord {
        attempt: 1,
        act: "reset".into(),
        before: "on".into(),
        started_at: at(),
        age_s: 7,
    };
    golden("agent-act-reply-already", &ActReply::Already(earlier));
    let log = vec![LogLine {
        at: at(),
        text: "line".into(),
    }];
    let waiting_for = Some("DHCP from the node".into());
    golden(
        "agent-renew",
        &RenewJob {
            epoch: 1,
            attempt: 2,
            progress: None,
            log,
            waiting_for,
        },
    );
    golden("agent-renewed", &Renewed { cancel: false });
    let redeem = RedeemPermit {
        epoch: 1,
        job: JobId(id(1)),
        attempt: 2,
        permit: permit(),
        challenge: Some(challenge()),
    };
    golden("agent-redeem", &redeem);
    golden(
        "agent-redeemed",
        &Redeemed {
            answer: Answer::Granted {
                signature: "AA==".into(),
            },
        },
    );
    let sighting = Sighting {
        at: at(),
        mac: mac(),
        what: Seen::Dhcp,
        uuid: None,
        serial: None,
        detail: String::new(),
    };
    golden(
        "agent-sightings",
        &Sightings {
            epoch: 1,
            sightings: vec![sighting],
        },
    );
    let chunk = ConsoleChunk {
        node: NodeId(id(2)),
        at: at(),
        text: "login: ".into(),
    };
    golden(
        "agent-consoles",
        &ConsoleReport {
            epoch: 1,
            chunks: vec![chunk],
        },
    );
    golden(
        "agent-site-poll",
        &SitePoll {
            epoch: 1,
            have: None,
            wait_s: 30,
        },
    );
    let out = NodeOut {
        name: "n1".into(),
        state: "drained".into(),
        reason: Some("muster: gate gpu.memory: r".into()),
    };
    let look = ClusterLook {
        cluster: ObjectId(id(9)),
        out: vec![out],
    };
    golden(
        "agent-scheduler",
        &SchedulerReport {
            epoch: 1,
            looks: vec![look],
        },
    );
    jobs::check();
    let watched = WatchedCluster {
        id: ObjectId(id(9)),
        cluster: cluster(),
    };
    golden(
        "agent-scheduler-watch",
        &SchedulerWatch {
            clusters: vec![watched],
            every_s: 60,
        },
    );
    golden("agent-site", &site());
}

fn site() -> SiteConfig {
    let reservation = Reservation {
        node: NodeId(id(2)),
        name: "n1".into(),
        mac: mac(),
        address: "10.77.0.11".parse().unwrap(),
    };
    let subnet = Subnet {
        name: "provisioning".into(),
        network: "10.77.0.0/24".parse().unwrap(),
        agent_address: "10.77.0.1".parse().unwrap(),
        gateway: None,
        dns: vec![],
        mode: DhcpMode::Authoritative,
        dynamic_range: Some((
            "10.77.0.200".parse().unwrap(),
            "10.77.0.220".parse().unwrap(),
        )),
        reservations: vec![reservation],
        relays: vec![],
    };
    let console = ConsoleTarget {
        node: NodeId(id(2)),
        address: "10.77.1.1".parse().unwrap(),
        port: 7001,
    };
    SiteConfig {
        revision: "r".into(),
        site: "lab".into(),
        subnets: vec![subnet],
        consoles: vec![console],
    }
}

#[test]
fn orders() {
    let boot = BootLive {
        power: power(),
        permit: permit(),
        macs: vec![mac()],
        address: "10.77.0.11".parse().unwrap(),
        nonce: "00".into(),
        kernel: Digest::of(b"kernel"),
        initrd: Digest::of(b"initrd"),
        user_key: user_key(),
        expect_uuid: None,
        expect_serial: Some("S".into()),
    };
    golden("job-boot-live", &job(JobSpec::BootLive(boot)));
    golden(
        "job-inventory",
        &job(JobSpec::Inventory {
            login: login(),
            cabled: Vec::new(),
        }),
    );
    golden(
        "job-inventory-cabled",
        &job(JobSpec::Inventory {
            login: login(),
            cabled: vec!["eno1".into()],
        }),
    );
    let manual = Power::Manual {
        person: "the lab".into(),
    };
    golden(
        "job-power-off",
        &job(JobSpec::PowerOff {
            power: manual,
            login: None,
            permit: permit(),
        }),
    );
    let off = |power| {
        job(JobSpec::PowerOff {
            power,
            login: None,
            permit: permit(),
        })
    };
    golden(
        "job-power-on",
        &job(JobSpec::PowerOn {
            power: power(),
            permit: permit(),
        }),
    );
    let rotate = RotateBmc {
        power: power(),
        next: Secret::new("another"),
        tried: true,
    };
    golden("job-rotate-bmc", &job(JobSpec::RotateBmc(rotate)));
    golden(
        "job-power-cycle",
        &job(JobSpec::PowerCycle {
            power: power(),
            permit: permit(),
        }),
    );
    golden("job-firmware", &job(JobSpec::Firmware(set_firmware())));
    let look = SetFirmware {
        permit: None,
        login: None,
        wanted: Wanted::default(),
        ..set_firmware()
    };
    golden("job-firmware-look", &job(JobSpec::Firmware(look)));
    let [system, ipmi] = other_powers();
    golden("job-power-off-system", &off(system));
    golden("job-power-off-ipmi", &off(ipmi));
    golden(
        "job-write-image",
        &job(JobSpec::WriteImage {
            login: login(),
            plan: write_image(),
        }),
    );
    let boot_disk = JobSpec::BootDisk {
        power: power(),
        login: login(),
        live: None,
        permit: permit(),
    };
    golden("job-boot-disk", &job(boot_disk));
    golden(
        "job-converge",
        &job(JobSpec::Converge {
            login: login(),
            plan: converge(),
        }),
    );
    golden(
        "job-wipe",
        &job(JobSpec::Wipe {
            login: login(),
            plan: wipe(),
        }),
    );
    golden("job-adopt", &job(JobSpec::Adopt(adopt())));
    let cluster = cluster();
    let node = Member {
        name: "n1".into(),
        address: "10.77.0.11".parse().unwrap(),
        sockets: 1,
        cores_per_socket: 1,
        threads_per_core: 1,
        real_memory: 1500,
        gpus: Some(("h100".into(), 8)),
        features: vec!["stack_0".into()],
        switch: Some("r1".into()),
    };
    let admit = JobSpec::Admit {
        cluster,
        revision: 7,
        name: "n1".into(),
        login: login(),
        lifts: None,
    };
    golden("job-admit", &job(admit));
    golden(
        "cluster-members",
        &ClusterMembers {
            revision: 7,
            nodes: vec![node],
        },
    );
}

#[test]
fn outcomes() {
    let outcome = |outcome| ReportOutcome {
        epoch: 1,
        attempt: 2,
        outcome,
    };
    let failure = Failure {
        code: FailureCode::Timeout,
        message: "no answer in 15 s".into(),
        retryable: true,
    };
    golden("outcome-failed", &outcome(Outcome::Failed { failure }));
    let results = vec![gate_result()];
    let gated = JobResult::Gated {
        results,
        fingerprint: Digest::of(b"hardware"),
    };
    golden(
        "outcome-gated",
        &outcome(Outcome::Succeeded { result: gated }),
    );
    let item = ItemReport {
        item: "package munge".into(),
        outcome: ItemOutcome::Changed,
        before: None,
        after: Some("0.5.15-2".into()),
    };
    let report = ConvergeReport {
        lock: Digest::of(b"lock"),
        items: vec![item],
        reboot_for: vec![],
    };
    let (host_key, boot_id) = ("ssh-ed25519 AAAA".to_owned(), "b".to_owned());
    let address = "10.77.0.11".parse().unwrap();
    let live = |inventory| JobResult::Live {
        host_key: host_key.clone(),
        boot_id: boot_id.clone(),
        address,
        bmc_certificate: None,
        inventory,
    };
    golden(
        "outcome-live",
        &outcome(Outcome::Succeeded { result: live(None) }),
    );
    let seen = Some(Box::new(inventory()));
    golden(
        "outcome-live-inventory",
        &outcome(Outcome::Succeeded { result: live(seen) }),
    );
    let changed = vec!["bios SriovGlobalEnable is Enabled, it was Disabled".into()];
    let set = JobResult::Firmware {
        inventory: Box::new(inventory()),
        changed,
    };
    golden(
        "outcome-firmware",
        &outcome(Outcome::Succeeded { result: set }),
    );
    golden(
        "outcome-converged",
        &outcome(Outcome::Succeeded {
            result: JobResult::Converged(report),
        }),
    );
}

#[test]
fn between_agent_and_node() {
    let trust = SiteTrust {
        protocol: PROTOCOL,
        permit_public_key: "AA==".into(),
        user_ca: "ssh-ed25519 AAAA".into(),
        agent_url: "http://10.77.0.1:8090/boot/v1".into(),
    };
    golden("node-site-trust", &trust);
    let host_key = "ssh-ed25519 AAAA".into();
    golden(
        "node-live-report",
        &LiveReport {
            protocol: PROTOCOL,
            nonce: "00".into(),
            mac: mac(),
            host_key,
        },
    );
    let plan = |work| Plan {
        protocol: PROTOCOL,
        job: JobId(id(1)),
        attempt: 2,
        node: NodeId(id(2)),
        epoch: 3,
        timeout_s: 3600,
        work,
    };
    golden(
        "node-plan-write-image",
        &plan(Work::WriteImage(write_image())),
    );
    golden("node-plan-converge", &plan(Work::Converge(converge())));
    golden("node-plan-wipe", &plan(Work::Wipe(wipe())));
    golden(
        "node-run-reply",
        &RunReply::Already {
            job: JobId(id(1)),
            attempt: 1,
        },
    );
    golden("node-line-challenge", &Line::Challenge(challenge()));
    golden(
        "node-answer-refused",
        &Answer::Refused {
            reason: "it expired".into(),
        },
    );
    let wiped = WipedDisk {
        serial: "S".into(),
        method: WipeMethod::NvmeFormat,
        bytes: 1,
        verified_blocks: 256,
    };
    let result = Box::new(WorkResult::Wiped { disks: vec![wiped] });
    golden("node-line-result", &Line::Result { at: at(), result });
    let progress = Progress {
        at: at(),
        message: "write".into(),
        done: Some(1),
        total: Some(2),
        unit: Some("bytes".into()),
    };
    golden("node-line-progress", &Line::Progress(progress));
}
