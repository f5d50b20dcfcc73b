//! Makes the nodes of the controller equal to the wanted nodes.
//!
//! Before 23.11 slurmctld accepts another set of nodes only at startup. A reconfigure *ends* the
//! daemon ("node count has changed before reconfiguration … You have to restart slurmctld", seen
//! with 22.05.8). A restart does not affect running jobs. The restart method depends on the host,
//! so a hook beside the included files does the restart. Muster never stops a controller unless it
//! can also see it return.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use muster_core::clusters::Member;
use tokio::time::Instant;

use super::error::SlurmError;
use super::{Controller, command, includes};
use crate::watch::{Stopped, Watch};

/// Executable in the directory of the included files. The hook restarts slurmctld and returns.
const RESTART_HOOK: &str = "restart-slurmctld";
/// Since this version a reconfigure works like a restart (release notes of 23.11).
const RECONFIGURES_NODES: (u32, u32) = (23, 11);

impl Controller {
    /// Writes the included files and makes the controller load them. Does nothing when both are up
    /// to date. `leaving` is the node allowed to leave. Any other node missing in the new list must
    /// be out of use, so that an outdated list cannot remove a working node.
    pub(super) async fn load(
        &self,
        nodes: &[Member],
        leaving: Option<&str>,
        watch: &Watch,
    ) -> Result<(), SlurmError> {
        let _alone = self.membership.writer.lock().await;
        let newest = self.newest_members();
        // A newer list can still contain the leaving node, because the server made the list before
        // the node left.
        let stays = |node: &&Member| leaving != Some(node.name.as_str());
        let nodes: Vec<Member> = newest
            .as_deref()
            .unwrap_or(nodes)
            .iter()
            .filter(stays)
            .cloned()
            .collect();
        includes::check(&self.cluster, &nodes)?;
        let wanted: BTreeSet<String> = nodes.iter().map(|node| node.name.clone()).collect();
        let mut gone: BTreeSet<String> = includes::names(&self.cluster)?
            .difference(&wanted)
            .cloned()
            .collect();
        gone.extend(leaving.map(str::to_owned));
        self.refuse_harm(&gone, leaving).await?;
        let changed = includes::write(&self.cluster, &nodes)?;
        if agrees(&self.known_nodes().await?, &wanted, &gone) {
            return if changed {
                self.reconfigure().await
            } else {
                Ok(())
            };
        }
        let version = self.version().await?;
        if version_number(&version).is_some_and(|number| number >= RECONFIGURES_NODES) {
            self.reconfigure().await?;
            return self.wait_known(&wanted, &gone, watch).await;
        }
        self.restart(&version, watch).await?;
        self.wait_known(&wanted, &gone, watch).await?;
        // The node names now agree, so a reconfigure only makes running slurmds fetch the new list.
        // Without the list a slurmd cannot relay messages to new nodes.
        self.reconfigure().await
    }

    fn newest_members(&self) -> Option<Arc<[Member]>> {
        let newest = self
            .membership
            .newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        newest.as_ref().map(|(_, nodes)| Arc::clone(nodes))
    }

    async fn refuse_harm(
        &self,
        gone: &BTreeSet<String>,
        leaving: Option<&str>,
    ) -> Result<(), SlurmError> {
        let mut harmed = Vec::new();
        for name in gone {
            match self.view(name).await? {
                Some(view) if !view.idle_for_good() && leaving == Some(name) => {
                    return Err(SlurmError::InUse {
                        name: name.clone(),
                        seen: view.to_string(),
                    });
                }
                Some(view) if !view.idle_for_good() => harmed.push(format!("{name} ({view})")),
                Some(_) | None => {}
            }
        }
        match harmed.is_empty() {
            true => Ok(()),
            false => Err(SlurmError::WouldRemove {
                names: harmed.join(", "),
            }),
        }
    }

    /// Returns the names of all nodes known to the controller.
    pub(super) async fn known_nodes(&self) -> Result<BTreeSet<String>, SlurmError> {
        let text = command::run(
            &self.cluster.conf,
            "sinfo",
            &["-a", "-h", "-N", "-o", "%N"],
            self.limits.command,
        )
        .await?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// Makes the controller and all slurmds read their configuration again. Call only when the set
    /// of nodes is unchanged since startup, or when the version supports a changed set.
    pub(super) async fn reconfigure(&self) -> Result<(), SlurmError> {
        self.scontrol(&["reconfigure"]).await.map(drop)
    }

    /// Returns the version of the controller, which can differ from the version of the local
    /// programs.
    async fn version(&self) -> Result<String, SlurmError> {
        let config = self.scontrol(&["show", "config"]).await?;
        let line = config
            .lines()
            .find_map(|line| line.strip_prefix("SLURM_VERSION"));
        let version = line.map(|rest| rest.trim_start_matches([' ', '=']).trim().to_owned());
        version.ok_or_else(|| SlurmError::Garbage {
            what: "a configuration without SLURM_VERSION".into(),
        })
    }

    async fn restart(&self, version: &str, watch: &Watch) -> Result<(), SlurmError> {
        let hook = Path::new(&self.cluster.include_dir).join(RESTART_HOOK);
        if !runnable(&hook) {
            return Err(SlurmError::NoRestart {
                version: version.into(),
                hook: hook.display().to_string(),
            });
        }
        watch.waiting_for(format!(
            "the restart of slurmctld {version}: it takes another set of nodes only when it starts"
        ));
        command::run(
            &self.cluster.conf,
            PathBuf::from(&hook),
            &[],
            self.limits.restart,
        )
        .await
        .map(drop)
    }

    async fn wait_known(
        &self,
        wanted: &BTreeSet<String>,
        gone: &BTreeSet<String>,
        watch: &Watch,
    ) -> Result<(), SlurmError> {
        let started = Instant::now();
        loop {
            let seen = match self.known_nodes().await {
                Ok(known) if agrees(&known, wanted, gone) => return Ok(()),
                Ok(known) => {
                    format!(
                        "it answers, and knows {} nodes of {}",
                        known.intersection(wanted).count(),
                        wanted.len()
                    )
                }
                Err(error) if super::patient(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            let waited = started.elapsed();
            if waited > self.limits.restart {
                return Err(SlurmError::NotRestarted { waited, seen });
            }
            watch.waiting_for(format!("slurmctld with {} nodes: {seen}", wanted.len()));
            match watch.pause(self.limits.poll).await {
                Ok(()) => {}
                Err(Stopped::Cancelled) => return Err(SlurmError::Cancelled),
                Err(Stopped::DeadlinePassed) => {
                    return Err(SlurmError::NotRestarted { waited, seen });
                }
            }
        }
    }

    pub(super) async fn scontrol(&self, arguments: &[&str]) -> Result<String, SlurmError> {
        command::run(
            &self.cluster.conf,
            "scontrol",
            arguments,
            self.limits.command,
        )
        .await
    }
}

fn agrees(known: &BTreeSet<String>, wanted: &BTreeSet<String>, gone: &BTreeSet<String>) -> bool {
    wanted.is_subset(known) && gone.is_disjoint(known)
}

/// Parses `22.05.8` as (22, 5).
fn version_number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Returns whether the hook is an executable file writable only by root or by the user of the
/// agent.
fn runnable(hook: &Path) -> bool {
    std::fs::metadata(hook).is_ok_and(|file| {
        let trusted = file.uid() == 0 || file.uid() == nix::unistd::geteuid().as_raw();
        let mode = file.permissions().mode();
        file.is_file() && trusted && mode & 0o111 != 0 && mode & 0o022 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(version_number("22.05.8") < Some(RECONFIGURES_NODES));
        assert!(version_number("24.11.5") >= Some(RECONFIGURES_NODES));
        assert_eq!(version_number("unknown"), None);
    }

    #[test]
    fn a_hook_others_may_write_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let hook = dir.path().join(RESTART_HOOK);
        std::fs::write(&hook, "#!/bin/sh\n").unwrap();
        for (mode, runs) in [
            (0o755, true),
            (0o700, true),
            (0o644, false),
            (0o777, false),
            (0o775, false),
        ] {
            std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(runnable(&hook), runs, "{mode:o}");
        }
        assert!(!runnable(dir.path()));
    }
}
