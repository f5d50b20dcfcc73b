//! sshd, the only access to the live image. The host key exists only in RAM. sshd accepts only
//! certificates of the site's CA naming this boot's nonce.

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

/// Makes the host key and returns its public half as an OpenSSH line without comment. A key of this
/// boot is kept: `live` may run twice, and the first run may have reported the key.
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

/// Returns `ssh-ed25519 AAAA…` of a public-key file, without its comment.
///
/// # Errors
/// `malformed`.
pub fn public_line(text: &str) -> Result<String, Failure> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [kind @ "ssh-ed25519", key, ..] => Ok(format!("{kind} {key}")),
        _ => Err(fatal(
            FailureCode::Malformed,
            "ssh-keygen did not write an ed25519 key",
        )),
    }
}

/// Writes the trusted CA and the principals, and starts sshd with the image's configuration.
///
/// # Errors
/// `tool_failed`, `io`.
pub fn start(cx: &JobContext, user_ca: &str, nonce: &str) -> Result<Sshd, Failure> {
    let write = |path: &str, line: String| {
        files::write_durably(&paths::at(path), 0o644, line.as_bytes()).map_err(io(path))
    };
    write(USER_CA, format!("{}\n", user_ca.trim()))?;
    write(PRINCIPALS, format!("muster-live:{nonce}\n"))?;
    // sshd rejects files below a folder writable by others, and the kernel's initial root file
    // system is such a folder.
    let closed = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(paths::at("/"), closed).map_err(io("/"))?;
    std::fs::create_dir_all(paths::at("/run/sshd")).map_err(io("/run/sshd"))?;
    // sshd goes into the background once listening, and must be started by its full path.
    tool::output(cx, &["/usr/sbin/sshd"])?;
    Ok(Sshd(()))
}

impl Sshd {
    /// Closes the access by stopping sshd.
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
