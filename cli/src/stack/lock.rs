//! From wanted packages to the complete closure: exactly the packages apt would install over the
//! image.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use muster_core::images::ImageManifest;
use muster_core::stacks::LockedPackage;
use muster_core::values::Digest;

use super::Versions;
use super::apt::PrivateApt;
use super::index::{Index, Offered, PackageId, field};

/// A package of the closure, with its description in the signed index.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) package: LockedPackage,
    pub(super) stanza: String,
    /// The file of the index.
    pub(super) list: PathBuf,
}

/// The choice of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The declared version of each package.
    Exact,
    /// The newest version of every package.
    Newest,
    /// The newest version of open packages, the declared version of the others.
    Open,
}

/// Returns wanted packages with exact versions: declared, or newest.
pub(super) async fn exact(
    packages: &Versions,
    choice: Choice,
    apt: &PrivateApt,
) -> anyhow::Result<Versions> {
    let open: Vec<&str> = packages
        .iter()
        .filter(|(_, version)| *version == "*")
        .map(|(name, _)| name.as_str())
        .collect();
    if choice == Choice::Exact {
        return match open.is_empty() {
            true => Ok(packages.clone()),
            false => bail!(
                "{} have no exact version; write one, or take the newest with --open or --update",
                open.join(", ")
            ),
        };
    }
    let names: Vec<&str> = packages.keys().map(String::as_str).collect();
    let newest = apt.newest(&names).await?;
    let missing: Vec<&str> = names
        .into_iter()
        .filter(|name| !newest.contains_key(*name))
        .collect();
    if !missing.is_empty() {
        bail!("the mirror does not offer {}", missing.join(", "));
    }
    Ok(match choice {
        Choice::Exact | Choice::Newest => newest,
        Choice::Open => {
            let own = packages.iter().filter(|(_, version)| *version != "*");
            newest
                .into_iter()
                .chain(own.map(|(name, version)| (name.clone(), version.clone())))
                .collect()
        }
    })
}

/// Checks that the mirror or the image has a package of each wanted name. `lacking` has the options
/// for the components missing in the sources, and may be empty.
///
/// # Errors
/// Names the unknown packages.
pub(super) fn check_offered(
    packages: &Versions,
    status: &str,
    index: &Index,
    lacking: &str,
) -> anyhow::Result<()> {
    let names = list_names(status, index);
    let missing: Vec<&str> = packages
        .keys()
        .map(String::as_str)
        .filter(|name| !names.contains(name))
        .collect();
    let components = match lacking.is_empty() {
        true => String::new(),
        false => format!(
            "; the sources lack components of Debian's archive, which may have the package: add {lacking}"
        ),
    };
    match missing.is_empty() {
        true => Ok(()),
        false => bail!(
            "the mirror does not offer {}: correct the name, or add the package's repository with --also, or a recorded index with --recorded{components}",
            missing.join(", ")
        ),
    }
}

/// Returns unwanted packages present in the image or offered by the mirror. apt stops at unknown
/// names, and unknown packages need no exclusion.
pub(super) fn known(absent: &[String], status: &str, index: &Index) -> Vec<String> {
    let names = list_names(status, index);
    absent
        .iter()
        .filter(|name| names.contains(name.as_str()))
        .cloned()
        .collect()
}

/// Returns the names of the packages in the image and in the mirror.
fn list_names<'a>(status: &'a str, index: &'a Index) -> BTreeSet<&'a str> {
    let installed = status
        .lines()
        .filter_map(|line| line.strip_prefix("Package:"))
        .map(str::trim);
    installed
        .chain(index.keys().map(|id| id.name.as_str()))
        .collect()
}

/// Returns the closure, sorted by name: always the wanted packages, so a node can get a lost
/// package back, and dependencies missing in the image.
pub(super) async fn resolve(
    packages: &Versions,
    absent: &[String],
    image: &ImageManifest,
    apt: &PrivateApt,
    index: &Index,
) -> anyhow::Result<Vec<Resolved>> {
    let forecast = apt.simulate(packages, absent).await?;
    let mut ids = Vec::new();
    for line in forecast.lines() {
        if let Some(installed) = line.strip_prefix("Inst ") {
            ids.push(inst(installed).with_context(|| format!("apt printed {line:?}"))?);
        } else if let Some(removed) = line.strip_prefix("Remv ").or(line.strip_prefix("Purg ")) {
            let name = removed.split(' ').next().unwrap_or_default();
            if !absent.iter().any(|absent| absent == name) {
                bail!(
                    "the stack would remove {name} from the image; name it in `absent` if that is meant"
                );
            }
        }
    }
    ids.sort();
    ids.dedup();
    for (name, version) in packages {
        let there = image
            .packages
            .iter()
            .any(|package| package.name == *name && package.version == *version);
        if !there
            && !ids
                .iter()
                .any(|id| id.name == *name && id.version == *version)
        {
            bail!("apt resolved no {name} {version}, and the image does not hold it");
        }
    }
    ids.into_iter().map(|id| resolved(id, index)).collect()
}

/// Returns the packages as listed in the lock.
pub(super) fn packages(resolved: &[Resolved]) -> Vec<LockedPackage> {
    resolved
        .iter()
        .map(|resolved| resolved.package.clone())
        .collect()
}

/// Parses `runc [1.0] (1.1.5+ds1-1+deb12u1 Debian:12.11/stable [amd64])`, with or without the
/// installed version.
fn inst(line: &str) -> Option<PackageId> {
    let name = line.split([' ', ':']).next()?.to_owned();
    let inside = line.split_once('(')?.1.rsplit_once(')')?.0;
    let version = inside.split(' ').next()?.to_owned();
    let arch = inside.rsplit_once('[')?.1.strip_suffix(']')?.to_owned();
    Some(PackageId {
        name,
        version,
        arch,
    })
}

fn resolved(id: PackageId, index: &Index) -> anyhow::Result<Resolved> {
    let PackageId {
        name,
        version,
        arch,
    } = id.clone();
    let offered = index
        .get(&id)
        .with_context(|| format!("the index has no {name} {version} {arch}"))?;
    let Offered { stanza, list } = offered.clone();
    let size = field(&stanza, "Size").and_then(|size| size.parse().ok());
    let size = size.with_context(|| format!("the index gives no size for {name}"))?;
    let sha256: Option<Digest> =
        field(&stanza, "SHA256").and_then(|hex| format!("sha256:{hex}").parse().ok());
    let sha256 = sha256.with_context(|| format!("the index gives no SHA-256 for {name}"))?;
    // As in a mirror's pool: the file name has no epoch, because a colon would need escaping.
    let plain = version
        .split_once(':')
        .map_or(version.as_str(), |(_, plain)| plain);
    let filename = format!("{name}_{plain}_{arch}.deb");
    Ok(Resolved {
        package: LockedPackage {
            name,
            version,
            arch,
            size,
            sha256,
            filename,
        },
        stanza,
        list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_apt_would_install() {
        let id = |name: &str, version: &str, arch: &str| {
            Some(PackageId {
                name: name.into(),
                version: version.into(),
                arch: arch.into(),
            })
        };
        assert_eq!(
            inst("runc (1.1.5+ds1-1+deb12u1 Debian:12.11/stable [amd64])"),
            id("runc", "1.1.5+ds1-1+deb12u1", "amd64")
        );
        let upgrade = "libc6 [2.36-9] (2.36-9+deb12u10 Debian:12.11/stable, Debian-Security:12/stable-security [amd64]) []";
        assert_eq!(inst(upgrade), id("libc6", "2.36-9+deb12u10", "amd64"));
        assert_eq!(
            inst("adduser (3.134 Debian:12 [all])"),
            id("adduser", "3.134", "all")
        );
        assert_eq!(inst("nonsense"), None);
    }
}
