//! The stack with the five packages, locked in any version.

use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::stacks::StackSpec;
use serde_json::{Value, json};

use super::super::DemoOptions;
use super::cast::Cast;
use super::declare;
use super::tuple::{self, SERVICE, TUPLE};

/// Name of the stack of the machines.
pub(super) const STACK: &str = "serving";
/// The versions in the site's repository.
const OURS: [&str; 2] = ["1.0", "2.0"];

/// A locked version of the stack: its file, and the blobs of its bundle.
pub(super) struct LockedStack {
    file: PathBuf,
    blobs: PathBuf,
    pub(super) version: &'static str,
}

/// Builds the site's repository with all versions of the five packages.
pub(super) async fn build_repository(work: &Path) -> anyhow::Result<()> {
    tuple::repository(&work.join("repository"), &OURS).await
}

/// Locks the stack of the machines with the five packages in a version, by real apt, after
/// [`build_repository`].
pub(super) async fn lock(
    options: &DemoOptions,
    cast: &Cast<'_>,
    work: &Path,
    version: &'static str,
    kernel_args: &[&str],
) -> anyhow::Result<LockedStack> {
    let source = format!(
        "deb [trusted=yes] copy:{} /",
        work.join("repository").display()
    );
    let cache = &options.artifacts.cache;
    let (draft, file, blobs) = (
        work.join(format!("{version}.toml")),
        work.join(format!("{version}.locked.toml")),
        work.join("blobs"),
    );
    let mut stack = with_tuple(declare::stack(options)?, version)?;
    if !kernel_args.is_empty() {
        stack["kernel_args"] = json!(kernel_args);
    }
    let stack: StackSpec = serde_json::from_value(stack)?;
    std::fs::write(&draft, toml::to_string(&stack)?)?;
    let paths = [
        ("--stack", draft),
        ("--image", cache.join("debian-12/manifest.json")),
        ("--status", cache.join("debian-12/dpkg-status")),
        ("--cache", cache.join("stack/apt")),
        ("--blobs", blobs.clone()),
        ("--out", file.clone()),
    ];
    let paths: Vec<String> = paths
        .iter()
        .flat_map(|(option, path)| [(*option).to_owned(), path.display().to_string()])
        .collect();
    let arguments: Vec<&str> = paths
        .iter()
        .map(String::as_str)
        .chain(["--open", "--also", &source])
        .collect();
    let locked = cast.programs.cli(&["stack", "lock"], &arguments).await?;
    println!("{}", locked.trim_end());
    Ok(LockedStack {
        file,
        blobs,
        version,
    })
}

/// Adds the five packages to a stack. The stack also has automatic updates, so that only the pins hold the five.
fn with_tuple(mut stack: Value, version: &str) -> anyhow::Result<Value> {
    stack["version"] = json!(format!("driver-{version}"));
    stack["absent"] = json!([]);
    stack["sysctl"] = json!({ "vm.swappiness": "10" });
    let parts = stack.as_object_mut().context("the stack is no table")?;
    parts.retain(|part, _| !matches!(part.as_str(), "lock" | "bundle"));
    let packages = parts["packages"]
        .as_object_mut()
        .context("the stack has no packages")?;
    packages.extend(
        TUPLE
            .iter()
            .map(|(name, _)| ((*name).to_owned(), json!(version))),
    );
    packages.insert("unattended-upgrades".into(), json!("*"));
    let file = json!({ "path": "/etc/nccl.conf", "mode": "0644", "content": [{ "text": "NCCL_DEBUG=WARN\n" }] });
    parts["files"]
        .as_array_mut()
        .context("the stack has no files")?
        .push(file);
    let service = json!({ "name": SERVICE, "enabled": true, "running": true });
    parts["services"]
        .as_array_mut()
        .context("the stack has no services")?
        .push(service);
    Ok(stack)
}

/// Publishes a locked stack under the machines' stack name.
pub(super) async fn publish(cast: &Cast<'_>, stack: &LockedStack) -> anyhow::Result<()> {
    let (file, blobs) = (
        stack.file.display().to_string(),
        stack.blobs.display().to_string(),
    );
    let output = cast
        .programs
        .cli(
            &["stack", "publish", STACK, &file],
            &["--blobs", &blobs, "--yes"],
        )
        .await?;
    println!("{}", output.trim_end());
    Ok(())
}
