//! Both locked stacks of the run, and the comparison of a lock with the packages on the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use muster_core::stacks::{LockedPackage, StackSpec};
use serde_json::{Value, json};

use super::super::programs::Programs;
use super::super::veteran::Veteran;

/// All packages known to dpkg, each with version and state.
const LISTING: &str = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'";
const AUTHORIZED_KEYS: &str = "/root/.ssh/authorized_keys";

/// A locked stack, as published in this run.
pub(super) struct LockedStack {
    file: PathBuf,
    pub(super) spec: StackSpec,
    packages: Vec<LockedPackage>,
}

impl LockedStack {
    /// Takes a locked stack under the version `branch`, and adds the public key of the admin to its
    /// files. The lock stays as it is.
    pub(super) fn read(
        mut document: Value,
        branch: &str,
        key: &str,
        work: &Path,
    ) -> anyhow::Result<Self> {
        document["version"] = json!(branch);
        let file = json!({ "path": AUTHORIZED_KEYS, "mode": "0600", "content": [{ "text": key }] });
        document["files"]
            .as_array_mut()
            .context("the stack has no files")?
            .push(file);
        let spec: StackSpec = serde_json::from_value(document)?;
        let lock = spec
            .lock
            .as_ref()
            .context("the stack has no lock; run lab/cuda/build")?;
        let packages = lock.packages.clone();
        let file = work.join(format!("{branch}.toml"));
        std::fs::write(&file, toml::to_string(&spec)?)
            .with_context(|| format!("write {}", file.display()))?;
        Ok(Self {
            file,
            spec,
            packages,
        })
    }

    /// Publishes the stack under a name, with the blobs of its bundle.
    pub(super) async fn publish(
        &self,
        programs: &Programs,
        name: &str,
        blobs: &Path,
    ) -> anyhow::Result<()> {
        let (file, blobs) = (self.file.display().to_string(), blobs.display().to_string());
        let verb = ["stack", "publish", name, &file];
        let told = programs.cli(&verb, &["--blobs", &blobs, "--yes"]).await?;
        println!("{}", told.trim_end());
        Ok(())
    }

    /// Returns the kernel of the lock.
    pub(super) fn find_kernel(&self) -> anyhow::Result<&LockedPackage> {
        let is_kernel = |package: &&LockedPackage| {
            let release = package.name.strip_prefix("linux-image-");
            release.is_some_and(|release| release.starts_with(|c: char| c.is_ascii_digit()))
        };
        let mut packages = self.packages.iter();
        packages
            .find(is_kernel)
            .context("the lock names no kernel by its release")
    }

    /// Returns the prebuilt modules of the lock.
    pub(super) fn find_modules(&self) -> anyhow::Result<&LockedPackage> {
        let mut packages = self.packages.iter();
        packages
            .find(|package| package.name.starts_with("linux-modules-nvidia-"))
            .context("the lock has no prebuilt modules")
    }

    /// Checks that the machine has every package of this lock, none that is only in the other lock,
    /// and no unfinished work of dpkg.
    pub(super) async fn check_installed(
        &self,
        admin: &Veteran<'_>,
        other: &Self,
    ) -> anyhow::Result<()> {
        let listing = admin.run(&[LISTING]).await?;
        let differences = list_differences(&listing, &self.packages, &other.packages);
        ensure!(
            differences.is_empty(),
            "the packages are not those of stack {}: {}",
            self.spec.version,
            differences.join(", ")
        );
        let unfinished = admin.run(&["dpkg --audit"]).await?;
        ensure!(
            unfinished.trim().is_empty(),
            "dpkg has unfinished work: {unfinished}"
        );
        Ok(())
    }
}

/// Reads whether a package of the driver is between two states, on a machine with a running or
/// killed dpkg.
pub(super) async fn is_driver_half_done(admin: &Veteran<'_>) -> bool {
    let listing = admin.run(&[LISTING]).await;
    listing.is_ok_and(|listing| has_half_done(&listing))
}

/// Whether a package of the driver is unpacked, or installed in part.
fn has_half_done(listing: &str) -> bool {
    let mut lines = listing.lines().map(words);
    lines.any(|line| match line.as_slice() {
        [name, .., state] => {
            name.contains("nvidia")
                && matches!(*state, "half-installed" | "unpacked" | "half-configured")
        }
        [_] | [] => false,
    })
}

/// Returns the differences of an installation from a lock: missing packages, other versions, and
/// packages that only the other lock has.
fn list_differences(
    listing: &str,
    wanted: &[LockedPackage],
    other: &[LockedPackage],
) -> Vec<String> {
    let lines = listing.lines().map(words);
    let found: BTreeMap<&str, &str> = lines
        .filter_map(|line| match line.as_slice() {
            [name, version, "installed"] => Some((*name, *version)),
            [_, .., state] if !matches!(*state, "config-files" | "not-installed") => {
                Some((line[0], *state))
            }
            _ => None,
        })
        .collect();
    let differing = wanted.iter().filter_map(|package| {
        let version = found.get(package.name.as_str()).copied();
        (version != Some(package.version.as_str())).then(|| {
            let found = version.unwrap_or("absent");
            format!("{} is {found}, not {}", package.name, package.version)
        })
    });
    let is_wanted = |name: &str| wanted.iter().any(|package| package.name == name);
    let left = other
        .iter()
        .filter(|package| !is_wanted(&package.name) && found.contains_key(package.name.as_str()))
        .map(|package| format!("{} is still there", package.name));
    differing.chain(left).collect()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use muster_core::values::Digest;

    use super::*;

    fn package(name: &str, version: &str) -> LockedPackage {
        LockedPackage {
            name: name.to_owned(),
            version: version.to_owned(),
            arch: "amd64".to_owned(),
            size: 1,
            sha256: Digest::of(name.as_bytes()),
            filename: format!("{name}.deb"),
        }
    }

    #[test]
    fn missing_other_and_left_packages_are_named() {
        let listing = "libcuda1 550.1 installed\nnvidia-smi 550.2 installed\n\
            libnccl2 2.22 unpacked\nnvidia-tesla-535-smi 535.1 installed\n\
            libnvidia-tesla-535-ml1  config-files\nrunc 1.1 installed\n";
        let wanted = [
            package("libcuda1", "550.1"),
            package("nvidia-smi", "550.1"),
            package("libnccl2", "2.22"),
            package("munge", "0.5"),
            package("runc", "1.1"),
        ];
        let other = [
            package("runc", "1.1"),
            package("nvidia-tesla-535-smi", "535.1"),
            package("libnvidia-tesla-535-ml1", "535.1"),
        ];
        assert_eq!(
            list_differences(listing, &wanted, &other),
            [
                "nvidia-smi is 550.2, not 550.1",
                "libnccl2 is unpacked, not 2.22",
                "munge is absent, not 0.5",
                "nvidia-tesla-535-smi is still there",
            ]
        );
    }

    #[test]
    fn only_a_half_done_package_of_the_driver_counts() {
        let whole =
            "nvidia-smi 550.1 installed\nlibnccl2 2.22 unpacked\nnvidia-old  config-files\n";
        assert!(!has_half_done(whole));
        for state in ["half-installed", "unpacked", "half-configured"] {
            let half = format!("{whole}nvidia-alternative 535.1 {state}\n");
            assert!(has_half_done(&half), "{state}");
        }
    }
}
