//! Arguments of the larger subcommands.

use std::path::PathBuf;

use muster_lab::fleet::Until;
use muster_lab::plan::AccelPlan;

/// The parts of the demo, as given by `make demo`.
#[derive(clap::Args)]
pub(crate) struct DemoArguments {
    /// Directory of the rack, the database and the logs. Emptied first.
    #[arg(long, default_value = ".demo")]
    pub dir: PathBuf,
    /// The muster binary.
    #[arg(long, default_value = "target/debug/muster")]
    pub muster: PathBuf,
    /// The static node program.
    #[arg(long)]
    pub muster_node: PathBuf,
    /// Directory of the built images.
    #[arg(long, default_value = ".cache")]
    pub cache: PathBuf,
    /// The stack with its lock.
    #[arg(long)]
    pub stack: PathBuf,
    /// Blobs of the stack's bundle.
    #[arg(long)]
    pub bundle: PathBuf,
    /// The suite required by the pool.
    #[arg(long, default_value = "suites/admit-cpu.toml")]
    pub suite: PathBuf,
    /// The hardware profile of the rack's machines.
    #[arg(long, default_value = "suites/profiles/virtual-node.toml")]
    pub profile: PathBuf,
    /// How machines run: `probe` selects KVM if KVM works.
    #[arg(long, value_enum, default_value_t)]
    pub accel: AccelPlan,
    /// Port of the console on this host's loopback.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Folder of the browser test, run against the console at the end.
    #[arg(long)]
    pub browser: Option<PathBuf>,
    /// End after the main job.
    #[arg(long)]
    pub once: bool,
    /// Kill the agent, the server and the database in the middle of the work.
    #[arg(long)]
    pub kills: bool,
    /// Afterwards, adopt a machine installed without Muster, with a running Slurm job.
    #[arg(long)]
    pub adopt: bool,
    /// Only adopt such a machine.
    #[arg(long, conflicts_with_all = ["adopt", "kills", "browser"])]
    pub only_adopt: bool,
    /// Only the recoveries: six machines in service fail in several ways, and recover.
    #[arg(long, conflicts_with_all = ["adopt", "only_adopt", "kills", "browser"])]
    pub only_recoveries: bool,
    /// Only the fabric: six machines in service measure the network between each other, over TCP and RDMA, healthy and faulty.
    #[arg(long, conflicts_with_all = ["adopt", "only_adopt", "only_recoveries", "kills", "browser"])]
    pub only_fabric: bool,
    /// Only the pins: a machine in service keeps five packages of the stack through a power cut, automatic updates, manual changes, a full disk and
    /// another package manager.
    #[arg(long, conflicts_with_all = ["adopt", "only_adopt", "only_recoveries", "only_fabric", "kills", "browser"])]
    pub only_pins: bool,
    /// Only the rollouts: a pool of machines in service with jobs moves to new revisions; one is halted by a failing gate, one waits for a person, one
    /// brings firmware, and one reinstalls a node. Server and agent are killed.
    #[arg(long, conflicts_with_all = ["adopt", "only_adopt", "only_recoveries", "only_fabric", "only_pins", "kills", "browser"])]
    pub only_rollouts: bool,
    /// Only the CUDA stack: a machine gets Debian 13 and a GPU driver, moves to another branch of
    /// the driver and back under faults, and keeps kernel and driver together. `--stack` is branch
    /// 550; branch 535 is in the cache.
    #[arg(long, conflicts_with_all = ["adopt", "only_adopt", "only_recoveries", "only_fabric", "only_pins", "only_rollouts", "kills", "browser"])]
    pub only_cuda: bool,
    /// Number of machines of the rollouts.
    #[arg(long, requires = "only_rollouts", default_value_t = 6, value_parser = clap::value_parser!(u8).range(4..=6))]
    pub machines: u8,
    /// The `muster` of the version before. Server and agent start with it, and are upgraded in the middle of the first rollout.
    #[arg(long, requires = "only_rollouts")]
    pub before: Option<PathBuf>,
}

/// A simulated fleet.
#[derive(clap::Args)]
pub(crate) struct FleetArguments {
    /// Number of nodes.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub nodes: u32,
    /// Simulated seconds per second. At 100, a boot of five minutes takes three seconds.
    #[arg(long, default_value_t = 100.0)]
    pub speed: f64,
    /// Seed of latencies and failures. Without a seed, a random seed is chosen and printed.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Failing jobs in per cent. A fifth of the failures needs a person.
    #[arg(long, default_value_t = 0.0)]
    pub failures: f64,
    /// Kill the server and the agent by SIGKILL, in turn.
    #[arg(long)]
    pub kills: bool,
    /// Seconds between two kills.
    #[arg(long, default_value_t = 4.0)]
    pub kill_every: f64,
    /// The last act for each node.
    #[arg(long, value_enum, default_value_t = Until::Released)]
    pub until: Until,
    /// Afterwards, move the fleet in service with jobs to another revision, and back; every commit is checked against the disruption budgets.
    #[arg(long, conflicts_with_all = ["server", "until"])]
    pub rollout: bool,
    /// Median length of a job on a node in service, in simulated seconds.
    #[arg(long, default_value_t = 3600.0, requires = "rollout")]
    pub job_s: f64,
    /// URL of a running server for a rehearsal. The fleet stays declared on the server, under the site `simulated`.
    #[arg(long, requires_all = ["token_file", "agent_server"])]
    pub server: Option<String>,
    /// File with an administrator's token for the server.
    #[arg(long, requires = "server")]
    pub token_file: Option<PathBuf>,
    /// The agents' listener of the server: `https://10.0.0.5:8081`.
    #[arg(long, requires = "server")]
    pub agent_server: Option<String>,
    /// The muster binary, for a server started by the run.
    #[arg(long, default_value = "target/debug/muster")]
    pub muster: PathBuf,
    /// Directory of the database, the machines and the logs. Emptied first.
    #[arg(long, default_value = ".fleet")]
    pub dir: PathBuf,
    /// Time limit of the run in seconds.
    #[arg(long, default_value_t = 1800)]
    pub timeout_s: u64,
    /// Print only the report, as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The fleet to look at.
#[derive(clap::Args)]
pub(crate) struct LookArguments {
    /// Number of nodes.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub nodes: u32,
    /// Port of the console on this host's loopback.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Simulated seconds per second. At 20, a boot of five minutes takes 15 seconds.
    #[arg(long, default_value_t = 20.0)]
    pub speed: f64,
    /// Failing jobs in per cent. A fifth of the failures needs a person.
    #[arg(long, default_value_t = 5.0)]
    pub failures: f64,
    /// The muster binary.
    #[arg(long, default_value = "target/debug/muster")]
    pub muster: PathBuf,
    /// Directory of the database, the machines and the logs. Emptied first.
    #[arg(long, default_value = ".look")]
    pub dir: PathBuf,
}

/// The agent process of a simulated fleet.
#[derive(clap::Args)]
pub(crate) struct FleetAgentArguments {
    /// The server's agent listener.
    #[arg(long)]
    pub server: String,
    /// File with the agent's token.
    #[arg(long)]
    pub token_file: PathBuf,
    /// Directory of the machines.
    #[arg(long)]
    pub machines: PathBuf,
}
