//! Running a daemon as if it were alone on its host: in the rack's network, with a `/run` of its own.
//!
//! Slurm's configuration names the munge socket by one path for controller and nodes alike, and nodes have it in `/run/munge`.
//! The controller shares its host with others, so it gets a `/run` that nobody else sees.

use std::fs;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use tokio::process::{Child, Command};

use crate::error::{LabError, io};
use crate::netns::Netns;

/// What a process sees that others do not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Enclosure {
    /// Directories that appear empty, besides `/run`; what is written there ends with the process.
    pub(crate) covered: Vec<PathBuf>,
    /// Symbolic links to make in the covered directories: where, and to what.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Files to write in the covered directories, for all to read: where, and what.
    pub(crate) files: Vec<(PathBuf, String)>,
}

impl Netns {
    /// Starts a command inside the namespace and the enclosure.
    ///
    /// A thread of its own enters both and starts the command from there; the mounts end with the last process that has them.
    pub(crate) fn spawn_enclosed(
        &self,
        enclosure: &Enclosure,
        mut command: Command,
    ) -> Result<Child, LabError> {
        let (enclosure, namespace, runtime) = (
            enclosure.clone(),
            self.path(),
            tokio::runtime::Handle::current(),
        );
        let start = move || {
            let namespace = File::open(namespace)?;
            enclose(&enclosure)?;
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            let _runtime = runtime.enter();
            command.spawn()
        };
        let thread = thread::Builder::new()
            .name("enclosure".to_owned())
            .spawn(start)
            .map_err(io("start a thread"))?;
        let started = thread
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread inside panicked")));
        started.map_err(io("start a daemon with a /run of its own"))
    }
}

fn enclose(enclosure: &Enclosure) -> std::io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )?;
    let run = Path::new("/run");
    for covered in enclosure.covered.iter().map(PathBuf::as_path).chain([run]) {
        mount(
            Some("tmpfs"),
            covered,
            Some("tmpfs"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            Some("mode=0755,size=64m"),
        )?;
    }
    for (at, to) in &enclosure.links {
        fs::create_dir_all(at.parent().unwrap_or(run))?;
        symlink(to, at)?;
    }
    for (at, text) in &enclosure.files {
        fs::write(at, text)?;
    }
    Ok(())
}
