//! ipmi_sim of OpenIPMI. Supports only cipher suite 3 and does not list its suites. The boot flags
//! lose the EFI, persistent and valid bits. Entries logged before the clock is set have no time.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::bmc::{Bmc, BmcError, BootOnce, OverrideEnabled, PowerState, Reset};
use muster_core::values::Secret;
use muster_core::wire::bmc::IpmiTarget;
use muster_core::wire::node::FailureCode;
use tokio::net::UdpSocket;

use super::{Simulator, beside, bmcs, free_udp_port, have, ipmi_target, job, patience};

const PROGRAM: &str = "/usr/bin/ipmi_sim";
/// Memory #0x10: Uncorrectable ECC, and two more entries.
const LOG: &str = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nsel_enable 0x20 1000 0x0a\nmc_enable 0x20\n\
    sel_add 0x20 2 0 0 0 0x60 0x20 0 4 0x08 0x51 0x6f 0x03 0xff 0xff\nsel_add 0x20 2 0 0 0 0 0x20 0 4 0x01 0x30 0x01 0x59 0x50 0x50\n\
    sel_add 0x20 2 0 0 0 0 0x20 0 4 0x0c 0x10 0x6f 0x01 0xff 0xff\n";

/// Full sensor records (IPMI 2.0, section 43.1): `Inlet Temp` in degrees with factor one, and `Fan
/// 1` in hundreds of turns.
const RECORDS: [&str; 2] = [
    "0x0 0x0 0x51 0x1 0x35 0x20 0x0 0x1 0x23 0x1 0x7f 0x68 0x1 0x1 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x0 0x0 0x1 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0xff 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0xca 0x49 0x6e 0x6c 0x65 0x74 0x20 0x54 0x65 0x6d 0x70",
    "0x0 0x0 0x51 0x1 0x30 0x20 0x0 0x2 0x1d 0x1 0x7f 0x68 0x4 0x1 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x12 0x0 0x0 0x64 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0xff 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0xc5 0x46 0x61 0x6e 0x20 0x31",
];

/// A simulator and its machine.
struct Sim {
    folder: tempfile::TempDir,
    port: u16,
    simulator: Simulator,
}

impl Sim {
    async fn start() -> Option<Self> {
        Self::with("").await
    }

    /// Starts a simulator with two sensors reading 24 and 5.
    async fn with_sensors() -> Option<Self> {
        let mut sensors = String::new();
        for (number, (record, value)) in (1..).zip(RECORDS.into_iter().zip(["0x18", "0x05"])) {
            let none = ["0".repeat(15).as_str(); 4].join(" ");
            let kind = if number == 1 { "0x01" } else { "0x04" };
            sensors += &format!(
                "sensor_add 0x20 0 {number} {kind} 0x01\nmain_sdr_add 0x20 {record}\nsensor_set_value 0x20 0 {number} {value} 0\n"
            );
            sensors += &format!(
                "sensor_set_event_support 0x20 0 {number} enable scanning per-state {none}\n"
            );
        }
        Self::with(&sensors).await
    }

    async fn with(sensors: &str) -> Option<Self> {
        if !have(&[Path::new(PROGRAM), Path::new("/usr/bin/ipmitool")]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display();
        let port = free_udp_port();
        std::fs::copy(beside("chassis"), folder.path().join("chassis")).unwrap();
        let emulated = format!("{LOG}{sensors}");
        for (file, text) in [
            ("power", "0"),
            ("boot", "none"),
            ("log", ""),
            ("emu", &emulated),
        ] {
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let lan = format!(
            "name \"sim\"\nset_working_mc 0x20\nstartlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\n\
             allowed_auths_callback none md2 md5 straight\nallowed_auths_user none md2 md5 straight\n\
             allowed_auths_operator none md2 md5 straight\nallowed_auths_admin none md2 md5 straight\n\
             guid a123456789abcdefa123456789abcdef\nendlan\nchassis_control \"{here}/chassis\"\n\
             user 1 true \"\" \"\" user 10 none md2 md5 straight\nuser 2 true \"admin\" \"secret\" admin 10 none md2 md5 straight\n"
        );
        std::fs::write(folder.path().join("lan"), lan).unwrap();
        let mut command = Command::new(PROGRAM);
        command
            .arg("-n")
            .args(["-c", "lan", "-f", "emu", "-s", "."])
            .current_dir(folder.path());
        let mut simulator = Simulator::start(&mut command);
        simulator.wait_for_udp(port).await;
        Some(Self {
            folder,
            port,
            simulator,
        })
    }

    fn bmc(&self) -> Bmc {
        bmcs().open(&ipmi_target(self.port), job()).unwrap()
    }

    /// Returns the commands received by the machine.
    fn told(&self) -> Vec<String> {
        told(self.folder.path())
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.simulator.0.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }
}

fn told(folder: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    log.lines()
        .filter(|line| line.starts_with("set"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn powers_a_machine_and_sets_its_boot() {
    let Some(sim) = Sim::start().await else {
        return;
    };
    let bmc = sim.bmc();
    assert_eq!(bmc.observe().await.unwrap().power, PowerState::Off);
    let set = bmc.set_boot_once(BootOnce::Pxe).await.unwrap();
    assert!(
        set.network() && set.enabled == OverrideEnabled::Unknown,
        "the valid bit is lost, and that shows: {set}"
    );
    bmc.reset(Reset::On).await.unwrap();
    bmc.wait_power(PowerState::On, &patience()).await.unwrap();
    assert!(bmc.set_boot_once(BootOnce::None).await.unwrap().local());
    bmc.reset(Reset::ForceRestart).await.unwrap();
    assert!(
        bmc.wait_restart(std::time::Duration::from_secs(15), &patience())
            .await
            .unwrap(),
        "off was seen"
    );
    bmc.reset(Reset::GracefulShutdown).await.unwrap();
    bmc.reset(Reset::ForceOff).await.unwrap();
    bmc.wait_power(PowerState::Off, &patience()).await.unwrap();
    let told = sim.told();
    let power: Vec<&str> = told
        .iter()
        .map(String::as_str)
        .filter(|line| !line.contains("boot"))
        .collect();
    assert_eq!(power[0], "set power 1");
    assert!(power.contains(&"set shutdown 1"), "{power:?}");
    assert!(
        told.contains(&"set boot pxe".to_owned()) && told.contains(&"set boot none".to_owned()),
        "{told:?}"
    );
}

#[tokio::test]
async fn its_event_log_is_read_and_a_repository_without_sensors_is_left_alone() {
    let Some(sim) = Sim::start().await else {
        return;
    };
    let log = sim.bmc().event_log(2).await.unwrap();
    let messages: Vec<&str> = log.iter().map(|entry| entry.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "Temperature #0x30, Upper Critical going high, Asserted",
            "Memory #0x10, Uncorrectable ECC, Asserted"
        ]
    );
    assert_eq!(log[0].at, None, "before its clock was set");
    let sensors = sim.bmc().sensors().await.unwrap_err();
    assert!(
        matches!(&sensors, BmcError::Unsupported { what } if what == "it lists no sensors"),
        "{sensors}"
    );
}

#[tokio::test]
async fn its_sensors_are_read() {
    let Some(sim) = Sim::with_sensors().await else {
        return;
    };
    let told = sim.bmc().sensors().await.unwrap();
    let told: Vec<_> = told
        .iter()
        .map(|sensor| {
            (
                sensor.name.as_str(),
                sensor.reading,
                sensor.unit.as_str(),
                sensor.health.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("Inlet Temp", 24.0, "Cel", Some("OK")),
            ("Fan 1", 500.0, "RPM", Some("OK"))
        ]
    );
    assert!(
        matches!(
            sim.bmc().power_watts().await,
            Err(BmcError::Unsupported { .. })
        ),
        "unknown is not zero"
    );
}

#[tokio::test]
async fn what_is_wrong_with_an_account_is_told_apart_from_a_bmc_that_is_away() {
    let Some(sim) = Sim::start().await else {
        return;
    };
    let right = ipmi_target(sim.port);
    let with = |user: &str, password: &str| {
        let mut target = right.clone();
        (target.user, target.password) = (user.into(), Secret::new(password));
        bmcs().open(&target, job()).unwrap()
    };
    for (bmc, code) in [
        (with("admin", "wrong"), FailureCode::BmcCredentials),
        (with("nobody", "secret"), FailureCode::BmcCredentials),
        (
            with("admin", "longer than twenty bytes"),
            FailureCode::BmcUnsupported,
        ),
    ] {
        let error = bmc.observe().await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
    let mut absent = right.clone();
    absent.port = free_udp_port();
    let error = bmcs()
        .open(&absent, job())
        .unwrap()
        .observe()
        .await
        .unwrap_err();
    assert_eq!(error.code(), FailureCode::BmcUnreachable, "{error}");

    let bmc = sim.bmc();
    bmc.observe().await.unwrap();
    sim.signal("-STOP");
    let error = bmc.reset(Reset::On).await.unwrap_err();
    assert!(
        error.code() == FailureCode::BmcUnreachable,
        "no session, so nothing was sent: {error}"
    );
    sim.signal("-CONT");
    bmc.observe().await.unwrap();
    assert_eq!(sim.told(), [""; 0], "a power act that failed was not sent");
}

/// Only the password of the login account changes, and the old password no longer works.
#[tokio::test]
async fn its_account_gets_another_password() {
    let Some(sim) = Sim::start().await else {
        return;
    };
    // Same length and same characters as the passwords generated by the server.
    let next = Secret::new("aB3-kF7-pQ9_xZ2.");
    sim.bmc().set_password(&next).await.unwrap();
    let with = |password: &Secret| {
        bmcs().open(
            &IpmiTarget {
                password: password.clone(),
                ..ipmi_target(sim.port)
            },
            job(),
        )
    };
    assert_eq!(
        with(&next).unwrap().observe().await.unwrap().power,
        PowerState::Off
    );
    let refused = with(&Secret::new("secret"))
        .unwrap()
        .observe()
        .await
        .unwrap_err();
    assert_eq!(refused.code(), FailureCode::BmcCredentials, "{refused}");
    with(&next)
        .unwrap()
        .set_password(&Secret::new("secret"))
        .await
        .unwrap();
    sim.bmc().observe().await.unwrap();
}

/// The machine is switched on, and the answer is lost.
#[tokio::test]
async fn a_lost_reply_is_not_sent_again() {
    let Some(sim) = Sim::start().await else {
        return;
    };
    let relay = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = relay.local_addr().unwrap().port();
    let task = tokio::spawn(relay_until_told(
        relay,
        sim.port,
        sim.folder.path().to_owned(),
    ));
    let bmc = bmcs().open(&ipmi_target(port), job()).unwrap();
    bmc.observe().await.unwrap();
    let error = bmc.reset(Reset::On).await.unwrap_err();
    assert!(
        matches!(error, BmcError::Timeout { .. }),
        "whether it acted is unknown: {error}"
    );
    task.abort();
    assert_eq!(sim.told(), ["set power 1"], "it was asked once");
    assert_eq!(sim.bmc().observe().await.unwrap().power, PowerState::On);
}

/// Forwards packets, and drops the packets of the BMC after the first command to the machine.
async fn relay_until_told(relay: UdpSocket, port: u16, folder: std::path::PathBuf) {
    let relay = Arc::new(relay);
    let mut bytes = [0; 2048];
    let mut bmcs = std::collections::HashMap::new();
    loop {
        let (length, client) = relay.recv_from(&mut bytes).await.unwrap();
        let bmc: &Arc<UdpSocket> = match bmcs.entry(client) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let bmc = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
                bmc.connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
                let (back, relay, folder) = (Arc::clone(&bmc), Arc::clone(&relay), folder.clone());
                tokio::spawn(async move {
                    let mut bytes = [0; 2048];
                    while let Ok(length) = back.recv(&mut bytes).await {
                        if told(&folder).is_empty() {
                            relay.send_to(&bytes[..length], client).await.unwrap();
                        }
                    }
                });
                place.insert(bmc)
            }
        };
        bmc.send(&bytes[..length]).await.unwrap();
    }
}

/// The password must not appear in the arguments of the program, because every user of the machine
/// can read the arguments.
#[tokio::test]
async fn the_password_is_in_no_argument() {
    let Some(sim) = Sim::start().await else {
        return;
    };
    sim.signal("-STOP");
    let bmc = sim.bmc();
    let asking = tokio::spawn(async move { bmc.observe().await });
    let (arguments, environment) = loop {
        let found = children().into_iter().find_map(|child| {
            let read = |file: &str| std::fs::read(format!("/proc/{child}/{file}")).ok();
            let arguments = String::from_utf8_lossy(&read("cmdline")?).replace('\0', " ");
            arguments.starts_with("ipmitool").then_some((
                arguments,
                String::from_utf8_lossy(&read("environ")?).into_owned(),
            ))
        });
        match found {
            Some(found) => break found,
            None => {
                assert!(!asking.is_finished(), "it was never run");
                tokio::task::yield_now().await;
            }
        }
    };
    assert!(environment.contains("IPMI_PASSWORD=secret"), "{arguments}");
    assert!(
        arguments.contains("-E") && !arguments.contains("secret"),
        "{arguments}"
    );
    sim.signal("-CONT");
    asking.await.unwrap().ok();
}

fn children() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let lists =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}
