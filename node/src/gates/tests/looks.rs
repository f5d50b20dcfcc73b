//! Looks at the kernel's log. A suite reports a fault once. Every record between two looks
//! counts, and lost records are reported.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::gates::{Gate, GateResult, Stage, Verdict};
use muster_core::wire::node::GatePlan;

use super::bench::{TestBench, gate, plan};
use crate::machine::Machine;

const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.";
const BOOT: &str = "6f7c1d0e-0000-4000-8000-000000000001";

/// A node with a kernel's log.
struct Node {
    root: tempfile::TempDir,
    records: Vec<(u64, String)>,
}

impl Node {
    fn new() -> Self {
        let node = Self {
            root: tempfile::tempdir().expect("a folder"),
            records: Vec::new(),
        };
        node.write("proc/uptime", "100.50 200.00\n");
        node.booted(BOOT);
        node
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    fn booted(&self, id: &str) {
        self.write("proc/sys/kernel/random/boot_id", &format!("{id}\n"));
    }

    /// Logs a message of the kernel; the kernel's buffer has room for `keeps` records.
    fn says(&mut self, number: u64, message: &str, keeps: usize) {
        self.records.push((number, message.to_owned()));
        let from = self.records.len().saturating_sub(keeps);
        let line = |(number, message): &(u64, String)| {
            format!("6,{number},{number}000000,-;{message}\n SUBSYSTEM=pci\n")
        };
        self.write(
            "dev/kmsg",
            &self.records[from..].iter().map(line).collect::<String>(),
        );
    }

    fn plan(suite: &str) -> GatePlan {
        let looks = gate(
            "id = \"kernel.new\"\nstage = \"inventory\"\nparser = \"kernel-log-new\"\ntimeout_s = 5\n\
             criteria = [{ metric = \"kernel.xid_fatal\", op = \"==\", limit = 0, unit = \"events\" }]\n",
        );
        let mut plan = plan(vec![looks]);
        plan.suite.name = suite.into();
        plan
    }

    /// Runs the look of a suite. The place in the log is kept where a reader gets the verdict.
    fn looks(&self, suite: &str, reaches_somebody: bool) -> GateResult {
        self.run(&Self::plan(suite), reaches_somebody).remove(0)
    }

    fn run(&self, plan: &GatePlan, reaches_somebody: bool) -> Vec<GateResult> {
        let bench = TestBench::on(Machine::at(self.path()));
        let results = bench.run(plan).expect("results");
        for look in bench
            .shared
            .looks()
            .into_iter()
            .filter(|_| reaches_somebody)
        {
            look.write().expect("a place");
        }
        results
    }

    /// A gate whose run adds a message of the kernel.
    fn later(&mut self, number: u64, message: &str) -> Gate {
        let path = self.path().join("dev/kmsg");
        let now = std::fs::read(&path).expect("a log");
        self.says(number, message, 99);
        let later = self.path().join("later");
        std::fs::rename(&path, &later).expect("a log");
        std::fs::write(&path, now).expect("a log");
        let mut gate = gate(
            "id = \"later\"\nstage = \"inventory\"\nparser = \"stressapptest\"\ntimeout_s = 5\nargv = [\"cp\"]\nshadow = true\n\
             criteria = [{ metric = \"memory.incidents\", op = \"==\", limit = 0, unit = \"incidents\" }]\n",
        );
        gate.argv
            .extend([later, path].map(|path| path.to_str().expect("a path").to_owned()));
        gate
    }

    fn verdict(&self, suite: &str) -> Verdict {
        self.looks(suite, true).verdict
    }
}

#[test]
fn a_fault_is_told_once_to_each_suite_and_none_between_two_looks_is_lost() {
    let mut node = Node::new();
    node.says(1, "Linux version 6.1.0", 99);
    node.says(2, XID, 99);
    // A run by hand, or a cancelled job: the next look reports the fault again.
    assert_eq!(node.looks("smoke", false).verdict, Verdict::Fail);
    assert_eq!(
        (node.verdict("smoke"), node.verdict("smoke")),
        (Verdict::Fail, Verdict::Pass)
    );
    node.says(3, "usb 1-1: new device", 99);
    assert_eq!(
        node.verdict("smoke"),
        Verdict::Pass,
        "an Xid of before is not told again"
    );
    node.says(4, XID, 99);
    node.says(5, "usb 1-2: new device", 99);
    let told = node.looks("smoke", true);
    assert!(
        told.verdict == Verdict::Fail && told.reason.contains("is 1 events"),
        "{}",
        told.reason
    );
    // A second suite keeps a separate place, from the boot on.
    let told = node.looks("sweep", true);
    assert!(
        told.verdict == Verdict::Fail && told.reason.contains("is 2 events"),
        "{}",
        told.reason
    );
    assert_eq!(
        (node.verdict("sweep"), node.verdict("smoke")),
        (Verdict::Pass, Verdict::Pass)
    );
}

#[test]
fn what_was_overwritten_is_no_answer_and_what_is_left_of_it_counts() {
    let mut node = Node::new();
    (0..=2).for_each(|number| node.says(number, "quiet", 2));
    let lost = node.looks("smoke", true);
    assert_eq!(
        lost.verdict,
        Verdict::Error,
        "the boot's first record was never read"
    );
    assert!(
        lost.reason.contains("overwritten before"),
        "{}",
        lost.reason
    );
    node.says(3, "quiet", 2);
    assert_eq!(node.verdict("smoke"), Verdict::Pass, "told once");
    (4..=6).for_each(|number| node.says(number, "quiet", 2));
    let lost = node.looks("smoke", true);
    assert_eq!(lost.verdict, Verdict::Error, "record 4 was never read");
    assert!(
        lost.reason.contains("overwritten before"),
        "{}",
        lost.reason
    );
    assert_eq!(node.verdict("smoke"), Verdict::Pass, "told once");
    (7..=9).for_each(|number| node.says(number, "quiet", 2));
    node.says(10, XID, 2);
    assert_eq!(
        node.verdict("smoke"),
        Verdict::Fail,
        "a fault that was read is one, whatever was lost"
    );
}

#[test]
fn what_comes_between_the_looks_of_one_suite_is_judged_by_all_of_them() {
    let verdicts = |stage: Stage| {
        let mut node = Node::new();
        node.says(0, "quiet", 99);
        let mut plan = Node::plan("smoke");
        let mut second = plan.suite.gates[0].clone();
        (second.id, second.shadow, second.stage) = ("kernel.second".into(), true, stage);
        plan.suite.gates.extend([node.later(1, XID), second]);
        let results = node.run(&plan, true);
        [
            results[0].verdict,
            results[2].verdict,
            node.verdict("smoke"),
            node.verdict("smoke"),
        ]
    };
    use Verdict::{Fail, Pass};
    assert_eq!(
        verdicts(Stage::Inventory),
        [Pass, Fail, Fail, Pass],
        "the shadow's look is not the other gate's"
    );
    assert_eq!(
        verdicts(Stage::Soak),
        [Pass, Fail, Pass, Pass],
        "all was judged once more by a later stage"
    );
}

#[test]
fn another_boot_and_a_damaged_place_begin_anew() {
    let mut node = Node::new();
    (0..=1).for_each(|number| node.says(number, "quiet", 99));
    node.says(2, XID, 99);
    assert_eq!(
        (node.verdict("smoke"), node.verdict("smoke")),
        (Verdict::Fail, Verdict::Pass)
    );
    let places: Vec<_> = std::fs::read_dir(node.path().join("var/lib/muster/kernel-log"))
        .expect("places")
        .flatten()
        .collect();
    assert_eq!(places.len(), 1);
    assert_eq!(
        places[0].metadata().expect("a file").permissions().mode() & 0o777,
        0o600
    );
    for torn in ["", "{", "{\"boot\":\"", "{\"boot\":\"b\",\"next\":-1}"] {
        std::fs::write(places[0].path(), torn).expect("a torn file");
        assert_eq!(
            node.verdict("smoke"),
            Verdict::Fail,
            "{torn:?}: told again, and not lost"
        );
    }
    // The end of the earlier boot is reported as unknown. The new boot is read from the beginning.
    node.booted("6f7c1d0e-0000-4000-8000-000000000002");
    node.records.clear();
    node.says(0, "Linux version 6.1.0", 99);
    let booted = node.looks("smoke", true);
    assert_eq!(booted.verdict, Verdict::Pass);
    assert!(
        booted
            .evidence
            .stdout
            .contains("the end of the boot before is not known"),
        "{:?}",
        booted.evidence
    );
    assert_eq!(
        node.looks("smoke", true).evidence.stdout,
        "",
        "known from now on"
    );
    // The buffer has lost the beginning of the boot before the first look.
    node.booted("6f7c1d0e-0000-4000-8000-000000000003");
    node.says(700, "quiet", 1);
    assert_eq!(node.verdict("smoke"), Verdict::Error);
    std::fs::remove_file(node.path().join("dev/kmsg")).expect("a log");
    assert_eq!(
        node.verdict("smoke"),
        Verdict::Error,
        "a log that cannot be read is no answer"
    );
}

#[test]
fn places_are_few_and_no_name_of_a_suite_is_a_path() {
    let mut node = Node::new();
    node.says(0, "quiet", 99);
    for number in 0..40 {
        assert_eq!(
            node.verdict(&format!("../../suite {number}")),
            Verdict::Pass
        );
    }
    assert_eq!(
        std::fs::read_dir(node.path().join("var/lib/muster/kernel-log"))
            .expect("places")
            .count(),
        32
    );
    let outside = std::fs::read_dir(node.path().join("var/lib"))
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name());
    assert_eq!(outside.collect::<Vec<_>>(), ["muster"]);
}
