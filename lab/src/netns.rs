//! The rack's network namespace: make, enter, list the processes inside, and destroy.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, io};
use crate::ip;

/// Time limit for processes to end after SIGTERM before SIGKILL, and again after SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// A named network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Chooses a random name: `muster-` and six hex digits. The namespace is made by
    /// [`Netns::create`].
    pub(crate) fn new() -> Self {
        Self {
            name: format!("muster-{}", hex::encode(rand::random::<[u8; 3]>())),
        }
    }

    /// Returns the name, as listed by `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// Makes the namespace and brings the loopback interface up.
    pub(crate) fn create(&self) -> Result<(), LabError> {
        ip::run(&["netns", "add", &self.name])?;
        self.ip(&["link", "set", "lo", "up"])
    }

    /// Runs `ip ARGS` inside the namespace.
    pub(crate) fn ip(&self, args: &[&str]) -> Result<(), LabError> {
        let mut inside = vec!["-n", &self.name];
        inside.extend(args);
        ip::run(&inside)
    }

    /// Builds a command to run inside the namespace. The child process is the program itself,
    /// because `ip netns exec` calls exec.
    pub fn command(&self, program: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `work` on a separate thread inside the namespace. Sockets made by `work` belong to the
    /// namespace, even when used from other threads.
    pub fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LabError> {
        let (path, what) = (
            self.path(),
            format!("enter the network namespace {}", self.name),
        );
        let entered = move || {
            let namespace = File::open(&path)?;
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        };
        let thread = thread::Builder::new()
            .name("netns".to_owned())
            .spawn(entered)
            .map_err(io("start a thread"))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread inside panicked")))
            .map_err(io(what))
    }

    /// Lists the processes inside, according to the kernel. No recorded pid is used, so a reused
    /// pid cannot confuse the list.
    fn processes(&self) -> Vec<Pid> {
        let identity = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
        let Ok(namespace) = identity(&self.path()) else {
            return Vec::new();
        };
        if identity(Path::new("/proc/self/ns/net")).is_ok_and(|own| own == namespace) {
            return Vec::new();
        }
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let inside = |pid: &i32| {
            identity(Path::new(&format!("/proc/{pid}/ns/net"))).is_ok_and(|own| own == namespace)
        };
        pids.filter(inside).map(Pid::from_raw).collect()
    }

    /// Ends every process inside and deletes the namespace with its bridge and taps. Succeeds also
    /// for a missing namespace. Returns the number of processes found inside at the start.
    pub(crate) fn destroy(&self) -> Result<usize, LabError> {
        let ended = self.processes().len();
        for (signal, patience) in [(Signal::SIGTERM, GRACE), (Signal::SIGKILL, GRACE)] {
            let deadline = Instant::now() + patience;
            for pid in self.processes() {
                // An error only means that the process ended in between.
                let _ = kill(pid, signal);
            }
            while !self.processes().is_empty() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(20));
            }
        }
        if let Some(pid) = self.processes().first() {
            return Err(LabError::Timeout {
                what: format!("process {pid} in {} to end", self.name),
                after: 2 * GRACE,
            });
        }
        match self.path().exists() {
            true => ip::run(&["netns", "delete", &self.name]).map(|()| ended),
            false => Ok(ended),
        }
    }
}
