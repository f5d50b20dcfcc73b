//! Five packages with the dependencies of a driver: each package requires the exact same version of
//! other packages. The packages are built on the lab's host, as a site builds its own, and laid out
//! as a repository for apt.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context;

use super::super::artifacts::digest;
use super::super::deb::build_tree;

/// Each package with the packages required in the same version.
pub(super) const TUPLE: [(&str, &[&str]); 5] = [
    ("drv-kmod", &[]),
    ("drv-lib", &["drv-kmod"]),
    ("drv-fabric", &["drv-lib", "drv-kmod"]),
    ("drv-tools", &["drv-lib"]),
    (
        "drv-meta",
        &["drv-kmod", "drv-lib", "drv-fabric", "drv-tools"],
    ),
];
/// Name of the package that installs a service, and of the service.
pub(super) const SERVICE: &str = "drv-fabric";
/// Marker file on a machine. While the file exists, the first package needs a minute to be
/// configured, like a package building a kernel module. The file is on `/run`, so a power cut
/// removes it.
pub(super) const SLOW: &str = "/run/slow";
/// Marker file created when the slow configuration begins.
pub(super) const BUILDING: &str = "/run/building";
const MODULE: &str = "drv-kmod";

/// Builds the five packages in each given version into a separate repository, with the index files
/// `Packages` and `Release`.
pub(super) async fn repository(folder: &Path, versions: &[&str]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut index = String::new();
    for version in versions {
        for (name, needs) in TUPLE {
            index += &package(folder, name, version, needs).await?;
        }
    }
    std::fs::write(folder.join("Packages"), &index)?;
    let (hex, size) = (digest(&folder.join("Packages"))?.hex(), index.len());
    let release = format!(
        "Origin: Somebody\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {hex} {size} Packages\n"
    );
    Ok(std::fs::write(folder.join("Release"), release)?)
}

/// Builds a single package. Returns its paragraph of the index.
async fn package(
    folder: &Path,
    name: &str,
    version: &str,
    needs: &[&str],
) -> anyhow::Result<String> {
    let tree = folder.join("tree");
    let write = |path: &str, text: &str, mode: u32| -> anyhow::Result<()> {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        std::fs::write(&path, text)?;
        Ok(std::fs::set_permissions(
            &path,
            std::fs::Permissions::from_mode(mode),
        )?)
    };
    let mut control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\n"
    );
    if !needs.is_empty() {
        let exactly: Vec<String> = needs
            .iter()
            .map(|needed| format!("{needed} (= {version})"))
            .collect();
        writeln!(control, "Depends: {}", exactly.join(", "))?;
    }
    control += "Description: a part of a driver\n";
    write("DEBIAN/control", &control, 0o644)?;
    write(&format!("usr/lib/{name}/version"), version, 0o644)?;
    if name == MODULE {
        let slow =
            format!("#!/bin/sh\nset -e\n[ ! -e {SLOW} ] || {{ touch {BUILDING}; sleep 60; }}\n");
        write("DEBIAN/postinst", &slow, 0o755)?;
    }
    if name == SERVICE {
        let unit =
            "[Service]\nExecStart=/bin/sleep infinity\n\n[Install]\nWantedBy=multi-user.target\n";
        write(
            &format!("lib/systemd/system/{SERVICE}.service"),
            unit,
            0o644,
        )?;
    }
    let filename = format!("{name}_{version}_amd64.deb");
    build_tree(folder, &filename, &control).await
}
