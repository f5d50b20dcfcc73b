//! Machines on one switch, made of namespaces: a bridge, a network namespace and a folder for each, all of it gone with the one process that made it.
//! Needs `unshare`, `ip` and `tc`, and no rights.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use muster_core::gates::{GateResult, PROFILES, SUITES, Shipped, Suite};
use muster_core::wire::pair::PairLine;
use serde_json::Value;

const INSIDE: &str = "MUSTER_INSIDE_RACK";
/// In Gb/s: a tenth of it is a slow link, and whatever two busy cores do is more.
const FLOOR: &str = "0.1";

/// Runs a test in user, network, mount and process namespaces of its own: what it leaves behind ends with it, however it ends.
pub(crate) fn within(test: &str, machines: usize, body: fn(&Rack)) {
    if std::env::var_os(INSIDE).is_some() {
        return body(&Rack::build(machines));
    }
    let spaces = [
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    let ended = Command::new("unshare")
        .args(spaces)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let told = format!(
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
    assert!(
        ended.status.success() && told.contains("1 passed"),
        "{told}"
    );
}

pub(crate) struct Rack {
    folder: tempfile::TempDir,
    machines: usize,
}

/// A listening end.
pub(crate) struct Listener {
    pub(crate) child: Child,
    pub(crate) lines: BufReader<std::process::ChildStdout>,
    pub(crate) port: u16,
}

fn run(words: &[&str]) {
    let ended = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(
        ended.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

/// A line of words.
fn sh(line: &str) {
    run(&line.split_whitespace().collect::<Vec<_>>());
}

fn listening(mut child: Child) -> Listener {
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    match serde_json::from_str(&line) {
        Ok(PairLine::Listening { port }) => Listener { child, lines, port },
        other => panic!("{other:?}: {line:?}"),
    }
}

impl Rack {
    fn build(machines: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        sh("mount -t tmpfs rack /run");
        sh("ip link add br0 type bridge");
        sh("ip link set br0 up");
        for n in 0..machines {
            sh(&format!("ip netns add n{n}"));
            sh(&format!(
                "ip link add p{n} type veth peer name eth0 netns n{n}"
            ));
            sh(&format!("ip link set p{n} master br0 up"));
            sh(&format!(
                "ip -n n{n} addr add 10.66.0.{}/24 dev eth0",
                n + 1
            ));
            sh(&format!("ip -n n{n} link set eth0 up"));
            sh(&format!("ip -n n{n} link set lo up"));
            std::fs::create_dir(folder.path().join(format!("n{n}"))).unwrap();
        }
        let rack = Self { folder, machines };
        let pairs = Shipped::find(SUITES, "pairs")
            .unwrap()
            .text
            .replace("\"--time\", \"5\"", "\"--time\", \"1\"");
        std::fs::write(rack.file("pairs.toml"), pairs).unwrap();
        let profile = Shipped::find(PROFILES, "virtual-node").unwrap().text;
        let seed = "\"network.pair\" = { value = 0.005";
        assert!(profile.contains(seed));
        let floor = format!("\"network.pair\" = {{ value = {FLOOR}");
        std::fs::write(rack.file("profile.toml"), profile.replace(seed, &floor)).unwrap();
        rack
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn machines(&self) -> usize {
        self.machines
    }

    pub(crate) fn address(n: usize) -> String {
        format!("10.66.0.{}", n + 1)
    }

    /// What a machine sends goes slowly, as through a port that trained down.
    pub(crate) fn slow_down(&self, n: usize) {
        sh(&format!(
            "ip netns exec n{n} tc qdisc add dev eth0 root tbf rate 10mbit burst 16kb latency 50ms"
        ));
    }

    pub(crate) fn mend(&self, n: usize) {
        sh(&format!("ip netns exec n{n} tc qdisc del dev eth0 root"));
    }

    /// A slow way between two machines alone; to everybody else they go as before.
    pub(crate) fn slow_path(&self, a: usize, b: usize) {
        sh(&format!(
            "ip link add d0 netns n{a} type veth peer name d0 netns n{b}"
        ));
        for (here, there) in [(a, b), (b, a)] {
            sh(&format!("ip -n n{here} link set d0 up"));
            sh(&format!(
                "ip netns exec n{here} tc qdisc add dev d0 root tbf rate 10mbit burst 16kb latency 50ms"
            ));
            sh(&format!(
                "ip -n n{here} route add {}/32 dev d0 src {}",
                Self::address(there),
                Self::address(here)
            ));
        }
    }

    /// muster-node on a machine.
    pub(crate) fn node(&self, n: usize, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args([
                "netns",
                "exec",
                &format!("n{n}"),
                env!("CARGO_BIN_EXE_muster-node"),
                "pair",
            ])
            .args(words);
        command
            .env("MUSTER_ROOT", self.file(&format!("n{n}")))
            .current_dir(self.folder.path());
        command
    }

    /// The options that name a gate of the rack's own suite.
    pub(crate) fn gate<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec![
            verb,
            "--suite",
            "pairs.toml",
            "--profile",
            "profile.toml",
            "--drained",
            "--only",
            "iperf3-pair",
        ];
        words.extend(more);
        words
    }

    /// Starts an end that listens, by hand, and waits for its port.
    pub(crate) fn serve(&self, n: usize, words: &[&str]) -> Listener {
        let mut command = self.node(n, words);
        listening(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// The same as an agent does it: the plan on stdin, which stays open.
    pub(crate) fn serve_planned(&self, n: usize, plan: &[u8]) -> Listener {
        let mut command = self.node(n, &["serve", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(plan).unwrap();
        listening(child)
    }

    /// The other end, by hand.
    pub(crate) fn ask(&self, from: usize, to: usize, port: u16) -> (Output, GateResult) {
        let (peer, port) = (
            format!("peer_address={}", Self::address(to)),
            format!("pair_port={port}"),
        );
        let words = Self::gate("ask", &["--set", &peer, "--set", &port, "--json"]);
        let ended = self.node(from, &words).output().unwrap();
        let report: Value = serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&ended.stderr)));
        let result = serde_json::from_value(report["results"][0].clone()).unwrap();
        (ended, result)
    }

    /// Command lines of every process of the rack that runs one of these programs.
    pub(crate) fn left(&self, programs: &[&str]) -> Vec<String> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes
            .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
        let named = |line: &String| {
            let program = Path::new(line.split('\0').next().unwrap_or_default()).file_name();
            program.is_some_and(|name| programs.iter().any(|known| name == *known))
        };
        lines
            .filter(named)
            .map(|line| line.replace('\0', " "))
            .collect()
    }
}

/// The suite as it is shipped.
pub(crate) fn shipped() -> Suite {
    toml::from_str(Shipped::find(SUITES, "pairs").unwrap().text).unwrap()
}
