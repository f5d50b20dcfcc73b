//! Orders for agents, and members of a cluster.

use super::{
    adopt, cluster, converge, golden, job, login, mac, other_powers, permit, power, set_firmware,
    user_key, wipe, write_image,
};
use crate::clusters::Member;
use crate::firmware::Wanted;
use crate::values::{Digest, Secret};
use crate::wire::bmc::{Power, RotateBmc};
use crate::wire::firmware::SetFirmware;
use crate::wire::job::{BootLive, JobSpec};
use crate::wire::members::ClusterMembers;

#[test]
fn orders() {
    check_live_systems();
    check_power();
    check_firmware();
    check_disks();
    check_cluster();
}

/// Boots of the live system, and inventories.
fn check_live_systems() {
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
        live_signature: None,
    };
    golden("job-boot-live", &job(JobSpec::BootLive(boot.clone())));
    let signed = BootLive {
        live_signature: Some("RWQ=".into()),
        ..boot
    };
    golden("job-boot-live-signed", &job(JobSpec::BootLive(signed)));
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
}

/// Power by Redfish, by IPMI, by a person, and a new password for a BMC.
fn check_power() {
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
    let [system, ipmi] = other_powers();
    golden("job-power-off-system", &off(system));
    golden("job-power-off-ipmi", &off(ipmi));
}

/// Firmware to install, and an order to read the firmware only.
fn check_firmware() {
    golden("job-firmware", &job(JobSpec::Firmware(set_firmware())));
    let look = SetFirmware {
        permit: None,
        login: None,
        wanted: Wanted::default(),
        ..set_firmware()
    };
    golden("job-firmware-look", &job(JobSpec::Firmware(look)));
}

/// Images, boots from disk, stacks, wipes, adoptions.
fn check_disks() {
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
}

/// The admission of a node, and the members of the cluster.
fn check_cluster() {
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
        spine: None,
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
