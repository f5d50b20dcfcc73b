//! The rack's network namespace: how to make it, enter it, list what lives in it, and end it.

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

/// How long processes get to end by themselves before they are killed.
const GRACE: Duration = Duration::from_secs(5);

/// A named network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// A name nobody has: `muster-` and six random hex digits. Nothing is made yet.
    pub(crate) fn new() -> Self {
        Self {
            name: format!("muster-{}", hex::encode(rand::random::<[u8; 3]>())),
        }
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// Makes it, with loopback up.
    pub(crate) fn create(&self) -> Result<(), LabError> {
        ip::run(&["netns", "add", &self.name])?;
        self.ip(&["link", "set", "lo", "up"])
    }

    /// Runs `ip ARGS` inside.
    pub(crate) fn ip(&self, args: &[&str]) -> Result<(), LabError> {
        let mut inside = vec!["-n", &self.name];
        inside.extend(args);
        ip::run(&inside)
    }

    /// A command that runs inside. The process it starts is the program itself: `ip netns exec` replaces itself by it.
    pub fn command(&self, program: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `work` on a thread of its own that has entered the namespace: sockets it makes belong there, wherever they are used.
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

    /// The processes inside, by the kernel's own account: a process is here or it is not, so no recorded pid can have been reused.
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

    /// Ends every process inside and deletes the namespace with its bridge and taps. Does nothing when it is not there.
    /// Returns how many processes it had to end.
    pub(crate) fn destroy(&self) -> Result<usize, LabError> {
        let ended = self.processes().len();
        for (signal, patience) in [(Signal::SIGTERM, GRACE), (Signal::SIGKILL, GRACE)] {
            let deadline = Instant::now() + patience;
            for pid in self.processes() {
                // A process that ended in between is what is wanted.
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
