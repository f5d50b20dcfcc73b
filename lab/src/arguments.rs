//! Arguments of the verbs that have many.

use std::path::PathBuf;

use muster_lab::fleet::Until;
use muster_lab::plan::AccelPlan;

/// Where the demo finds its parts; `make demo` knows.
#[derive(clap::Args)]
pub(crate) struct DemoArguments {
    /// Where the rack, the database and the logs go; emptied first.
    #[arg(long, default_value = ".demo")]
    pub dir: PathBuf,
    /// The muster binary.
    #[arg(long, default_value = "target/debug/muster")]
    pub muster: PathBuf,
    /// The static node program.
    #[arg(long)]
    pub muster_node: PathBuf,
    /// What the image builds left.
    #[arg(long, default_value = ".cache")]
    pub cache: PathBuf,
    /// The stack with its lock.
    #[arg(long)]
    pub stack: PathBuf,
    /// Blobs of the stack's bundle.
    #[arg(long)]
    pub bundle: PathBuf,
    /// The suite the pool demands.
    #[arg(long, default_value = "suites/admit-cpu.toml")]
    pub suite: PathBuf,
    /// The hardware profile of the rack's machines.
    #[arg(long, default_value = "suites/profiles/virtual-node.toml")]
    pub profile: PathBuf,
    /// How machines run: `probe` takes KVM where it shows that it works.
    #[arg(long, value_enum, default_value_t)]
    pub accel: AccelPlan,
    /// Port of the console on this host's loopback.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Folder of the browser test, to be run against the console at the end.
    #[arg(long)]
    pub browser: Option<PathBuf>,
    /// End after the main job.
    #[arg(long)]
    pub once: bool,
    /// Kill the agent, the server and the database in the middle of the work.
    #[arg(long)]
    pub kills: bool,
    /// Afterwards, adopt a machine that somebody else built, with a Slurm job on it.
    #[arg(long)]
    pub adopt: bool,
    /// Do that instead of the main job.
    #[arg(long, conflicts_with_all = ["adopt", "kills", "browser"])]
    pub only_adopt: bool,
    /// Instead of it, have six machines in service fail in several ways, and be recovered.
    #[arg(long, conflicts_with_all = ["adopt", "only_adopt", "kills", "browser"])]
    pub only_recoveries: bool,
    /// Instead of it, have six machines in service measure what lies between them, over TCP and RDMA, while it is well and while it is not.
    #[arg(long, conflicts_with_all = ["adopt", "only_adopt", "only_recoveries", "kills", "browser"])]
    pub only_fabric: bool,
    /// Instead of it, have a machine in service keep five packages of its stack through a power cut, automatic updates, a person's hands, a full disk and
    /// another package manager.
    #[arg(long, conflicts_with_all = ["adopt", "only_adopt", "only_recoveries", "only_fabric", "kills", "browser"])]
    pub only_pins: bool,
}

/// A simulated fleet.
#[derive(clap::Args)]
pub(crate) struct FleetArguments {
    /// How many nodes.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub nodes: u32,
    /// Simulated seconds in a real one: at 100, a boot of five minutes takes three seconds.
    #[arg(long, default_value_t = 100.0)]
    pub speed: f64,
    /// What latencies and failures are drawn from; without it one is picked and printed.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Per cent of jobs that fail, a fifth of them for good.
    #[arg(long, default_value_t = 0.0)]
    pub failures: f64,
    /// Kill the server and the agent by SIGKILL, in turn.
    #[arg(long)]
    pub kills: bool,
    /// Seconds between two kills.
    #[arg(long, default_value_t = 4.0)]
    pub kill_every: f64,
    /// The last thing that is done with each node.
    #[arg(long, value_enum, default_value_t = Until::Released)]
    pub until: Until,
    /// Rehearse against the server that runs at this URL; the fleet stays declared there, under the site `simulated`.
    #[arg(long, requires_all = ["token_file", "agent_server"])]
    pub server: Option<String>,
    /// A file that holds an administrator's token for it.
    #[arg(long, requires = "server")]
    pub token_file: Option<PathBuf>,
    /// Its agents' listener: `https://10.0.0.5:8081`.
    #[arg(long, requires = "server")]
    pub agent_server: Option<String>,
    /// The muster binary, for a server of its own.
    #[arg(long, default_value = "target/debug/muster")]
    pub muster: PathBuf,
    /// Where the database, the machines and the logs go; emptied first.
    #[arg(long, default_value = ".fleet")]
    pub dir: PathBuf,
    /// Fail when it is not over after this many seconds.
    #[arg(long, default_value_t = 1800)]
    pub timeout_s: u64,
    /// Print the report as JSON, and nothing else.
    #[arg(long)]
    pub json: bool,
}

/// The agent process of a simulated fleet.
#[derive(clap::Args)]
pub(crate) struct FleetAgentArguments {
    /// The server's agent listener.
    #[arg(long)]
    pub server: String,
    /// A file that holds the agent's token.
    #[arg(long)]
    pub token_file: PathBuf,
    /// The directory the machines are kept in.
    #[arg(long)]
    pub machines: PathBuf,
}
