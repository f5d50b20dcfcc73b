//! A kernel without the driver's modules: held on the node against apt by hand, and refused by the
//! lock, with the name of the missing package.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use muster_core::stacks::StackSpec;

use super::super::artifacts::digest;
use super::super::deb::build_tree;
use super::super::declare::bundle_files;
use super::scene::{IMAGE, Scene};

/// Release and version of a kernel without modules.
const NEWER_RELEASE: &str = "6.12.999+deb13-amd64";
const NEWER_VERSION: &str = "6.12.999-1";
/// Path of the repository on the machine, and of its source line.
const REPOSITORY: &str = "/srv/kernel";
const SOURCE: &str = "/etc/apt/sources.list.d/kernel.list";

/// A package without content.
struct Package<'name> {
    name: &'name str,
    version: &'name str,
}

/// Offers a newer version of the stack's kernel to apt on the machine. Every upgrade by hand must
/// leave kernel and modules at the versions of the lock.
pub(super) async fn check_held(scene: &Scene<'_>) -> anyhow::Result<()> {
    let kernel = scene.first.find_kernel()?;
    scene.watch.say(&format!(
        "4. a repository offers a newer {}, and a lock names a kernel without modules",
        kernel.name
    ));
    let newer = format!("{}.1", kernel.version);
    let folder = scene.work.join("kernel");
    let package = Package {
        name: &kernel.name,
        version: &newer,
    };
    build_repository(&folder, &[package]).await?;
    let admin = &scene.admin;
    admin.give(&folder, REPOSITORY).await?;
    let source = format!("echo 'deb [trusted=yes] file:{REPOSITORY} /' >{SOURCE}");
    admin.run(&[&source]).await?;
    admin.run(&["apt-get -q update"]).await?;
    let unpinned = format!(
        "apt-get -s -o Dir::Etc::PreferencesParts=/dev/null install {} || true",
        kernel.name
    );
    let would = admin.run(&[&unpinned]).await?;
    ensure!(
        would.contains(&format!("Inst {} ", kernel.name)),
        "the kernel would stay without the pins, too: {would}"
    );
    let install = format!("install {}", kernel.name);
    for verb in ["upgrade", "dist-upgrade", &install] {
        let command = format!("DEBIAN_FRONTEND=noninteractive apt-get -y {verb}");
        admin.run(&[&command]).await?;
        let kept = scene.first.check_installed(admin, &scene.other).await;
        kept.with_context(|| format!("apt-get {verb}"))?;
    }
    let clean = format!("rm -r {SOURCE} {REPOSITORY} && apt-get -q update");
    admin.run(&[&clean]).await.map(drop)
}

/// Locks the stack with a newer kernel in place of the present one. The lock must be refused, with
/// the modules' package to add.
pub(super) async fn check_refused(scene: &Scene<'_>) -> anyhow::Result<()> {
    let (kernel, modules) = (scene.first.find_kernel()?, scene.first.find_modules()?);
    let release = kernel.name.trim_start_matches("linux-image-");
    let newer = format!("linux-image-{NEWER_RELEASE}");
    let missing = modules.name.replace(release, NEWER_RELEASE);
    let draft = write_draft(scene, &kernel.name, &newer)?;
    let folder = scene.work.join("newer-kernel");
    let package = Package {
        name: &newer,
        version: NEWER_VERSION,
    };
    build_repository(&folder, &[package]).await?;
    let bundle = lay_out_bundle(scene)?;
    let image = scene.options.artifacts.cache.join(IMAGE);
    let mirror = format!("deb [trusted=yes] copy:{} /", bundle.display());
    let also = format!("deb [trusted=yes] copy:{} /", folder.display());
    let paths = [
        ("--stack", draft),
        ("--image", image.join("manifest.json")),
        ("--status", image.join("dpkg-status")),
        ("--cache", scene.work.join("apt")),
        ("--blobs", scene.work.join("blobs")),
        ("--out", scene.work.join("newer-kernel.locked.toml")),
    ];
    let paths = paths.map(|(option, path)| [option.to_owned(), path.display().to_string()]);
    let arguments: Vec<&str> = paths
        .as_flattened()
        .iter()
        .map(String::as_str)
        .chain(["--mirror", &mirror, "--also", &also])
        .collect();
    let refused = match scene.programs.cli(&["stack", "lock"], &arguments).await {
        Ok(locked) => bail!("a kernel without modules was locked: {locked}"),
        Err(refused) => format!("{refused:#}"),
    };
    ensure!(
        refused.contains(&missing),
        "the refusal does not name {missing}: {refused}"
    );
    scene.watch.say(refused.trim_end());
    Ok(())
}

/// Writes the stack with another kernel and without its lock.
fn write_draft(scene: &Scene<'_>, kernel: &str, newer: &str) -> anyhow::Result<PathBuf> {
    let mut spec: StackSpec = scene.first.spec.clone();
    (spec.lock, spec.bundle) = (None, None);
    let former = spec.packages.remove(kernel);
    ensure!(former.is_some(), "the stack does not name {kernel}");
    let version = NEWER_VERSION.to_owned();
    spec.packages.insert(newer.to_owned(), version);
    let path = scene.work.join("newer-kernel.toml");
    std::fs::write(&path, toml::to_string(&spec)?)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Lays the bundle of the stack out as a repository, so that the lock needs no mirror.
fn lay_out_bundle(scene: &Scene<'_>) -> anyhow::Result<PathBuf> {
    let folder = scene.work.join("bundle");
    std::fs::create_dir_all(&folder)?;
    for (name, blob) in bundle_files(&scene.options.artifacts)? {
        let blob = std::path::absolute(blob)?;
        std::os::unix::fs::symlink(&blob, folder.join(&name))
            .with_context(|| format!("link {name}"))?;
    }
    Ok(folder)
}

/// Builds packages into a folder, with the index files `Packages` and `Release`.
async fn build_repository(folder: &Path, packages: &[Package<'_>]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut index = String::new();
    for package in packages {
        index += &build_package(folder, package).await?;
    }
    let path = folder.join("Packages");
    std::fs::write(&path, &index)?;
    let (hex, size) = (digest(&path)?.hex(), index.len());
    let release = format!(
        "Origin: Lab\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {hex} {size} Packages\n"
    );
    Ok(std::fs::write(folder.join("Release"), release)?)
}

/// Builds a package without content. Returns its paragraph of the index.
async fn build_package(folder: &Path, package: &Package<'_>) -> anyhow::Result<String> {
    let Package { name, version } = package;
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: the lab <lab@example.org>\nDescription: a kernel without content\n"
    );
    let tree = folder.join("tree");
    std::fs::create_dir_all(tree.join("DEBIAN"))?;
    std::fs::write(tree.join("DEBIAN/control"), &control)?;
    let filename = format!("{name}_{version}_amd64.deb");
    build_tree(folder, &filename, &control).await
}
