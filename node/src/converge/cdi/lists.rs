//! dpkg's file lists, with the upstream version of each package.

use std::io::ErrorKind;

use muster_core::wire::node::Failure;

use super::super::dpkg::Database;
use crate::failure::io;
use crate::machine::Machine;

const FOLDER: &str = "/var/lib/dpkg/info";
/// Longest file list of a package, in bytes.
const LIST_MAX: u64 = 64 << 20;
/// Longest path, in bytes.
const PATH_MAX: usize = 1024;

/// A path of a file list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) path: String,
    /// Version of the package, without epoch and revision.
    pub(super) version: String,
}

/// Returns the wanted paths of all present packages. A path with control characters, `.` or `..` is
/// skipped.
///
/// # Errors
/// `io`.
pub(super) fn list(
    machine: &Machine,
    database: &Database,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Listed>, Failure> {
    let folder = match std::fs::read_dir(machine.path(FOLDER)) {
        Ok(folder) => folder,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(FOLDER)(error)),
    };
    let mut listed = Vec::new();
    for entry in folder {
        let name = entry.map_err(io(FOLDER))?.file_name();
        // `munge.list`, `libc6:amd64.list`
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".list")) else {
            continue;
        };
        let (package, arch) = match stem.split_once(':') {
            Some((package, arch)) => (package, Some(arch)),
            None => (stem, None),
        };
        let of_list = database
            .there(package)
            .find(|found| arch.is_none_or(|arch| found.arch == arch));
        let Some(found) = of_list else {
            continue;
        };
        let version = upstream(&found.version);
        let bytes = machine.read(&format!("{FOLDER}/{stem}.list"), LIST_MAX)?;
        let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default());
        let paths = text.split('\n').filter(|path| is_wanted(path));
        listed.extend(paths.filter(|path| is_clean(path)).map(|path| Listed {
            path: path.to_owned(),
            version: version.to_owned(),
        }));
    }
    Ok(listed)
}

fn is_clean(path: &str) -> bool {
    let is_name = |part: &str| !["", ".", ".."].contains(&part);
    path.len() <= PATH_MAX
        && !path.chars().any(char::is_control)
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(is_name))
}

/// Returns 550.163.01 for `1:550.163.01-2`.
fn upstream(version: &str) -> &str {
    let plain = version.split_once(':').map_or(version, |(_, plain)| plain);
    plain
        .rsplit_once('-')
        .map_or(plain, |(upstream, _)| upstream)
}
