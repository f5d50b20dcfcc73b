//! Packages of Debian, built from a tree on the lab's host.

use std::path::Path;

use tokio::process::Command;

use super::artifacts::digest;
use super::veteran::finished;

/// Builds the tree `folder/tree` as the package `filename`, and removes the tree. Returns the
/// paragraph of the package in the index, which begins with `control`.
pub(super) async fn build_tree(
    folder: &Path,
    filename: &str,
    control: &str,
) -> anyhow::Result<String> {
    let (tree, file) = (folder.join("tree"), folder.join(filename));
    let mut build = Command::new("dpkg-deb");
    build
        .args(["--root-owner-group", "--build"])
        .arg(&tree)
        .arg(&file)
        .kill_on_drop(true);
    finished("dpkg-deb", &mut build).await?;
    std::fs::remove_dir_all(&tree)?;
    let (size, sha256) = (file.metadata()?.len(), digest(&file)?.hex());
    Ok(format!(
        "{control}Filename: {filename}\nSize: {size}\nSHA256: {sha256}\n\n"
    ))
}
