//! A private Slurm for a test: munged, slurmctld and a slurmd on loopback, in a temporary
//! directory. All processes end with the test.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use muster_core::clusters::slurm::render_nodes;
use muster_core::clusters::{Member, SlurmCluster};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Time limit of a program of Slurm, and of a wait for a program. Only a hang takes longer.
const HANGS_AFTER: Duration = Duration::from_mins(1);

/// A running Slurm.
pub(super) struct PrivateSlurm {
    dir: tempfile::TempDir,
    pub(super) cluster: SlurmCluster,
    pub(super) version: (u32, u32),
    stop_slurmctld: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
    _munged: Child,
}

impl Drop for PrivateSlurm {
    fn drop(&mut self) {
        // The child processes end with their tasks.
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl PrivateSlurm {
    /// Starts a controller without nodes.
    pub(super) async fn start() -> Self {
        for program in ["munged", "slurmctld", "slurmd", "scontrol", "srun"] {
            let found = ["/usr/sbin", "/usr/bin"]
                .iter()
                .any(|dir| Path::new(dir).join(program).exists());
            assert!(
                found,
                "{program} is missing: apt-get install munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
            );
        }
        let dir = tempfile::Builder::new()
            .prefix("muster-slurm")
            .tempdir()
            .unwrap();
        let etc = dir.path().join("etc");
        for sub in ["etc", "run", "log", "state", "spool"] {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
        }
        let version = find_version().await;
        write_configuration(dir.path(), version);
        let munged = start_munged(dir.path()).await;
        let stop_slurmctld = Arc::new(Notify::new());
        let cluster = SlurmCluster {
            site: "test".into(),
            conf: etc.join("slurm.conf").display().to_string(),
            include_dir: etc.display().to_string(),
            partition: "cpu".into(),
            address: "127.0.0.1".into(),
        };
        let tasks = vec![tokio::spawn(keep_slurmctld(
            dir.path().to_owned(),
            Arc::clone(&stop_slurmctld),
        ))];
        let slurm = Self {
            dir,
            cluster,
            version,
            stop_slurmctld,
            tasks,
            _munged: munged,
        };
        slurm.until("scontrol", &["ping"], "is UP").await;
        slurm
    }

    /// Keeps a slurmd running for the node, like systemd. slurmd exits as long as the controller
    /// does not know the node.
    pub(super) fn keep_slurmd(&mut self, name: &'static str) {
        let (dir, conf) = (self.dir.path().to_owned(), self.cluster.conf.clone());
        self.tasks.push(tokio::spawn(async move {
            loop {
                let mut slurmd = quiet("slurmd", &dir)
                    .args(["-D", "-N", name, "-f", &conf])
                    .spawn()
                    .unwrap();
                _ = slurmd.wait().await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }));
    }

    /// Restarts slurmctld.
    pub(super) async fn restart(&self) {
        let before = self.run("scontrol", &["show", "config"]).await;
        let boot = |config: &str| {
            config
                .lines()
                .find(|line| line.starts_with("BOOT_TIME"))
                .unwrap_or_default()
                .to_owned()
        };
        // The start time of the controller has a resolution of a second.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        self.stop_slurmctld.notify_one();
        let end = Instant::now() + HANGS_AFTER;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = boot(&self.run("scontrol", &["show", "config"]).await);
            if !now.is_empty() && now != boot(&before) {
                return;
            }
        }
        panic!("slurmctld did not restart: {}", self.log());
    }

    /// Returns the output of a Slurm program, including errors.
    pub(super) async fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("SLURM_CONF", &self.cluster.conf)
            .current_dir(self.dir.path())
            .kill_on_drop(true);
        let output = tokio::time::timeout(HANGS_AFTER, command.output())
            .await
            .expect("in time")
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    /// Waits until a program shows the wanted text.
    pub(super) async fn until(&self, program: &str, arguments: &[&str], wanted: &str) {
        self.until_seen(program, arguments, &|seen| seen.contains(wanted), wanted)
            .await;
    }

    /// Waits until the controller has no jobs.
    pub(super) async fn until_no_jobs(&self) {
        self.until_seen("squeue", &["-h"], &str::is_empty, "no jobs")
            .await;
    }

    async fn until_seen(
        &self,
        program: &str,
        arguments: &[&str],
        is_wanted: &dyn Fn(&str) -> bool,
        wanted: &str,
    ) {
        let end = Instant::now() + HANGS_AFTER;
        loop {
            let seen = self.run(program, arguments).await;
            if is_wanted(&seen) {
                return;
            }
            assert!(
                Instant::now() < end,
                "{program} {arguments:?} never showed {wanted:?}: {seen}\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log/slurmctld.log")).unwrap_or_default()
    }

    /// Returns a path in the directory of the test.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn hook(&self) -> PathBuf {
        Path::new(&self.cluster.include_dir).join("restart-slurmctld")
    }

    /// Returns the local machine as a profile would describe the node. `slurmd -C` prints the
    /// hardware seen by slurmd.
    pub(super) async fn this_machine(&self, name: &str) -> Member {
        let text = self.run("slurmd", &["-C"]).await;
        let number = |field: &str| {
            let word = text
                .split_whitespace()
                .find_map(|word| word.strip_prefix(field))
                .expect(field);
            word.parse::<u32>().unwrap()
        };
        Member {
            name: name.into(),
            address: Ipv4Addr::LOCALHOST.into(),
            sockets: number("SocketsPerBoard="),
            cores_per_socket: number("CoresPerSocket="),
            threads_per_core: number("ThreadsPerCore="),
            real_memory: u64::from(number("RealMemory=")) * 9 / 10,
            gpus: None,
            features: vec!["stack_a".into()],
            switch: Some("r1".into()),
            spine: Some("core-1".into()),
        }
    }
}

fn quiet(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir(dir)
        .kill_on_drop(true);
    command
}

async fn start_munged(dir: &Path) -> Child {
    use std::os::unix::fs::OpenOptionsExt as _;
    let key = dir.join("etc/munge.key");
    let mut file = std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o400)
        .open(&key)
        .unwrap();
    std::io::Write::write_all(&mut file, &rand::random::<[u8; 128]>()).unwrap();
    let option = |name: &str, path: &str| format!("--{name}={}", dir.join(path).display());
    let mut munged = quiet("munged", dir)
        .args(["--foreground", "--force", "--num-threads=2"])
        .args([
            option("key-file", "etc/munge.key"),
            option("socket", "run/munge.socket"),
            option("pid-file", "run/munged.pid"),
        ])
        .args([
            option("log-file", "log/munged.log"),
            option("seed-file", "state/munge.seed"),
        ])
        .spawn()
        .unwrap();
    let end = Instant::now() + HANGS_AFTER;
    while munged.try_wait().unwrap().is_none() && Instant::now() < end {
        if dir.join("run/munge.socket").exists() {
            return munged;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!(
        "munged did not start: {}",
        std::fs::read_to_string(dir.join("log/munged.log")).unwrap_or_default()
    );
}

/// Restarts slurmctld after every exit, like a service manager.
async fn keep_slurmctld(dir: PathBuf, stop: Arc<Notify>) {
    loop {
        let conf = dir.join("etc/slurm.conf");
        let mut slurmctld = quiet("slurmctld", &dir)
            .args(["-D", "-f"])
            .arg(conf)
            .spawn()
            .unwrap();
        tokio::select! {
            _ = slurmctld.wait() => {}
            () = stop.notified() => {
                let pid = nix::unistd::Pid::from_raw(slurmctld.id().unwrap().try_into().unwrap());
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
                slurmctld.wait().await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Returns year and month of the installed version, such as (22, 5).
async fn find_version() -> (u32, u32) {
    let output = Command::new("slurmctld").arg("-V").output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = text.trim().rsplit(' ').next().unwrap_or_default();
    let mut parts = numbers.split('.').map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}

fn write_configuration(dir: &Path, version: (u32, u32)) {
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let host = host.split('.').next().unwrap();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap()
        .name;
    let (controller, slurmd, dir_text) = (free_port(), free_port(), dir.display());
    let etc = dir.join("etc");
    let conf = format!(
        "ClusterName=private\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmdPort={slurmd}\nSlurmUser={user}\nSlurmdUser={user}
AuthType=auth/munge\nAuthInfo=socket={dir_text}/run/munge.socket\nCredType=cred/munge\nMailProg=/bin/true
StateSaveLocation={dir_text}/state\nSlurmdSpoolDir={dir_text}/spool/%n\nSlurmctldPidFile={dir_text}/run/slurmctld.pid\nSlurmdPidFile={dir_text}/run/slurmd-%n.pid
SlurmctldLogFile={dir_text}/log/slurmctld.log\nSlurmdLogFile={dir_text}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none
MpiDefault=none\nSwitchType=switch/none\nTopologyPlugin=topology/tree\nGresTypes=gpu\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core
ReturnToService=0\nSlurmdTimeout=30\nTreeWidth=65533\nInclude muster-nodes.conf\n"
    );
    std::fs::write(etc.join("slurm.conf"), conf).unwrap();
    // Otherwise slurmd starts only with the cgroups of the host.
    if version >= (23, 11) {
        std::fs::write(etc.join("cgroup.conf"), "CgroupPlugin=disabled\n").unwrap();
    }
    std::fs::write(etc.join("gres.conf"), "Include muster-gres.conf\n").unwrap();
    std::fs::write(etc.join("topology.conf"), "Include muster-topology.conf\n").unwrap();
    std::fs::write(etc.join("muster-nodes.conf"), render_nodes(&[], "cpu")).unwrap();
    std::fs::write(etc.join("muster-gres.conf"), "# None yet.\n").unwrap();
    std::fs::write(etc.join("muster-topology.conf"), "# None yet.\n").unwrap();
}

/// Installs the restart hook of a site with a service manager restarting slurmctld after an exit.
pub(super) fn install_hook(slurm: &PrivateSlurm) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(
        slurm.hook(),
        "#!/bin/sh\nexec scontrol shutdown slurmctld\n",
    )
    .unwrap();
    std::fs::set_permissions(slurm.hook(), std::fs::Permissions::from_mode(0o755)).unwrap();
}
