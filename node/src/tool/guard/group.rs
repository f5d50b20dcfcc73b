//! The own cgroup of muster-node, where systemd has delegated the cgroup: the unit of a job, or the
//! scope of a verb run by hand.

use std::path::{Path, PathBuf};

/// Mount point of the cgroups. Beside the older cgroups (v1), the folder has no file
/// `cgroup.controllers`.
const MOUNT: &str = "/sys/fs/cgroup";
/// The cgroup of muster-node, below the delegated cgroup.
pub(super) const MAIN: &str = "main";

/// Returns the delegated cgroup of muster-node.
///
/// # Errors
/// The reason, where muster-node has no such cgroup.
pub(super) fn find_own() -> Result<PathBuf, String> {
    let path = read_path("self").ok_or("this process has no cgroup v2")?;
    match delegated(&path) {
        Some(path) => Ok(in_mount(path)),
        None => Err(format!("the cgroup {path} is not delegated to muster-node")),
    }
}

/// Returns the path of a cgroup below [`MOUNT`].
pub(super) fn in_mount(path: &str) -> PathBuf {
    Path::new(MOUNT).join(path.trim_start_matches('/'))
}

/// Returns the cgroup (v2) of a process.
pub(super) fn read_path(process: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    path(&text).map(str::to_owned)
}

/// Reads the line of the cgroup v2, `0::PATH` (cgroups(7)).
fn path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Returns the delegated cgroup of a path: the unit of a job (`job/detach.rs`), or the scope of a
/// verb run by hand (`scope.rs`).
fn delegated(path: &str) -> Option<&str> {
    let unit = path
        .strip_suffix(MAIN)
        .and_then(|above| above.strip_suffix('/'))
        .unwrap_or(path);
    let name = unit.rsplit('/').next()?;
    let is_job = name.starts_with("muster-job-") && name.ends_with(".service");
    let is_scope = name.starts_with("muster-gate-") && name.ends_with(".scope");
    (is_job || is_scope).then_some(unit)
}

/// Whether a verb run by hand may leave the cgroup of a path: a login's session, sshd, or the root.
/// A foreign supervisor, such as a scheduler's, counts and ends processes by cgroup.
pub(super) fn may_be_left(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_session = name.starts_with("session-") && name.ends_with(".scope");
    let is_sshd = ["sshd.service", "ssh.service"].contains(&name)
        || name.starts_with("sshd@")
        || name.starts_with("ssh@");
    is_session || is_sshd || path == "/"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_a_job_or_scope_is_delegated_and_no_other() {
        let unified = "0::/system.slice/muster-job-0198.service\n";
        let job = Some("/system.slice/muster-job-0198.service");
        assert_eq!(path(unified).and_then(delegated), job);
        // Beside the cgroups of version 1.
        let hybrid = format!("8:pids:/\n4:memory:/a\n{unified}");
        assert_eq!(path(&hybrid).and_then(delegated), job);
        assert_eq!(path("8:pids:/\n4:memory:/a\n"), None);
        for (own, wanted) in [
            ("/system.slice/muster-job-0198.service/main", job),
            (
                "/system.slice/muster-gate-77.scope",
                Some("/system.slice/muster-gate-77.scope"),
            ),
            ("/user.slice/user-0.slice/session-4.scope", None),
            ("/system.slice/slurmd.service", None),
            ("/system.slice/muster-job-0198.service (deleted)", None),
            ("/system.slice/muster-job-0198.service/tool-3", None),
            ("/", None),
        ] {
            assert_eq!(delegated(own), wanted, "{own}");
        }
        assert_eq!(
            in_mount("/system.slice"),
            Path::new("/sys/fs/cgroup/system.slice")
        );
    }

    #[test]
    fn a_session_may_be_left_and_the_cgroup_of_a_scheduler_stays() {
        for (path, wanted) in [
            ("/user.slice/user-0.slice/session-4.scope", true),
            ("/user.slice/user-0.slice/session-c1.scope", true),
            ("/system.slice/sshd.service", true),
            ("/system.slice/ssh.service", true),
            (
                "/system.slice/system-sshd.slice/sshd@3-10.0.0.1:22-10.0.0.2:40.service",
                true,
            ),
            ("/system.slice/system-ssh.slice/ssh@7.service", true),
            ("/", true),
            ("", false),
            ("/system.slice/slurmd.service", false),
            ("/system.slice/slurmstepd.scope/job_7/step_0/user", false),
            ("/kubepods.slice/kubepods-pod7.slice/cri-a.scope", false),
            (
                "/user.slice/user-0.slice/user@0.service/app.slice/a.scope",
                false,
            ),
            ("/user.slice/user-0.slice/session-4.scope/job", false),
            ("/system.slice/session-4.service", false),
            ("/system.slice/sshd.service.d", false),
            ("/system.slice/muster-gate-7.scope/tool-0", false),
        ] {
            assert_eq!(may_be_left(path), wanted, "{path}");
        }
    }
}
