//! A container with the GPU devices of Muster's specification, started by podman on the machine:
//! the loader in the container resolves the driver's library.

use anyhow::{Context, ensure};

use super::scene::Scene;

/// Name of the driver's library for programs, and the folder of libraries in the container.
const LIBRARY: &str = "libcuda.so.1";
const FOLDER: &str = "/usr/lib/x86_64-linux-gnu";
/// The container's loader, its only program.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Folder on the machine for the container's files: the loader, and the C library's parts.
const ROOT: &str = "/run/container-check";
const PARTS: &str = "libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0";

/// Starts two containers: one without devices, which has no library of the driver, and one with
/// all GPU devices, which has the library of the given branch.
pub(super) async fn check_library(scene: &Scene<'_>, branch: &str) -> anyhow::Result<()> {
    let admin = &scene.admin;
    let target = admin
        .run(&["readlink", "-f", &format!("{FOLDER}/{LIBRARY}")])
        .await?;
    let file = target.trim().rsplit('/').next().unwrap_or_default();
    ensure!(
        file.starts_with(&format!("libcuda.so.{branch}.")),
        "{LIBRARY} on the machine is {file}, and not of branch {branch}"
    );
    let fill = format!(
        "rm -rf {ROOT} && mkdir -p {ROOT}/etc {ROOT}/lib64 {ROOT}{FOLDER} && cp -L {LOADER} {ROOT}/lib64/ && \
         cd {FOLDER} && cp -L {PARTS} {ROOT}{FOLDER}/"
    );
    admin.run(&[&fill]).await?;
    let library = format!("{FOLDER}/{file}");
    let without = admin.run(&[&build_start("", &library)]).await;
    let Err(refusal) = without else {
        anyhow::bail!("a container without devices has {library}");
    };
    ensure!(
        refusal.to_string().contains("cannot open shared object"),
        "the container without devices failed for another reason: {refusal:#}"
    );
    let device = "--device nvidia.com/gpu=all";
    let resolved = admin
        .run(&[&build_start(device, &library)])
        .await
        .context("start a container with all GPU devices")?;
    ensure!(
        resolved.contains("libc.so.6") && !resolved.contains("not found"),
        "the loader in the container does not resolve {library}:\n{resolved}"
    );
    scene
        .watch
        .say(&format!("a container of podman loads {file}"));
    Ok(())
}

/// Returns the command for a container in which the loader resolves the library, then ends.
fn build_start(devices: &str, library: &str) -> String {
    format!(
        "podman run --rm --network none --cgroups disabled {devices} --rootfs {ROOT} {LOADER} \
         --list {library}"
    )
}
