//! Debian control stanzas (deb822): the packages of a mirror, and the packages of an image.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use muster_core::images::ImageManifest;

/// The identity of a build of a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PackageId {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) arch: String,
}

/// A package of an index.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    pub(super) stanza: String,
    /// The file of the index.
    pub(super) list: PathBuf,
}

/// Every package of the mirror's indexes.
pub(super) type Index = HashMap<PackageId, Offered>;

/// Reads the files fetched by apt: `*_Packages`.
pub(super) fn read_lists(lists: &Path) -> anyhow::Result<Index> {
    let mut index = Index::new();
    let entries = std::fs::read_dir(lists).with_context(|| lists.display().to_string())?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    // The order of a directory is random; the same package in two indexes must always come from the
    // same index.
    paths.sort();
    for path in paths
        .iter()
        .filter(|path| path.to_string_lossy().ends_with("_Packages"))
    {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        for stanza in text
            .split("\n\n")
            .filter(|stanza| !stanza.trim().is_empty())
        {
            let id = PackageId {
                name: field(stanza, "Package").unwrap_or_default().to_owned(),
                version: field(stanza, "Version").unwrap_or_default().to_owned(),
                arch: field(stanza, "Architecture").unwrap_or_default().to_owned(),
            };
            index.entry(id).or_insert_with(|| Offered {
                stanza: stanza.trim_matches('\n').to_owned(),
                list: path.clone(),
            });
        }
    }
    match index.is_empty() {
        true => bail!("{}: the mirror's index lists no package", lists.display()),
        false => Ok(index),
    }
}

/// Returns the value of a one-line field.
pub(super) fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    stanza
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// Returns the stanza without some fields and their continuation lines.
pub(super) fn without(stanza: &str, unwanted: &[&str]) -> String {
    let mut kept = String::new();
    let mut keep = true;
    for line in stanza.lines() {
        if !line.starts_with([' ', '\t']) {
            keep = !unwanted.contains(&line.split(':').next().unwrap_or_default());
        }
        if keep {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Builds a dpkg status of the image: the index's stanza of each package, or only name and version
/// for packages missing in the index.
pub(super) fn status_of(image: &ImageManifest, index: &Index) -> String {
    let mut sorted = BTreeMap::new();
    for package in &image.packages {
        let id = PackageId {
            name: package.name.clone(),
            version: package.version.clone(),
            arch: package.arch.clone(),
        };
        let stanza = match index.get(&id) {
            // Recommends and similar fields would only cause further changes; the origin has no
            // effect.
            Some(Offered { stanza, .. }) => without(
                stanza,
                &[
                    "Filename",
                    "Size",
                    "MD5sum",
                    "SHA256",
                    "Description-md5",
                    "Recommends",
                    "Suggests",
                ],
            ),
            None => format!(
                "Package: {}\nArchitecture: {}\nVersion: {}\nMaintainer: unknown\nDescription: unknown\n",
                id.name, id.arch, id.version
            ),
        };
        sorted.insert(id, stanza);
    }
    sorted.values().fold(String::new(), |mut status, stanza| {
        let (first, rest) = stanza.split_once('\n').unwrap_or((stanza, ""));
        write!(status, "{first}\nStatus: install ok installed\n{rest}\n")
            .expect("writing to a string cannot fail");
        status
    })
}
