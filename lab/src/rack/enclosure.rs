//! Runs a daemon as if alone on its host: in the rack's network, with a private `/run`.
//!
//! Slurm's configuration has a single path of the munge socket for controller and nodes, and nodes
//! use `/run/munge`. The controller shares its host with other programs, so the controller gets a
//! private `/run`.

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

/// The private view of the file system for a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Enclosure {
    /// Directories shown empty, besides `/run`. Files written there disappear with the process.
    pub(crate) covered: Vec<PathBuf>,
    /// Symbolic links created in the covered directories: path and target.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// World-readable files written in the covered directories: path and content.
    pub(crate) files: Vec<(PathBuf, String)>,
}

impl Netns {
    /// Starts a command inside the namespace and the enclosure.
    ///
    /// A separate thread enters both and starts the command from there. The kernel removes the
    /// mounts after the last process inside has ended.
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
