//! The closure as a flat, offline repository: each file a content-addressed blob, and a blob with
//! the list of files.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use muster_core::stacks::StackSpec;
use muster_core::values::Digest;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::apt::PrivateApt;
use super::index::without;
use super::lock::Resolved;
use super::{Files, replace};

/// The document of a bundle: `{"files": {"Packages": "sha256:…"}}`.
#[derive(Serialize)]
struct Description<'a> {
    files: &'a Files,
}

/// Removes archives of an earlier lock with another description in the index. A package can be
/// rebuilt under the same version, and apt
/// uses an existing file by its name.
pub(super) fn discard_stale(resolved: &[Resolved], apt: &PrivateApt) -> anyhow::Result<()> {
    for Resolved { package, .. } in resolved {
        let path = apt.archive(&package.name, &package.version, &package.arch);
        if path.exists() && measure(&path)? != (package.sha256, package.size) {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Writes the blobs, and returns the digest of the list. The same closure always gives the same
/// blobs.
pub(super) fn write(
    resolved: &[Resolved],
    images: Files,
    apt: &PrivateApt,
    blobs: &Path,
) -> anyhow::Result<Digest> {
    let mut files = images;
    for Resolved { package, .. } in resolved {
        let path = apt.archive(&package.name, &package.version, &package.arch);
        let (digest, size) = measure(&path)?;
        if (digest, size) != (package.sha256, package.size) {
            bail!(
                "{}: {size} bytes with {digest}, the signed index says {} with {}",
                path.display(),
                package.size,
                package.sha256
            );
        }
        let blob = blobs.join("sha256").join(digest.hex());
        if !std::fs::metadata(&blob).is_ok_and(|held| held.len() == size) {
            replace(
                &blob,
                &mut File::open(&path).with_context(|| path.display().to_string())?,
            )?;
        }
        if files.insert(package.filename.clone(), digest).is_some() {
            bail!("two packages would both be {}", package.filename);
        }
    }
    let packages = render_packages(resolved);
    let release = render_release(&packages);
    for (name, text) in [("Packages", packages), ("Release", release)] {
        files.insert(name.into(), put(blobs, text.as_bytes())?);
    }
    put(blobs, &serde_json::to_vec(&Description { files: &files })?)
}

/// The firmware images named by a stack, as blobs beside the packages: the given images, and
/// existing blobs. A stack naming an unavailable image
/// would fail on its first node.
pub(super) fn images(stack: &StackSpec, given: &[PathBuf], blobs: &Path) -> anyhow::Result<Files> {
    let wanted: Vec<(&str, Digest)> = stack
        .firmware
        .iter()
        .filter_map(|item| Some((item.component.as_str(), item.image?)))
        .collect();
    for path in given {
        let (digest, _) = measure(path)?;
        if !wanted.iter().any(|(_, image)| *image == digest) {
            bail!("{}: the stack names no image {digest}", path.display());
        }
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        replace(&blobs.join("sha256").join(digest.hex()), &mut file)?;
    }
    let mut files = Files::new();
    for (component, image) in wanted {
        let blob = blobs.join("sha256").join(image.hex());
        match measure(&blob) {
            Ok((digest, _)) if digest == image => {
                _ = files.insert(format!("firmware-{}", &image.hex()[..16]), image)
            }
            Ok(_) => {
                bail!(
                    "{}: the blob does not match its digest; remove the blob, and give the file with --firmware",
                    blob.display()
                )
            }
            Err(_) => {
                bail!(
                    "firmware {component} names the image {image}, which is missing; give the file with --firmware"
                )
            }
        }
    }
    Ok(files)
}

/// The repository's index: the mirror's stanza of each package, with the bundle's file names.
fn render_packages(resolved: &[Resolved]) -> String {
    let stanza = |Resolved {
                      package, stanza, ..
                  }: &Resolved| {
        let kept = without(
            stanza,
            &["Filename", "MD5sum", "SHA1", "SHA512", "Description-md5"],
        );
        format!("{kept}Filename: {}\n\n", package.filename)
    };
    resolved.iter().map(stanza).collect()
}

/// Without a signature: nodes compare every package with the lock. The date is fixed, so the same
/// closure has the same bytes.
fn render_release(packages: &str) -> String {
    let digest = Digest::of(packages.as_bytes()).hex();
    format!(
        "Origin: Muster\nLabel: Muster\nDate: Thu, 01 Jan 1970 00:00:00 UTC\nDescription: the packages of one stack\nSHA256:\n {digest} {} Packages\n",
        packages.len()
    )
}

fn put(blobs: &Path, bytes: &[u8]) -> anyhow::Result<Digest> {
    let digest = Digest::of(bytes);
    replace(&blobs.join("sha256").join(digest.hex()), &mut &*bytes)?;
    Ok(digest)
}

/// Returns digest and size of a file of any size.
fn measure(path: &Path) -> anyhow::Result<(Digest, u64)> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let (mut hasher, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        let read = file
            .read(&mut buffer)
            .with_context(|| path.display().to_string())?;
        if read == 0 {
            return Ok((Digest(hasher.finalize().into()), size));
        }
        hasher.update(&buffer[..read]);
        size += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_images_come_with_the_bundle_or_the_stack_is_not_locked() {
        let dir = tempfile::tempdir().unwrap();
        let (blobs, file) = (dir.path().join("blobs"), dir.path().join("bmc.bin"));
        std::fs::write(&file, b"image").unwrap();
        let image = Digest::of(b"image");
        let stack = serde_json::json!({ "version": "1", "image": "debian-12", "firmware": [
            { "component": "bmc", "version": "1.74", "image": image }, { "component": "nic", "version": "28" }] });
        let stack: StackSpec = serde_json::from_value(stack).unwrap();
        let missing = images(&stack, &[], &blobs).unwrap_err().to_string();
        assert!(
            missing.contains("firmware bmc") && missing.contains("--firmware"),
            "{missing}"
        );
        let files = images(&stack, std::slice::from_ref(&file), &blobs).unwrap();
        assert_eq!(files.values().collect::<Vec<_>>(), [&image]);
        assert_eq!(
            images(&stack, &[], &blobs).unwrap(),
            files,
            "it is there now"
        );
        std::fs::write(&file, b"another").unwrap();
        assert!(
            images(&stack, &[file], &blobs)
                .unwrap_err()
                .to_string()
                .contains("names no image")
        );
        std::fs::write(blobs.join("sha256").join(image.hex()), b"damaged").unwrap();
        assert!(
            images(&stack, &[], &blobs).is_err(),
            "what is there is measured"
        );
    }
}
