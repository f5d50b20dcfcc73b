//! Limits of a gate's tool: with a folder in place of the cgroup, and with real cgroups where this
//! machine has them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod programs; // Programs that an image ships for gates

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use muster_core::gates::Suite;
use muster_core::ids::JobId;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, GatePlan};
use muster_core::wire::pair::PairPlan;
use muster_node::job::JobContext;
use muster_node::tool::{Call, Ceiling, Finished, Guard, ToolError, run};
use serde_json::Value;

const MUSTER_NODE: &str = env!("CARGO_BIN_EXE_muster-node");
/// `pids.max` of the cgroup above the tool, and three quarters of it.
const PROCESSES_ABOVE: &str = "85";
const PROCESSES: u64 = 63;

/// A folder in place of a delegated cgroup, with the files that the kernel has there.
fn folder() -> tempfile::TempDir {
    let base = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| std::fs::write(base.path().join(file), text).unwrap();
    std::fs::create_dir(base.path().join("main")).unwrap();
    put("main/cgroup.kill", "");
    put("cgroup.controllers", "cpuset cpu io memory pids\n");
    put("cgroup.procs", "");
    put("pids.max", PROCESSES_ABOVE);
    base
}

/// Writes a script. A test writes every script before the first program, because a child holds the
/// open files of the test for a moment.
fn write_script(folder: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.to_string_lossy().into_owned()
}

fn run_under(guard: &Guard, argv: &[&str]) -> Result<Finished, ToolError> {
    let call = Call {
        argv,
        kills_leftovers: true,
        guard: Some(guard),
        ..Call::default()
    };
    run(&JobContext::foreground(Duration::from_secs(120)), &call)
}

/// The program, the limit reached by the program, and the program's stdout.
fn reached(ended: Result<Finished, ToolError>) -> (String, Ceiling, Vec<u8>) {
    match ended {
        Err(ToolError::Limited {
            program,
            ceiling,
            stdout,
            ..
        }) => (program, ceiling, stdout),
        other => panic!("{other:?}"),
    }
}

/// Number of processes with a command line.
fn running(line: &str) -> usize {
    let same = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line.as_bytes())
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter(same).count()
}

#[test]
fn a_tool_that_reaches_a_limit_is_killed_and_the_limit_is_named() {
    let base = folder();
    let guard = Guard::below(base.path(), MUSTER_NODE).unwrap();
    let enabled = std::fs::read_to_string(base.path().join("cgroup.subtree_control"));
    assert_eq!(enabled.unwrap(), "+pids +memory");
    // The second tool has ended with 0 before the limit is seen.
    for (at, end) in ["exec sleep 600", "exit 0"].into_iter().enumerate() {
        let cgroup = base.path().join(format!("tool-{at}"));
        let script = format!("echo burning; echo max 1 >\"$0/pids.events\"; {end}");
        let ended = run_under(&guard, &["sh", "-c", &script, cgroup.to_str().unwrap()]);
        let (program, ceiling, stdout) = reached(ended);
        assert_eq!(
            (program.as_str(), ceiling),
            ("sh", Ceiling::Processes(PROCESSES))
        );
        assert_eq!(stdout, b"burning\n", "the output goes into the evidence");
        let entered = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
        assert!(entered.parse::<u32>().is_ok(), "{entered:?}");
    }
}

#[test]
fn a_tool_that_does_not_start_is_reported_as_without_limits() {
    let base = folder();
    let guard = Guard::below(base.path(), MUSTER_NODE).unwrap();
    let no_interpreter = write_script(base.path(), "a", "#!/no/such/interpreter\n", 0o755);
    let not_executable = write_script(base.path(), "b", "#!/bin/sh\n", 0o644);
    for missing in ["no-such-tool", no_interpreter.as_str()] {
        let ended = run_under(&guard, &[missing]);
        assert!(
            matches!(&ended, Err(ToolError::Missing(program)) if program == missing),
            "{ended:?}"
        );
    }
    let ended = run_under(&guard, &[&not_executable]);
    let denied = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    assert!(
        matches!(&ended, Err(ToolError::Io(_, error)) if denied(error)),
        "{ended:?}"
    );
    // The status of a program is not mistaken for a failed start.
    let ended = run_under(&guard, &["sh", "-c", "exit 127"]).unwrap();
    assert_eq!(ended.status.code(), Some(127));
}

#[test]
fn a_tool_counts_as_started_only_by_the_report_of_muster_node() {
    let base = folder();
    // In place of `muster-node exec-tool CGROUP …`.
    let shim = |name: &str, line: &str| {
        write_script(base.path(), name, &format!("#!/bin/sh\n{line}\n"), 0o755)
    };
    let silent = shim("silent", "exit 0");
    let killed = shim("killed", "kill -9 $$");
    let limited = shim("limited", "echo max 1 >$2/pids.events");
    let run_by = |shim: String| run_under(&Guard::below(base.path(), shim).unwrap(), &["true"]);
    // Each guard counts the cgroups of the tools from 0, and finds the next free number.
    let ended = run_by(silent);
    let told = |error: &std::io::Error| error.to_string().contains("did not start the tool");
    assert!(
        matches!(&ended, Err(ToolError::Io(program, error)) if program == "true" && told(error)),
        "{ended:?}"
    );
    let ended = run_by(killed).unwrap();
    assert_eq!(ended.status.signal(), Some(9), "the signal is the reason");
    assert_eq!(reached(run_by(limited)).1, Ceiling::Processes(PROCESSES));
}

#[test]
fn a_tool_without_its_cgroup_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let (mut report, writer) = std::io::pipe().unwrap();
    // The command is dropped with its end of the pipe.
    let status = Command::new(MUSTER_NODE)
        .args(["exec-tool", "/no/such/cgroup", "65536", "--", "touch"])
        .arg(&started)
        .stdin(writer)
        .status()
        .unwrap();
    let mut told = Vec::new();
    report.read_to_end(&mut told).unwrap();
    // The limits (1), and ENOENT (2).
    assert_eq!(told, [1, 2, 0, 0, 0]);
    assert!(!status.success() && !started.exists());
}

#[test]
fn a_tool_has_few_open_files_and_ends_before_other_programs() {
    let base = folder();
    let guard = Guard::below(base.path(), MUSTER_NODE).unwrap();
    let script = "ulimit -Hn; cat /proc/self/oom_score_adj; readlink /proc/self/fd/0";
    let ended = run_under(&guard, &["sh", "-c", script]).unwrap();
    let text = String::from_utf8(ended.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let [files, first, stdin] = lines[..] else {
        panic!("{text}");
    };
    assert!(files.parse::<u64>().is_ok_and(|most| most <= 65_536));
    assert_eq!((first, stdin), ("1000", "/dev/null"));
}

#[test]
fn a_folder_without_controllers_is_no_delegated_cgroup() {
    for (controllers, told) in [
        ("cpu memory\n", "no controller pids"),
        ("pids cpu\n", "no controller memory"),
        ("hugetlb\n", "no controller pids"),
    ] {
        let base = folder();
        std::fs::write(base.path().join("cgroup.controllers"), controllers).unwrap();
        let why = Guard::below(base.path(), MUSTER_NODE).unwrap_err();
        assert!(why.contains(told), "{why}");
    }
    let base = folder();
    std::fs::remove_file(base.path().join("main/cgroup.kill")).unwrap();
    let why = Guard::below(base.path(), MUSTER_NODE).unwrap_err();
    assert!(why.contains("5.14"), "{why}");
}

/// The agent reads stderr as a single failure.
#[test]
fn a_listening_end_names_its_missing_limits_in_its_failure() {
    let folder = tempfile::tempdir().unwrap();
    let own = r#"argv = ["iperf3", "--server", "--one-off", "--port", "${pair_port}"]"#;
    let text = include_str!("../../suites/pairs.toml");
    assert!(text.contains(own));
    let tool = programs::ship(folder.path(), "no-such-tool");
    let missing = format!(r#"argv = ["{tool}", "${{pair_port}}"]"#);
    let text = text.replace(own, &missing);
    let suite: Suite = toml::from_str(&text).unwrap();
    let plan = GatePlan {
        suite,
        profile: toml::from_str(include_str!("../../suites/profiles/virtual-node.toml")).unwrap(),
        only: vec!["iperf3-pair".to_owned()],
        stack: None,
        variables: [("former_gates".into(), String::new())].into(),
        in_use: false,
        protected: false,
        xid: None,
        firmware: Some(vec![]),
        health: None,
        waived: Vec::new(),
        waived_until: [].into(),
    };
    let line = serde_json::to_string(&PairPlan {
        protocol: PROTOCOL,
        job: JobId::new(),
        plan,
    });
    let mut child = Command::new(MUSTER_NODE)
        .args(["pair", "serve", "-"])
        .env("MUSTER_ROOT", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The stdin stays open: at its end the listening end stops without a failure.
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", line.unwrap()).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    let failure: Failure = serde_json::from_str(&said).expect(&said);
    assert_eq!(failure.code, FailureCode::ToolMissing);
    let parts = failure.message.split_once("; ").expect(&said);
    assert!(
        parts.0.ends_with("is not installed on this node")
            && parts.1.contains("without a limit of processes and memory"),
        "{said}"
    );
}

/// A real cgroup, removed with its processes.
struct Group(PathBuf);

impl Group {
    /// `None`, with the reason on stderr, where this machine lets no test limit a process. With
    /// MUSTER_NEEDS_CGROUPS in the environment, the test fails there.
    fn create(name: &str) -> Option<Self> {
        // As the scope of a verb run by hand.
        let name = format!("muster-gate-{name}-{}.scope", std::process::id());
        let path = Path::new("/sys/fs/cgroup").join(name);
        let created = std::fs::create_dir(&path).map(|()| Self(path));
        let known = |group: &Self| {
            let known = std::fs::read_to_string(group.0.join("cgroup.controllers"));
            let known = known.unwrap_or_default();
            let is_known = |wanted: &str| known.split_whitespace().any(|name| name == wanted);
            is_known("pids") && is_known("memory")
        };
        let group = created.ok().filter(known);
        if group.is_none() {
            let why = "no cgroup v2 with pids and memory that this user may write";
            assert!(std::env::var_os("MUSTER_NEEDS_CGROUPS").is_none(), "{why}");
            eprintln!("skipped: {why}");
        }
        group
    }

    fn put(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }

    /// Cgroups of tools that are left.
    fn cells(&self) -> usize {
        let entries = std::fs::read_dir(&self.0).unwrap().flatten();
        let is_cell =
            |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("tool-");
        entries.filter(is_cell).count()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let is_cgroup = self.0.join("cgroup.procs").exists();
        while self.0.exists() && Instant::now() < deadline {
            if is_cgroup {
                let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
            }
            let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
            entries.for_each(|entry| _ = std::fs::remove_dir(entry.path()));
            let _ = std::fs::remove_dir(&self.0);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Forks 20,000 times at most, as gpu-burn does without a GPU. Each child leaves the process group.
const STORM: &str = "for (1..20000) { my $child = fork; next unless defined $child; \
                     exec 'setsid', 'sleep', $ARGV[0] unless $child } sleep 60";
/// Takes 200 MB of memory.
const GREED: &str = "my $held = 'x' x (200 << 20); sleep 60";

#[test]
fn a_fork_storm_ends_at_the_limit_and_leaves_no_process() {
    let Some(group) = Group::create("storm") else {
        return;
    };
    group.put("pids.max", PROCESSES_ABOVE);
    let guard = Guard::below(&group.0, MUSTER_NODE).unwrap();
    // No other process sleeps for the same number of seconds.
    let seconds = format!("60.{}", std::process::id());
    let ended = run_under(&guard, &["perl", "-e", STORM, &seconds]);
    assert_eq!(reached(ended).1, Ceiling::Processes(PROCESSES));
    assert_eq!(running(&format!("sleep\0{seconds}\0")), 0);
    assert_eq!(group.cells(), 0);
    let healthy = run_under(&guard, &["true"]).unwrap();
    assert!(healthy.status.success(), "the next tool has its own limit");
}

#[test]
fn a_limit_of_the_cgroup_above_is_told_apart() {
    let Some(group) = Group::create("above") else {
        return;
    };
    group.put("pids.max", PROCESSES_ABOVE);
    let guard = Guard::below(&group.0, MUSTER_NODE).unwrap();
    // The tool's own limit stays at 63.
    group.put("pids.max", "20");
    let seconds = format!("62.{}", std::process::id());
    let ended = run_under(&guard, &["perl", "-e", STORM, &seconds]);
    // Linux before 6.11 counts the refusal in the tool's cgroup.
    let wanted = match group.0.join("pids.events.local").exists() {
        true => Ceiling::NodeProcesses,
        false => Ceiling::Processes(PROCESSES),
    };
    assert_eq!(reached(ended).1, wanted);
    assert_eq!(running(&format!("sleep\0{seconds}\0")), 0);
    // An earlier refusal above counts for no later tool.
    assert!(run_under(&guard, &["true"]).unwrap().status.success());
}

#[test]
fn a_gate_whose_tool_forks_without_end_has_no_answer() {
    let Some(group) = Group::create("gate") else {
        return;
    };
    group.put("pids.max", PROCESSES_ABOVE);
    let folder = tempfile::tempdir().unwrap();
    let seconds = format!("61.{}", std::process::id());
    let tool = programs::ship(folder.path(), "perl");
    let suite = format!(
        "name = \"t\"\nversion = \"1\"\n[[gates]]\nid = \"a\"\ntitle = \"t\"\nstage = \"node\"\nparser = \"stressapptest\"\ntimeout_s = 60\nretries = 3\n\
         finding = \"f\"\nargv = [{tool:?}, \"-e\", {STORM:?}, {seconds:?}]\n\
         criteria = [{{ metric = \"memory.incidents\", op = \"==\", limit = 0, unit = \"incidents\" }}]\n"
    );
    std::fs::write(folder.path().join("suite.toml"), suite).unwrap();
    let gate = ["gate", "--suite", "suite.toml", "--profile", "virtual-node"];
    let (mut report, writer) = std::io::pipe().unwrap();
    let ended = Command::new(MUSTER_NODE)
        .arg("exec-tool")
        .arg(&group.0)
        .args(["65536", "--", MUSTER_NODE])
        .args(gate)
        .arg("--json")
        .current_dir(folder.path())
        .env("MUSTER_ROOT", folder.path())
        .stdin(writer)
        .output()
        .unwrap();
    let mut told = Vec::new();
    report.read_to_end(&mut told).unwrap();
    assert_eq!(told, [3], "the gate's process has started");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let document: Value = serde_json::from_slice(&ended.stdout).expect(&said);
    let result = &document["results"][0];
    assert_eq!(result["verdict"], "error", "{said}");
    let end = format!("{tool} exceeded its limit of {PROCESSES} processes");
    let reason = result["reason"].as_str().unwrap();
    assert!(reason.ends_with(&end), "{reason}");
    assert_eq!(result["former"], Value::Null, "no run follows a limit");
    assert_eq!(running(&format!("sleep\0{seconds}\0")), 0);
    assert_eq!(group.cells(), 0);
}

#[test]
fn a_tool_without_end_of_memory_is_killed_at_its_limit() {
    let Some(group) = Group::create("greed") else {
        return;
    };
    group.put("memory.max", &(84 << 20).to_string());
    let guard = Guard::below(&group.0, MUSTER_NODE).unwrap();
    let ended = run_under(&guard, &["perl", "-e", GREED]);
    assert_eq!(reached(ended).1, Ceiling::Memory(63 << 20));
    assert_eq!(group.cells(), 0);
}
