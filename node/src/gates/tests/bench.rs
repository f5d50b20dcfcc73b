//! A plan, facts and a machine to run gates on.

use std::time::Duration;

use muster_core::facts::{Disk, DiskTransport, Facts};
use muster_core::gates::{Gate, GateResult, Suite};
use muster_core::profiles::HardwareProfile;
use muster_core::wire::node::{Failure, GatePlan};

use crate::gates::{Bench, Shared, run_on};
use crate::job::JobContext;
use crate::machine::Machine;

pub(super) const SUITE: &str = include_str!("../../../../suites/admit-cpu.toml");
pub(super) const PROFILE: &str = include_str!("../../../../suites/profiles/virtual-node.toml");

pub(super) fn profile() -> HardwareProfile {
    toml::from_str(PROFILE).expect("the shipped profile")
}

pub(super) fn shipped() -> Suite {
    toml::from_str(SUITE).expect("the shipped suite")
}

pub(super) fn plan(gates: Vec<Gate>) -> GatePlan {
    let suite = Suite {
        name: "test".into(),
        version: "1".into(),
        gates,
    };
    GatePlan {
        suite,
        profile: profile(),
        only: vec![],
        stack: None,
        variables: [].into(),
        in_use: false,
        waived: vec![],
        waived_until: [].into(),
        health: None,
        xid: None,
        firmware: Some(vec![]),
    }
}

/// A gate from lines of TOML.
pub(super) fn gate(toml: &str) -> Gate {
    let common = "title = \"t\"\nfinding = \"f\"\n";
    toml::from_str(&format!("{common}{toml}")).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn nvme(name: &str, serial: Option<&str>) -> Disk {
    let serial = serial.map(str::to_owned);
    Disk {
        name: name.into(),
        serial,
        transport: DiskTransport::Nvme,
        size_bytes: 8 << 30,
        ..Disk::default()
    }
}

/// Runs a plan on a machine below a temporary folder.
pub(super) fn run(plan: &GatePlan, facts: &Facts) -> Result<Vec<GateResult>, Failure> {
    let folder = tempfile::tempdir().expect("a folder");
    run_in(folder.path(), plan, facts)
}

pub(super) fn run_in(
    folder: &std::path::Path,
    plan: &GatePlan,
    facts: &Facts,
) -> Result<Vec<GateResult>, Failure> {
    run_for(folder, plan, facts, Duration::from_secs(60))
}

/// Runs a plan as a job with a deadline.
pub(super) fn run_within(
    folder: &std::path::Path,
    plan: &GatePlan,
    within: Duration,
) -> Result<Vec<GateResult>, Failure> {
    run_for(folder, plan, &Facts::default(), within)
}

fn run_for(
    folder: &std::path::Path,
    plan: &GatePlan,
    facts: &Facts,
    within: Duration,
) -> Result<Vec<GateResult>, Failure> {
    let cx = JobContext::foreground(within);
    run_on(&Bench {
        machine: Machine::at(folder),
        plan,
        facts,
        cx: &cx,
        guard: None,
        shared: &Shared::default(),
    })
}
