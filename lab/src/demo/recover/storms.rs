//! Tools of gates that fork or take memory without end, on a machine in service. The limits of
//! muster-node stop both tools, and the machine continues without a boot.

use anyhow::{Context, ensure};
use muster_core::gates::PROGRAMS_FOLDER;
use serde_json::Value;

use super::cast::Cast;

const SUITE: &str = include_str!("storms.toml");
/// The tools: forks without end, each child in a session of its own; and memory without end.
const TOOLS: [(&str, &str); 2] = [
    (
        "muster-storm-processes",
        "#!/usr/bin/perl\nuse POSIX;\nfor (1..20000) { my $child = fork; next unless defined $child; \
         if (!$child) { POSIX::setsid(); sleep 600; exit } }\nsleep 600;\n",
    ),
    (
        "muster-storm-memory",
        "#!/usr/bin/perl\nmy @held;\npush @held, 'x' x (8 << 20) while 1;\n",
    ),
];
/// Runs a gate by hand, as root.
const RUN: &str = "/usr/local/sbin/muster-node gate --suite /root/storms.toml --profile virtual-node --json --only";
/// Starts a command in a scope with a limit of processes. The machine's shell reads the quotes.
const SCOPE: &str = "systemd-run --scope --quiet --collect '--property=Delegate=pids memory' --property=TasksMax=400 \
                     --unit=muster-gate-storms";
/// Counts the processes of both tools. The brackets keep the pattern from its own command line.
const LEFT: &str = "pgrep -fc '[m]uster-storm' || true";
/// Counts the cgroups of tools, and the scopes of gates run by hand. systemd removes a scope after
/// the end of its last process.
const CGROUPS: &str = "for try in $(seq 50); do left=$(find /sys/fs/cgroup -name 'tool-*' -o -name 'muster-gate-*' | wc -l); \
                       [ $left = 0 ] && break; sleep 0.2; done; echo $left";

/// A gate that is stopped at a limit.
struct Storm {
    gate: &'static str,
    /// The command that starts muster-node; empty for a scope made by muster-node.
    starter: &'static str,
    /// The end of the reason.
    end: &'static str,
}

const STORMS: [Storm; 2] = [
    Storm {
        gate: "storm.processes",
        starter: SCOPE,
        // Three quarters of the scope's limit.
        end: "limit of 300 processes",
    },
    Storm {
        gate: "storm.memory",
        starter: "",
        // By the limit of the tool, or by the memory of the node: other programs use a part.
        end: "of memory",
    },
];

/// Runs both tools, and checks the reasons and the traces left behind.
pub(super) async fn tell(cast: &mut Cast<'_>, node: &str) -> anyhow::Result<()> {
    let file = cast.dir.join("storms.toml");
    std::fs::write(&file, SUITE)?;
    for (name, text) in TOOLS {
        std::fs::write(cast.dir.join(name), text)?;
    }
    let veteran = cast.veteran(node)?;
    veteran.give(&file, "/root/storms.toml").await?;
    let create = format!("install -d -m 755 {PROGRAMS_FOLDER}");
    veteran.run(&[create.as_str()]).await?;
    for (name, _) in TOOLS {
        let path = format!("{PROGRAMS_FOLDER}/{name}");
        veteran.give(&cast.dir.join(name), &path).await?;
        let executable = format!("chown root:root {path} && chmod 755 {path}");
        veteran.run(&[executable.as_str()]).await?;
    }
    let boot = veteran.boot_id().await?;
    for Storm { gate, starter, end } in STORMS {
        // The exit status of a gate without an answer is no failure here.
        let command = format!("{starter} {RUN} {gate} || true");
        let said = veteran.run(&[command.as_str()]).await?;
        let document: Value =
            serde_json::from_str(&said).with_context(|| format!("no JSON: {said}"))?;
        let result = &document["results"][0];
        let reason = result["reason"].as_str().unwrap_or_default();
        println!("{gate}: {reason}");
        ensure!(
            result["gate"] == gate && result["verdict"] == "error" && reason.ends_with(end),
            "{gate} was not stopped at a limit: {result}"
        );
    }
    for (name, _) in TOOLS {
        let remove = format!("rm {PROGRAMS_FOLDER}/{name}");
        veteran.run(&[remove.as_str()]).await?;
    }
    for count in [LEFT, CGROUPS] {
        let left = veteran.run(&[count]).await?;
        ensure!(left.trim() == "0", "{count}: {left}");
    }
    ensure!(veteran.boot_id().await? == boot, "{node} booted");
    cast.serves(node).await
}
