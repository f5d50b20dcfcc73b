//! A plan, facts and a machine to run gates on.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use muster_core::facts::{Disk, DiskTransport, Facts};
use muster_core::gates::{Gate, GateResult, PROGRAMS_FOLDER, Suite, lint_program};
use muster_core::profiles::HardwareProfile;
use muster_core::wire::node::{Failure, GatePlan};

use crate::gates::{Bench, Shared, run_on};
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::Guard;

pub(crate) const SUITE: &str = include_str!("../../../../suites/admit-cpu.toml");
pub(crate) const PROFILE: &str = include_str!("../../../../suites/profiles/virtual-node.toml");

pub(crate) fn profile() -> HardwareProfile {
    toml::from_str(PROFILE).expect("the shipped profile")
}

pub(crate) fn shipped() -> Suite {
    toml::from_str(SUITE).expect("the shipped suite")
}

pub(crate) fn plan(gates: Vec<Gate>) -> GatePlan {
    plan_of(Suite {
        name: "test".into(),
        version: "1".into(),
        gates,
    })
}

/// A plan of a whole suite.
pub(crate) fn plan_of(suite: Suite) -> GatePlan {
    GatePlan {
        suite,
        profile: profile(),
        only: vec![],
        stack: None,
        variables: [("former_gates".into(), String::new())].into(),
        in_use: false,
        protected: false,
        waived: vec![],
        waived_until: [].into(),
        health: None,
        xid: None,
        firmware: Some(vec![]),
    }
}

/// A gate from lines of TOML.
pub(crate) fn gate(toml: &str) -> Gate {
    let common = "title = \"t\"\nfinding = \"f\"\n";
    toml::from_str(&format!("{common}{toml}")).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn nvme(name: &str, serial: Option<&str>) -> Disk {
    let serial = serial.map(str::to_owned);
    Disk {
        name: name.into(),
        serial,
        transport: DiskTransport::Nvme,
        size_bytes: 8 << 30,
        ..Disk::default()
    }
}

/// A machine on which a plan runs as a job.
pub(crate) struct TestBench {
    pub(crate) machine: Machine,
    pub(crate) facts: Facts,
    pub(crate) guard: Option<Guard>,
    pub(crate) shared: Shared,
    /// The deadline of the job.
    pub(crate) within: Duration,
}

impl TestBench {
    /// A machine without facts and without limits of the tools.
    pub(crate) fn on(machine: Machine) -> Self {
        Self {
            machine,
            facts: Facts::default(),
            guard: None,
            shared: Shared::default(),
            within: Duration::from_secs(60),
        }
    }

    /// Runs a plan. Programs of the test are among the programs that the image ships.
    pub(crate) fn run(&self, plan: &GatePlan) -> Result<Vec<GateResult>, Failure> {
        let mut plan = plan.clone();
        let former = plan.clone();
        let gates = plan.suite.gates.iter_mut();
        for gate in gates.filter(|gate| !former.is_former(&gate.id)) {
            if !lint_program(gate).is_empty() {
                gate.argv[0] = ship(&self.machine, &gate.argv[0]);
            }
        }
        run_on(&Bench {
            machine: self.machine.clone(),
            plan: &plan,
            facts: &self.facts,
            cx: &JobContext::foreground(self.within),
            guard: self.guard.as_ref(),
            shared: &self.shared,
        })
    }
}

/// Puts a script into the machine's folder of programs; the script becomes the program. Returns the
/// path for a gate. Of a missing program no script is written.
fn ship(machine: &Machine, program: &str) -> String {
    let name = program.rsplit('/').next().expect("a name");
    let folder = machine.path(PROGRAMS_FOLDER);
    std::fs::create_dir_all(&folder).expect("a folder");
    let set_mode = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    };
    // `usr/libexec` and the two folders below.
    folder.ancestors().take(3).for_each(set_mode);
    let path = std::env::var_os("PATH").expect("a path");
    let is_installed = match program.contains('/') {
        true => Path::new(program).exists(),
        false => std::env::split_paths(&path).any(|folder| folder.join(program).exists()),
    };
    let file = folder.join(name);
    let script = format!("#!/bin/sh\nexec '{program}' \"$@\"\n");
    // An equal script may run in another thread.
    let is_there = std::fs::read_to_string(&file).is_ok_and(|text| text == script);
    if is_installed && !is_there {
        std::fs::write(&file, script).expect("a script");
        set_mode(&file);
    }
    format!("{PROGRAMS_FOLDER}/{name}")
}

/// Runs a plan on a machine below a temporary folder.
pub(crate) fn run(plan: &GatePlan, facts: &Facts) -> Result<Vec<GateResult>, Failure> {
    let folder = tempfile::tempdir().expect("a folder");
    run_in(folder.path(), plan, facts)
}

pub(crate) fn run_in(
    folder: &Path,
    plan: &GatePlan,
    facts: &Facts,
) -> Result<Vec<GateResult>, Failure> {
    let bench = TestBench {
        facts: facts.clone(),
        ..TestBench::on(Machine::at(folder))
    };
    bench.run(plan)
}

/// Runs a plan as a job with a deadline.
pub(crate) fn run_within(
    folder: &Path,
    plan: &GatePlan,
    within: Duration,
) -> Result<Vec<GateResult>, Failure> {
    let bench = TestBench {
        within,
        ..TestBench::on(Machine::at(folder))
    };
    bench.run(plan)
}
