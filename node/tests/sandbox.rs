//! The sandbox of a gate's tool with real namespaces and a real disk, for root with CAP_SYS_ADMIN.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use muster_core::gates::{Disks, Network, Sandbox};
use muster_node::job::JobContext;
use muster_node::tool::{Call, Finished, Guard, run};

const MUSTER_NODE: &str = env!("CARGO_BIN_EXE_muster-node");
/// Connects to a port of the loopback.
const CONNECT: &str = "use IO::Socket::INET; \
                       exit(IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $ARGV[0]) ? 0 : 3)";
/// Listens on the loopback, and connects to the own port.
const MEET: &str = "use IO::Socket::INET; \
                    my $own = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or exit 4; \
                    exit(IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $own->sockport) ? 0 : 3)";
/// Writes six characters to a disk; ends with 3 where the disk cannot be opened.
const WRITE: &str = "use IO::Handle; open(my $disk, '+<', $ARGV[0]) or exit 3; \
                     print $disk $ARGV[1]; $disk->flush && $disk->sync or exit 4";
/// Prints the first six characters of a disk.
const READ: &str =
    "open(my $disk, '<', $ARGV[0]) or exit 3; read($disk, my $text, 6) or exit 4; print $text";
/// Bits of the capabilities. No tool has the last one, and root in most containers has it.
const SYS_RAWIO: u32 = 17;
const SYS_ADMIN: u32 = 21;
const MKNOD: u32 = 27;
const SETFCAP: u32 = 31;

/// Whether this process may make a sandbox. Otherwise the reason goes to stderr.
fn can_make_sandboxes() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = u64::from_str_radix(set.unwrap().trim(), 16).unwrap();
    let can = nix::unistd::geteuid().is_root() && (set >> SYS_ADMIN) & 1 == 1;
    if !can {
        eprintln!("skipped: only root with CAP_SYS_ADMIN can make a sandbox");
    }
    can
}

/// A folder in place of a delegated cgroup.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| std::fs::write(base.path().join(file), text).unwrap();
        std::fs::create_dir(base.path().join("main")).unwrap();
        put("main/cgroup.kill", "");
        put("cgroup.controllers", "memory pids\n");
        put("cgroup.procs", "");
        Self(base)
    }

    fn run(&self, sandbox: Option<Sandbox>, argv: &[&str]) -> Finished {
        let guard = Guard::below(self.0.path(), MUSTER_NODE).unwrap();
        let call = Call {
            argv,
            kills_leftovers: true,
            guard: Some(&guard),
            sandbox,
            ..Call::default()
        };
        run(&JobContext::foreground(Duration::from_secs(120)), &call).unwrap()
    }

    /// Returns the exit status of a program with access to disks.
    fn status(&self, disks: Disks, argv: &[&str]) -> Option<i32> {
        self.run(Some(at_disks(disks)), argv).status.code()
    }

    /// Returns a line of the status of a process.
    fn own_status(&self, sandbox: Option<Sandbox>, name: &str) -> String {
        let finished = self.run(sandbox, &["cat", "/proc/self/status"]);
        let text = String::from_utf8(finished.stdout).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    }

    /// Returns whether a process has a capability.
    fn has(&self, sandbox: Option<Sandbox>, capability: u32) -> bool {
        [
            self.own_status(sandbox, "CapBnd"),
            self.own_status(sandbox, "CapEff"),
        ]
        .iter()
        .all(|set| (u64::from_str_radix(set, 16).unwrap() >> capability) & 1 == 1)
    }
}

fn at_disks(disks: Disks) -> Sandbox {
    Sandbox {
        network: Network::Off,
        disks,
    }
}

/// A disk in a file.
struct Loop(PathBuf);

impl Loop {
    /// `None`, with the reason on stderr, on a machine without loop devices.
    fn attach(file: &Path) -> Option<Self> {
        std::fs::write(file, vec![0; 1 << 20]).unwrap();
        let ended = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .unwrap();
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            eprintln!("skipped: losetup made no disk: {said}");
            return None;
        }
        let path = String::from_utf8(ended.stdout).unwrap();
        Some(Self(path.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn a_tool_reaches_the_network_of_its_sandbox_and_no_other() {
    if !can_make_sandboxes() {
        return;
    }
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let status = |network: Network, script: &str| {
        let disks = Disks::Hidden;
        let sandbox = Sandbox { network, disks };
        let ended = bench.run(Some(sandbox), &["perl", "-e", script, &port]);
        ended.status.code()
    };
    assert_eq!(status(Network::Host, CONNECT), Some(0));
    assert_eq!(status(Network::Loopback, CONNECT), Some(3));
    assert_eq!(status(Network::Off, CONNECT), Some(3));
    assert_eq!(status(Network::Loopback, MEET), Some(0));
    assert_ne!(status(Network::Off, MEET), Some(0));
}

#[test]
fn a_disk_is_written_only_by_a_tool_of_a_gate_that_writes() {
    if !can_make_sandboxes() {
        return;
    }
    let (bench, folder) = (Bench::new(), tempfile::tempdir().unwrap());
    let file = folder.path().join("disk");
    let Some(disk) = Loop::attach(&file) else {
        return;
    };
    let device = disk.0.to_str().unwrap();
    let write = |disks, text| bench.status(disks, &["perl", "-e", WRITE, device, text]);
    let content = || std::fs::read(&file).unwrap()[..6].to_vec();
    assert_eq!(write(Disks::Write, "muster"), Some(0));
    assert_eq!(content(), b"muster");
    for disks in [Disks::Hidden, Disks::Query] {
        assert_eq!(write(disks, "robber"), Some(3), "{disks}");
        assert_eq!(content(), b"muster", "{disks}");
    }
    let read = ["perl", "-e", READ, device];
    let shown = bench.run(Some(at_disks(Disks::Query)), &read);
    assert_eq!(shown.stdout, b"muster");
    assert_eq!(bench.status(Disks::Hidden, &read), Some(3));
    // The node of the machine is as before.
    assert_eq!(write(Disks::Write, "writer"), Some(0));
    assert_eq!(content(), b"writer");
}

#[test]
fn a_tool_cannot_uncover_a_disk() {
    if !can_make_sandboxes() {
        return;
    }
    let (bench, folder) = (Bench::new(), tempfile::tempdir().unwrap());
    let Some(disk) = Loop::attach(&folder.path().join("disk")) else {
        return;
    };
    let device = disk.0.to_str().unwrap();
    let node = folder.path().join("node");
    let mknod = ["mknod", node.to_str().unwrap(), "b", "7", "0"];
    let namespace = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "umount",
        device,
    ];
    for argv in [&["umount", device][..], &mknod, &namespace] {
        assert_ne!(bench.status(Disks::Hidden, argv), Some(0), "{argv:?}");
    }
    for argv in [
        &["chmod", "0666", device][..],
        &["chown", "0", device],
        &mknod,
    ] {
        assert_ne!(bench.status(Disks::Query, argv), Some(0), "{argv:?}");
    }
    assert!(!node.exists());
    assert_eq!(bench.status(Disks::Write, &mknod), Some(0));
}

#[test]
fn a_tool_has_the_rights_of_its_sandbox_alone() {
    if !can_make_sandboxes() {
        return;
    }
    let bench = Bench::new();
    let [hidden, query, write] =
        [Disks::Hidden, Disks::Query, Disks::Write].map(|disks| Some(at_disks(disks)));
    assert!(bench.has(None, SETFCAP) && bench.has(None, SYS_ADMIN));
    for sandbox in [hidden, query, write] {
        assert!(!bench.has(sandbox, SETFCAP), "{sandbox:?}");
        assert_eq!(bench.own_status(sandbox, "NoNewPrivs"), "1");
    }
    for capability in [SYS_ADMIN, SYS_RAWIO] {
        let own = bench.has(None, capability);
        assert_eq!(
            [query, write].map(|set| bench.has(set, capability)),
            [own; 2]
        );
        assert!(!bench.has(hidden, capability));
    }
    assert!(bench.has(write, MKNOD) && !bench.has(query, MKNOD) && !bench.has(hidden, MKNOD));
}

#[test]
fn a_tool_does_not_start_where_its_sandbox_cannot_be_made() {
    if !can_make_sandboxes() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Runs `exec-tool` as the last words of a command, and returns the report.
    let start = |before: &[&str], started: &Path| {
        let words = ["exec-tool", "-", "65536", "none", "hidden", "--", "touch"];
        let argv: Vec<&str> = [before, &[MUSTER_NODE], &words].concat();
        let (mut report, writer) = std::io::pipe().unwrap();
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]).arg(started).stdin(writer);
        command.output().unwrap();
        // The command holds the other end of the pipe.
        drop(command);
        let mut told = Vec::new();
        report.read_to_end(&mut told).unwrap();
        told
    };
    let (with, without) = (folder.path().join("with"), folder.path().join("without"));
    assert_eq!(start(&[], &with), [3]);
    assert!(with.exists());
    let weak = ["setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin"];
    assert_eq!(start(&weak, &without), [4, 1, 0, 0, 0]);
    assert!(!without.exists());
}
