//! The one way in: sshd with a host key that lives in RAM, for certificates of the site's CA that name this boot's nonce.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use muster_core::wire::node::{Failure, FailureCode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::failure::{fatal, io};
use crate::job::JobContext;
use crate::tool;
use crate::{files, paths};

const HOST_KEY: &str = "/run/muster/ssh_host_ed25519_key";
const USER_CA: &str = "/etc/ssh/muster_user_ca.pub";
const PRINCIPALS: &str = "/etc/ssh/muster_principals";
const PID_FILE: &str = "/run/sshd.pid";

/// A running sshd.
#[derive(Debug)]
pub struct Sshd(());

/// Makes the host key and gives its public half as an OpenSSH line without comment. A key of this boot that is there already stays: `live` may run
/// twice, and the first may have reported.
///
/// # Errors
/// `tool_failed`, `io`.
pub fn make_host_key(cx: &JobContext) -> Result<String, Failure> {
    let key = paths::at(HOST_KEY);
    let path = key
        .to_str()
        .ok_or_else(|| fatal(FailureCode::Io, "the host key's path is not text"))?;
    if !key.exists() {
        std::fs::create_dir_all(key.parent().unwrap_or(&key)).map_err(io(HOST_KEY))?;
        tool::output(
            cx,
            &[
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "",
                "-f",
                path,
            ],
        )?;
    }
    public_line(&std::fs::read_to_string(format!("{path}.pub")).map_err(io(HOST_KEY))?)
}

/// `ssh-ed25519 AAAA…` of a public-key file, without its comment.
///
/// # Errors
/// `malformed`.
pub fn public_line(text: &str) -> Result<String, Failure> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [kind @ "ssh-ed25519", key, ..] => Ok(format!("{kind} {key}")),
        _ => Err(fatal(
            FailureCode::Malformed,
            "ssh-keygen made no ed25519 key",
        )),
    }
}

/// Writes whom sshd trusts and starts it; its configuration is the image's.
///
/// # Errors
/// `tool_failed`, `io`.
pub fn start(cx: &JobContext, user_ca: &str, nonce: &str) -> Result<Sshd, Failure> {
    let write = |path: &str, line: String| {
        files::write_durably(&paths::at(path), 0o644, line.as_bytes()).map_err(io(path))
    };
    write(USER_CA, format!("{}\n", user_ca.trim()))?;
    write(PRINCIPALS, format!("muster-live:{nonce}\n"))?;
    // sshd believes no file below a folder that others may write, and the kernel's own root file system begins as one.
    let closed = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(paths::at("/"), closed).map_err(io("/"))?;
    std::fs::create_dir_all(paths::at("/run/sshd")).map_err(io("/run/sshd"))?;
    // Goes into the background itself once it listens; it insists on being started by its full path.
    tool::output(cx, &["/usr/sbin/sshd"])?;
    Ok(Sshd(()))
}

impl Sshd {
    /// Closes the way in.
    pub fn stop(self, cx: &JobContext) {
        let pid = std::fs::read_to_string(paths::at(PID_FILE))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let stopped = pid.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGTERM).is_ok());
        cx.log(if stopped {
            "muster: sshd stopped"
        } else {
            "muster: SSHD COULD NOT BE STOPPED"
        });
        std::thread::sleep(Duration::from_millis(100));
    }
}
