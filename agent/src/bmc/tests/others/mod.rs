//! The BMC drivers against other people's BMCs. What each does that no specification asks for is written where a test meets it.

mod ipmi_sim; // OpenIPMI's simulator
mod sushy; // OpenStack's Redfish emulator
mod virtualbmc; // OpenStack's IPMI over libvirt

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bmc::{Bmcs, Limits};
use crate::watch::Watch;
use muster_core::facts::Firmware;
use muster_core::ids::JobId;
use muster_core::values::Secret;
use muster_core::wire::bmc::IpmiTarget;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Until a simulator listens.
const START: Duration = Duration::from_secs(30);

/// Where `tests/bmcs/install` puts what Debian has no package of.
fn installed(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.cache/bmcs/bin")
        .join(program)
}

/// A file beside the installer.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/bmcs")
        .join(name)
}

/// Whether the programs are here. In CI they must be: a test that does not run guards nothing.
fn have(programs: &[&Path]) -> bool {
    let missing: Vec<String> = programs
        .iter()
        .filter(|program| !program.exists())
        .map(|program| program.display().to_string())
        .collect();
    if missing.is_empty() {
        return true;
    }
    let why = format!(
        "NOT RUN: {} missing; install with tests/bmcs/install",
        missing.join(" and ")
    );
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("{why}");
    false
}

/// A simulator's process; it ends when dropped.
struct Simulator(Child);

impl Drop for Simulator {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _status = self.0.wait();
    }
}

impl Simulator {
    fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// Waits for the line it prints when it listens.
    fn wait_for_line(&mut self, sign: &str) {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find(|line| line.contains(sign));
        assert!(said.is_some(), "it ended without saying {sign:?}");
    }

    /// Waits until somebody has bound the UDP port.
    async fn wait_for_udp(&mut self, port: u16) {
        let until = Instant::now() + START;
        let sign = format!(":{port:04X} ");
        while !std::fs::read_to_string("/proc/net/udp")
            .unwrap()
            .contains(&sign)
        {
            assert_eq!(self.0.try_wait().unwrap(), None, "it ended");
            assert!(Instant::now() < until, "it does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn free_tcp_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn free_udp_port() -> u16 {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// As in production, but for pauses that only spare hardware.
fn bmcs() -> Bmcs {
    let (spacing, poll) = (Duration::from_millis(1), Duration::from_millis(100));
    Bmcs::new(Limits {
        spacing,
        poll,
        settle: Duration::from_secs(1),
        ..Limits::default()
    })
}

fn ipmi_target(port: u16) -> IpmiTarget {
    let password = Secret::new("secret");
    let (address, user) = (Ipv4Addr::LOCALHOST.into(), "admin".into());
    IpmiTarget {
        address,
        port,
        user,
        password,
        firmware: Firmware::Uefi,
        also: None,
        machine: None,
    }
}

fn job() -> JobId {
    JobId::new()
}

/// Longer than any of them takes.
fn patience() -> Watch {
    Watch::new(
        Instant::now() + Duration::from_secs(60),
        CancellationToken::new(),
        |_| {},
    )
}
