//! A recorded package index: names, versions and dependencies of packages in an unreachable
//! repository. apt resolves with the index as
//! usual; sizes and digests are missing, so the result is not installable.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use muster_core::values::Digest;

use super::index::field;
use super::read;

/// Writes the indexes as a single flat repository below `cache`, and returns the source line.
pub(super) fn repository(indexes: &[PathBuf], cache: &Path) -> anyhow::Result<String> {
    let folder = cache.join("recorded");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let folder = folder
        .canonicalize()
        .with_context(|| folder.display().to_string())?;
    let mut packages = String::new();
    for index in indexes {
        packages += &stanzas(&read(index)?).with_context(|| index.display().to_string())?;
    }
    let digest = Digest::of(packages.as_bytes()).hex();
    let date = "Date: Thu, 01 Jan 1970 00:00:00 UTC";
    let release = format!("{date}\nSHA256:\n {digest} {} Packages\n", packages.len());
    std::fs::write(folder.join("Packages"), packages)
        .with_context(|| folder.display().to_string())?;
    std::fs::write(folder.join("Release"), release)
        .with_context(|| folder.display().to_string())?;
    Ok(format!("deb [trusted=yes] copy:{} /\n", folder.display()))
}

/// Returns the stanzas without comments, with the fields required by apt for packages without
/// download; apt rejects a size of 0.
fn stanzas(text: &str) -> anyhow::Result<String> {
    let plain: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut packages = String::new();
    for stanza in plain
        .split("\n\n")
        .map(str::trim)
        .filter(|stanza| !stanza.is_empty())
    {
        let (Some(name), Some(version)) = (field(stanza, "Package"), field(stanza, "Version"))
        else {
            bail!("a stanza has no package or no version: {stanza:?}");
        };
        let nothing = Digest::of(b"").hex();
        let arch = if field(stanza, "Architecture").is_none() {
            "Architecture: amd64\n"
        } else {
            ""
        };
        let _ = write!(
            packages,
            "{stanza}\n{arch}Filename: recorded/{name}_{version}.deb\nSize: 1\nSHA256: {nothing}\nDescription: recorded\n\n"
        );
    }
    match packages.is_empty() {
        true => bail!("it names no package"),
        false => Ok(packages),
    }
}
