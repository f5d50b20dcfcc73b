//! A real Slurm controller in the rack's namespace: munged and slurmctld (Debian 12: 22.05), first
//! without any node. [`Slurm::start_release`] starts the controller of another release.
//!
//! Facts of 22.05.8 observed here, relevant for every manager of the included files:
//!
//! * Nodes get the configuration from the controller (`slurmd --conf-server 10.77.0.1:6817`),
//!   including the included files.
//! * `scontrol reconfigure` after a node was added or removed *ends slurmctld*: "node count has
//!   changed before reconfiguration ... You have to restart slurmctld", then fatal. Write the
//!   files, then run `scontrol shutdown slurmctld`. The controller saves its state and ends, and
//!   the lab's supervisor restarts it like a service manager. Running jobs are unaffected.
//! * A controller without any partition does not start, and a partition declared twice is fatal.
//!   The lab's own configuration declares a hidden partition `none`. The included file may
//!   therefore be empty or declare any other partition.
//! * `topology/tree` starts without switches ("No switches configured" is only logged).
//! * Debian's slurmd.service has `ConditionPathExists=/etc/slurm/slurm.conf`; a node without the
//!   file needs a drop-in.

mod release; // Programs of another release, in an unpacked system

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

/// The TCP port of slurmctld.
pub const PORT: u16 = 6817;
/// Files in [`Slurm::include_dir`] for the declarations of nodes, GPUs and switches.
pub const INCLUDED: [&str; 3] = [
    "muster-nodes.conf",
    "muster-gres.conf",
    "muster-topology.conf",
];
/// The partition of cluster nodes not managed by Muster.
pub const OTHERS_PARTITION: &str = "old";
/// The file with the declarations of nodes not managed by Muster.
const OTHERS: &str = "others.conf";
/// Path of the munge socket expected by Slurm on any host.
const MUNGE_SOCKET: &str = "/run/munge/munge.socket.2";
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit of a client command, `srun` included.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A running controller.
#[derive(Debug)]
pub struct Slurm {
    /// The controller's directory, `slurm` in the rack's directory.
    pub dir: PathBuf,
    /// `SLURM_CONF` for commands on this host: the controller's configuration plus the path of the
    /// lab's munge socket.
    pub client_conf: PathBuf,
    /// Directory of the included files; see [`INCLUDED`].
    pub include_dir: PathBuf,
    /// The munge key, needed by nodes too and readable by root alone.
    pub munge_key: PathBuf,
    /// Folder with the programs of another release; `None` for the programs of this host.
    pub programs: Option<PathBuf>,
    netns: Netns,
    munged: Supervised,
    slurmctld: Supervised,
}

impl Slurm {
    /// Starts a controller and returns after the first answer. Configuration, key and state of an
    /// earlier controller in the rack's directory are used again; missing files are created.
    pub async fn start(rack: &Rack) -> Result<Self, LabError> {
        let dir = rack.dir.join("slurm");
        write_configuration(&dir)?;
        Self::start_in(rack, dir, None).await
    }

    /// Starts a controller like [`Slurm::start`], with the daemons and clients of another release
    /// in the unpacked system `root`.
    pub async fn start_release(rack: &Rack, root: &Path) -> Result<Self, LabError> {
        let dir = rack.dir.join("slurm");
        write_configuration(&dir)?;
        // As in the tests of the Slurm driver with this release.
        fs::write(dir.join("etc/cgroup.conf"), "CgroupPlugin=disabled\n")
            .map_err(io("write cgroup.conf"))?;
        let programs = release::write_programs(&dir, root)?;
        Self::start_in(rack, dir, Some(programs)).await
    }

    /// Starts both daemons in a directory with a configuration.
    async fn start_in(
        rack: &Rack,
        dir: PathBuf,
        programs: Option<PathBuf>,
    ) -> Result<Self, LabError> {
        let netns = rack.netns.clone();
        let (munged, slurmctld) = (
            find_program(programs.as_deref(), "munged"),
            find_program(programs.as_deref(), "slurmctld"),
        );
        let munged =
            Supervised::start("munged", rack.closing(), start_munged(&dir, &netns, munged))?;
        let slurmctld = Supervised::start(
            "slurmctld",
            rack.closing(),
            start_slurmctld(&dir, &netns, slurmctld),
        )?;
        let slurm = Self {
            client_conf: dir.join("etc/client.conf"),
            include_dir: dir.join("etc"),
            munge_key: dir.join("etc/munge.key"),
            programs,
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

    /// Returns a command inside the namespace for a Slurm program (`sinfo`, `scontrol`, `srun`...),
    /// configured for this controller.
    pub fn command(&self, program: &str) -> Command {
        let program = find_program(self.programs.as_deref(), program);
        let mut command = self.netns.command(&program.display().to_string());
        command
            .env("SLURM_CONF", &self.client_conf)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a Slurm command and returns its standard output. Fails after 120 s.
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

    /// Runs `sinfo -N`. Returns a line per node and partition: node, state, partition.
    pub async fn sinfo(&self) -> Result<String, LabError> {
        self.run("sinfo", &["-N", "-h", "-o", "%N %T %P"]).await
    }

    /// Runs `scontrol ARGUMENTS`.
    pub async fn scontrol(&self, arguments: &[&str]) -> Result<String, LabError> {
        self.run("scontrol", arguments).await
    }

    /// Runs `srun ARGUMENTS`.
    pub async fn srun(&self, arguments: &[&str]) -> Result<String, LabError> {
        self.run("srun", arguments).await
    }

    /// Lists a node in the cluster as its admin does, in a file outside Muster's control. Restarts
    /// slurmctld.
    pub async fn list_others(&self, name: &str, address: Ipv4Addr) -> Result<(), LabError> {
        let text = format!(
            "NodeName={name} NodeAddr={address} CPUs=1 RealMemory=1000 State=UNKNOWN\n\
             PartitionName={OTHERS_PARTITION} Nodes={name} MaxTime=INFINITE State=UP\n"
        );
        fs::write(self.include_dir.join(OTHERS), text).map_err(io(format!("write {OTHERS}")))?;
        self.restart().await
    }

    /// Restarts slurmctld and waits until the new process answers. Jobs keep running.
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

    /// Ends both daemons. Closing the rack also ends both.
    pub async fn close(self) {
        self.slurmctld.close().await;
        self.munged.close().await;
    }

    /// Returns the pid of an answering slurmctld, to distinguish the process before a restart from
    /// the process after.
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

/// Returns the enclosure of a Slurm daemon, with a link from the standard munge socket to the lab's
/// socket.
fn enclosure(dir: &Path) -> Enclosure {
    Enclosure {
        links: vec![(PathBuf::from(MUNGE_SOCKET), dir.join("munge.socket"))],
        ..Enclosure::default()
    }
}

/// Returns a program of Slurm: of another release, or of this host by `PATH`.
fn find_program(programs: Option<&Path>, name: &str) -> PathBuf {
    programs.map_or_else(|| PathBuf::from(name), |folder| folder.join(name))
}

fn start_munged(
    dir: &Path,
    netns: &Netns,
    program: PathBuf,
) -> impl Fn() -> Result<Child, LabError> + Send + use<> {
    let (dir, netns) = (dir.to_owned(), netns.clone());
    move || {
        let file = |option: &str, name: &str| format!("--{option}={}", dir.join(name).display());
        let mut command = Command::new(&program);
        // `--force`: munged requires search permission for all users on every directory above its
        // socket, but only root can enter the rack's directory.
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
    program: PathBuf,
) -> impl Fn() -> Result<Child, LabError> + Send + use<> {
    let (dir, netns) = (dir.to_owned(), netns.clone());
    move || {
        let mut command = Command::new(&program);
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
        // munged refuses directories writable by other users. The mode is set explicitly,
        // independent of the umask.
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
    // The agent runs the script after a change of the node list. The controller ends, and its
    // supervisor starts a new controller.
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

/// Returns `slurm.conf` for the controller and for nodes fetching the configuration. The paths of
/// slurmd are the paths of Debian's package.
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

/// Starts a slurmd on this host under the node name `name`, for tests of the controller alone.
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
