//! A delegated cgroup for a verb run by hand: a scope of systemd. systemd-run makes the scope for a
//! program that only waits; muster-node moves into the scope and ends that program. The terminal, the
//! stdin and the exit status of muster-node stay the same.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::group::{in_mount, may_be_left, read_path};
use crate::tool::search_path;

/// Longest wait for systemd.
const WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// The waiting program. Dropping the value ends the program.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Moves this process into a scope of its own, and returns the scope's cgroup. `former` is the
/// reason for the scope.
///
/// # Errors
/// The reason, where systemd does not make a scope.
pub(super) fn open(former: String) -> Result<PathBuf, String> {
    // A test's private root must not start units of the host's systemd.
    let private = std::env::var_os("MUSTER_ROOT").is_some();
    let has_systemd = Path::new("/run/systemd/system").is_dir();
    if private || !has_systemd || !in_mount("cgroup.controllers").exists() {
        return Err(former);
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(format!("{former}, and only root may change that"));
    }
    let Some(own) = read_path("self") else {
        return Err(former);
    };
    if !may_be_left(&own) {
        return Err(format!("{former}, and belongs to another supervisor"));
    }
    let unit = format!("muster-gate-{}", std::process::id());
    let mut holder = start(&unit).map_err(|error| format!("systemd-run: {error}"))?;
    let group = await_scope(&mut holder, &format!("{unit}.scope"))?;
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())
        .map_err(|error| format!("{}: {error}", group.display()))?;
    Ok(group)
}

fn start(unit: &str) -> std::io::Result<Holder> {
    Command::new("systemd-run")
        .args(["--scope", "--quiet", "--collect"])
        // As for a job (`job/detach.rs`): systemd enables no further controller.
        .args(["--property=Delegate=pids memory", &format!("--unit={unit}")])
        // The program ends with its stdin, so also with muster-node.
        .args(["--", "cat"])
        .env("PATH", search_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(Holder)
}

/// Waits until the holder is in its scope, and returns the scope's cgroup.
fn await_scope(holder: &mut Holder, name: &str) -> Result<PathBuf, String> {
    let (started, process) = (Instant::now(), holder.0.id().to_string());
    while started.elapsed() < WAIT {
        let path = read_path(&process).filter(|path| path.rsplit('/').next() == Some(name));
        if let Some(path) = path {
            return Ok(in_mount(&path));
        }
        match holder.0.try_wait() {
            Ok(None) => std::thread::sleep(POLL),
            Ok(Some(status)) => return Err(format!("systemd-run ended with {status}")),
            Err(error) => return Err(format!("systemd-run: {error}")),
        }
    }
    Err(format!("systemd made no scope within {} s", WAIT.as_secs()))
}
