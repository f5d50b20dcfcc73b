//! A real Slurm controller in the rack's namespace: munged and slurmctld (Debian 12: 22.05), with no node at first.
//!
//! Facts of 22.05.8, seen here, that whoever manages the included files has to live with:
//!
//! * Nodes get the configuration from the controller (`slurmd --conf-server 10.77.0.1:6817`), included files too.
//! * `scontrol reconfigure` after a node was added or removed *ends slurmctld*: "node count has changed before reconfiguration
//!   ... You have to restart slurmctld", then fatal. Write the files, then `scontrol shutdown slurmctld`: it saves its state,
//!   ends, and is started again here as a service manager would. Running jobs do not notice.
//! * A controller without any partition does not start, and a partition declared twice is fatal. The lab's own configuration
//!   declares a hidden partition `none`, so that the included file may be empty and may declare any other.
//! * `topology/tree` starts without switches ("No switches configured" is only logged).
//! * Debian's slurmd.service has `ConditionPathExists=/etc/slurm/slurm.conf`; a node without that file needs a drop-in.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use crate::error::{LabError, io};
use crate::plan::GATEWAY;
use crate::rack::{Enclosure, Netns, Rack};
use crate::supervisor::Supervised;

/// slurmctld's port.
pub const PORT: u16 = 6817;
/// The files nodes, GPUs and switches are declared in, inside [`Slurm::include_dir`].
pub const INCLUDED: [&str; 3] = [
    "muster-nodes.conf",
    "muster-gres.conf",
    "muster-topology.conf",
];
/// The partition of nodes that are in the cluster by another hand than Muster's.
pub const OTHERS_PARTITION: &str = "old";
/// The file that hand declares them in.
const OTHERS: &str = "others.conf";
/// Where Slurm on any host expects munge.
const MUNGE_SOCKET: &str = "/run/munge/munge.socket.2";
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest any client command may take, `srun` included.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A running controller.
#[derive(Debug)]
pub struct Slurm {
    /// Its directory, `slurm` in the rack's.
    pub dir: PathBuf,
    /// `SLURM_CONF` for commands on this host: the controller's configuration, plus where the lab's munge is.
    pub client_conf: PathBuf,
    /// Where the included files are; see [`INCLUDED`].
    pub include_dir: PathBuf,
    /// The munge key that nodes need too, readable by root alone.
    pub munge_key: PathBuf,
    netns: Netns,
    munged: Supervised,
    slurmctld: Supervised,
}

impl Slurm {
    /// Starts a controller with the configuration, key and state that an earlier one left in the rack's directory, or anew.
    /// Returns once it answers.
    pub async fn start(rack: &Rack) -> Result<Self, LabError> {
        let dir = rack.dir.join("slurm");
        write_configuration(&dir)?;
        let netns = rack.netns.clone();
        let munged = Supervised::start("munged", rack.closing(), start_munged(&dir, &netns))?;
        let slurmctld =
            Supervised::start("slurmctld", rack.closing(), start_slurmctld(&dir, &netns))?;
        let slurm = Self {
            client_conf: dir.join("etc/client.conf"),
            include_dir: dir.join("etc"),
            munge_key: dir.join("etc/munge.key"),
            dir,
            netns,
            munged,
            slurmctld,
        };
        match slurm.wait_until_up().await {
            Ok(()) => Ok(slurm),
            Err(error) => {
                let said =
                    fs::read_to_string(slurm.dir.join("log/slurmctld.out")).unwrap_or_default();
                let last = said
                    .lines()
                    .rev()
                    .find(|line| line.contains("fatal") || line.contains("error"))
                    .unwrap_or_default();
                let why = format!("{error}; {last}");
                slurm.close().await;
                Err(LabError::Command {
                    command: "slurmctld".to_owned(),
                    why,
                })
            }
        }
    }

    /// A Slurm command (`sinfo`, `scontrol`, `srun`...) inside the namespace that talks to this controller.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.netns.command(program);
        command
            .env("SLURM_CONF", &self.client_conf)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a Slurm command and returns what it printed.
    pub async fn run(&self, program: &str, arguments: &[&str]) -> Result<String, LabError> {
        let command = || format!("{program} {}", arguments.join(" "));
        let running = self.command(program).args(arguments).output();
        let late = |_| LabError::Timeout {
            what: command(),
            after: COMMAND_TIMEOUT,
        };
        let output = tokio::time::timeout(COMMAND_TIMEOUT, running)
            .await
            .map_err(late)?;
        let Output {
            status,
            stdout,
            stderr,
        } = output.map_err(io(command()))?;
        match status.success() {
            true => Ok(String::from_utf8_lossy(&stdout).into_owned()),
            false => {
                let why = format!("{status}: {}", String::from_utf8_lossy(&stderr).trim());
                Err(LabError::Command {
                    command: command(),
                    why,
                })
            }
        }
    }

    /// `sinfo -N`: a line per node and partition: node, state, partition.
    pub async fn sinfo(&self) -> Result<String, LabError> {
        self.run("sinfo", &["-N", "-h", "-o", "%N %T %P"]).await
    }

    /// `scontrol ARGUMENTS`.
    pub async fn scontrol(&self, arguments: &[&str]) -> Result<String, LabError> {
        self.run("scontrol", arguments).await
    }

    /// `srun ARGUMENTS`.
    pub async fn srun(&self, arguments: &[&str]) -> Result<String, LabError> {
        self.run("srun", arguments).await
    }

    /// Lists a node in the cluster as its admin would, in a file that is not Muster's.
    pub async fn list_others(&self, name: &str, address: Ipv4Addr) -> Result<(), LabError> {
        let text = format!(
            "NodeName={name} NodeAddr={address} CPUs=1 RealMemory=1000 State=UNKNOWN\n\
             PartitionName={OTHERS_PARTITION} Nodes={name} MaxTime=INFINITE State=UP\n"
        );
        fs::write(self.include_dir.join(OTHERS), text).map_err(io(format!("write {OTHERS}")))?;
        self.restart().await
    }

    /// Restarts slurmctld and waits until the new one answers; jobs go on running.
    pub async fn restart(&self) -> Result<(), LabError> {
        let before = self.started().await?;
        self.slurmctld.restart();
        let deadline = Instant::now() + START_TIMEOUT;
        while self.started().await.ok().is_none_or(|now| now == before) {
            if Instant::now() > deadline {
                return Err(LabError::Timeout {
                    what: "slurmctld to restart".to_owned(),
                    after: START_TIMEOUT,
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Ends both daemons. The rack's closing would, too.
    pub async fn close(self) {
        self.slurmctld.close().await;
        self.munged.close().await;
    }

    /// What tells one slurmctld from the next: its process.
    async fn started(&self) -> Result<String, LabError> {
        if !self.scontrol(&["ping"]).await?.contains("is UP") {
            return Err(LabError::Unknown("slurmctld that answers".to_owned()));
        }
        let pid = self.dir.join("slurmctld.pid");
        fs::read_to_string(&pid).map_err(io(format!("read {}", pid.display())))
    }

    async fn wait_until_up(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + START_TIMEOUT;
        while self.started().await.is_err() {
            if Instant::now() > deadline {
                return Err(LabError::Timeout {
                    what: "slurmctld to answer".to_owned(),
                    after: START_TIMEOUT,
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// What makes this host look to a Slurm daemon like one of its own.
fn enclosure(dir: &Path) -> Enclosure {
    Enclosure {
        links: vec![(PathBuf::from(MUNGE_SOCKET), dir.join("munge.socket"))],
        ..Enclosure::default()
    }
}

fn start_munged(dir: &Path, netns: &Netns) -> impl Fn() -> Result<Child, LabError> + Send + use<> {
    let (dir, netns) = (dir.to_owned(), netns.clone());
    move || {
        let file = |option: &str, name: &str| format!("--{option}={}", dir.join(name).display());
        let mut command = Command::new("munged");
        // Forced, because it would have every directory above its socket open to all users, and the rack's is root's alone.
        command
            .args(["--foreground", "--force", "--num-threads=2"])
            .args([
                file("key-file", "etc/munge.key"),
                file("socket", "munge.socket"),
                file("pid-file", "munged.pid"),
                file("log-file", "log/munged.log"),
                file("seed-file", "munged.seed"),
            ]);
        spawn(&dir, &netns, command, "log/munged.out")
    }
}

fn start_slurmctld(
    dir: &Path,
    netns: &Netns,
) -> impl Fn() -> Result<Child, LabError> + Send + use<> {
    let (dir, netns) = (dir.to_owned(), netns.clone());
    move || {
        let mut command = Command::new("slurmctld");
        command.args(["-D", "-f"]).arg(dir.join("etc/slurm.conf"));
        spawn(&dir, &netns, command, "log/slurmctld.out")
    }
}

fn spawn(dir: &Path, netns: &Netns, mut command: Command, said: &str) -> Result<Child, LabError> {
    let path = dir.join(said);
    let said = fs::File::create(&path).map_err(io(format!("make {}", path.display())))?;
    let also = said.try_clone().map_err(io("share a log"))?;
    command
        .stdin(Stdio::null())
        .stdout(said)
        .stderr(also)
        .kill_on_drop(true);
    netns.spawn_enclosed(&enclosure(dir), command)
}

fn write_configuration(dir: &Path) -> Result<(), LabError> {
    for sub in ["etc", "log", "state"] {
        fs::create_dir_all(dir.join(sub)).map_err(io(format!("make {}/{sub}", dir.display())))?;
        // munged refuses directories that others may write to, whatever the umask.
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.join(sub), mode).map_err(io("set a directory's mode"))?;
    }
    let etc = dir.join("etc");
    let write = |name: &str, text: &str| {
        fs::write(etc.join(name), text).map_err(io(format!("write {name}")))
    };
    let key = etc.join("munge.key");
    if !key.exists() {
        let mut options = fs::OpenOptions::new();
        let file = options.create_new(true).write(true).mode(0o400).open(&key);
        let secret = rand::random::<[u8; 128]>();
        file.and_then(|mut file| std::io::Write::write_all(&mut file, &secret))
            .map_err(io("write the munge key"))?;
    }
    let host =
        nix::unistd::gethostname().map_err(|error| io("read the host's name")(error.into()))?;
    let host = host
        .to_string_lossy()
        .split('.')
        .next()
        .unwrap_or("localhost")
        .to_owned();
    let conf = configuration(dir, &host);
    write("slurm.conf", &conf)?;
    write(
        "client.conf",
        &format!(
            "{conf}AuthInfo=socket={}\n",
            dir.join("munge.socket").display()
        ),
    )?;
    write("gres.conf", "Include muster-gres.conf\n")?;
    write("topology.conf", "Include muster-topology.conf\n")?;
    // What an agent runs after it changed the list of nodes: the controller ends, and its supervisor starts it again.
    let hook = etc.join("restart-slurmctld");
    let client_conf = etc.join("client.conf");
    write(
        "restart-slurmctld",
        &format!(
            "#!/bin/sh\nSLURM_CONF='{}' exec scontrol shutdown slurmctld\n",
            client_conf.display()
        ),
    )?;
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))
        .map_err(io("set the hook's mode"))?;
    for name in INCLUDED.into_iter().chain([OTHERS]) {
        if !etc.join(name).exists() {
            write(name, "# No node yet.\n")?;
        }
    }
    Ok(())
}

/// `slurm.conf` for the controller and, fetched from it, for the nodes: slurmd's paths are those of Debian's package.
fn configuration(dir: &Path, host: &str) -> String {
    let dir = dir.display();
    format!(
        "ClusterName=musterlab
SlurmctldHost={host}({GATEWAY})
SlurmctldPort={PORT}
SlurmctldParameters=enable_configless
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/usr/bin/true
SwitchType=switch/none
TopologyPlugin=topology/tree
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
GresTypes=gpu
ReturnToService=1
SlurmdTimeout=60
SlurmctldTimeout=30
MaxNodeCount=64
TreeWidth=65533
PartitionName=none Hidden=YES
Include muster-nodes.conf
Include {OTHERS}
"
    )
}

/// A slurmd on this host that believes it is the node `name`, for tests of the controller alone.
pub fn spawn_local_slurmd(slurm: &Slurm, name: &str) -> Result<Child, LabError> {
    let mut enclosure = enclosure(&slurm.dir);
    enclosure.covered = vec![
        PathBuf::from("/var/lib/slurm/slurmd"),
        PathBuf::from("/var/log/slurm"),
    ];
    let mut command = Command::new("slurmd");
    command.args([
        "-D",
        "-N",
        name,
        "--conf-server",
        &format!("{GATEWAY}:{PORT}"),
    ]);
    let path = slurm.dir.join("log/slurmd.out");
    let said = fs::File::create(&path).map_err(io(format!("make {}", path.display())))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .kill_on_drop(true);
    slurm.netns.spawn_enclosed(&enclosure, command)
}
