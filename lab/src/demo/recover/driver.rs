//! The stack with the five packages, locked in any version.

use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::images::ImageManifest;
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

/// A version of the stack to lock.
#[derive(Clone, Copy)]
pub(super) struct Draft<'draft> {
    /// Distinguishes the drafts with the same packages.
    pub(super) name: &'draft str,
    /// Version of the five packages.
    pub(super) version: &'static str,
    pub(super) kernel_args: &'draft [&'draft str],
    /// Manifest of the image under the stack; `None` for the image of the run.
    pub(super) image: Option<&'draft Path>,
}

impl Draft<'_> {
    /// Returns a draft without kernel arguments, on the image of the run.
    pub(super) fn of_version(version: &'static str) -> Self {
        Self {
            name: version,
            version,
            kernel_args: &[],
            image: None,
        }
    }
}

/// A locked version of the stack: its file, and the blobs of its bundle.
pub(super) struct LockedStack {
    pub(super) file: PathBuf,
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
    draft: Draft<'_>,
) -> anyhow::Result<LockedStack> {
    let source = format!(
        "deb [trusted=yes] copy:{} /",
        work.join("repository").display()
    );
    let cache = &options.artifacts.cache;
    let (open, file, blobs) = (
        work.join(format!("{}.toml", draft.name)),
        work.join(format!("{}.locked.toml", draft.name)),
        work.join("blobs"),
    );
    let image = draft.image.map_or_else(
        || cache.join("debian-12/manifest.json"),
        std::path::Path::to_path_buf,
    );
    let manifest: ImageManifest = serde_json::from_slice(&std::fs::read(&image)?)?;
    let mut stack = with_tuple(declare::stack(options)?, draft.version)?;
    stack["version"] = json!(format!("driver-{}", draft.name));
    stack["image"] = json!(manifest.name);
    if !draft.kernel_args.is_empty() {
        stack["kernel_args"] = json!(draft.kernel_args);
    }
    let stack: StackSpec = serde_json::from_value(stack)?;
    std::fs::write(&open, toml::to_string(&stack)?)?;
    let paths = [
        ("--stack", open),
        ("--image", image),
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
        version: draft.version,
    })
}

/// Adds the five packages to a stack. The stack also has automatic updates, so that only the pins hold the five.
fn with_tuple(mut stack: Value, version: &str) -> anyhow::Result<Value> {
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

/// Publishes a locked stack under a name.
pub(super) async fn publish(
    cast: &Cast<'_>,
    name: &str,
    stack: &LockedStack,
) -> anyhow::Result<()> {
    let (file, blobs) = (
        stack.file.display().to_string(),
        stack.blobs.display().to_string(),
    );
    let output = cast
        .programs
        .cli(
            &["stack", "publish", name, &file],
            &["--blobs", &blobs, "--yes"],
        )
        .await?;
    println!("{}", output.trim_end());
    Ok(())
}
