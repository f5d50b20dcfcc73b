//! Tests of the BMC drivers against BMC implementations of other projects. Behaviour outside of the
//! specifications is described in the affected test.

mod ipmi_sim; // The simulator of OpenIPMI
mod sushy; // The Redfish emulator of OpenStack
mod virtualbmc; // IPMI for libvirt, from OpenStack

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

/// Time limit until a simulator listens.
const START: Duration = Duration::from_secs(30);

/// Returns the path of a program installed by `tests/bmcs/install`, for programs without a Debian
/// package.
fn installed(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.cache/bmcs/bin")
        .join(program)
}

/// Returns the path of a file beside the installer.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/bmcs")
        .join(name)
}

/// Returns whether the programs are installed. In CI a missing program is an error, because a
/// skipped test protects no code.
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

/// The process of a simulator, ended on drop.
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

    /// Waits for the line printed when the simulator listens.
    fn wait_for_line(&mut self, sign: &str) {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find(|line| line.contains(sign));
        assert!(said.is_some(), "it ended without saying {sign:?}");
    }

    /// Waits until a process has bound the UDP port.
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

/// Returns production limits without the pauses needed only for real hardware.
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
        bmc_networks: vec!["127.0.0.0/8".parse().unwrap()],
    }
}

fn job() -> JobId {
    JobId::new()
}

/// Returns a watch longer than any simulator needs.
fn patience() -> Watch {
    Watch::new(
        Instant::now() + Duration::from_secs(60),
        CancellationToken::new(),
        |_| {},
    )
}
