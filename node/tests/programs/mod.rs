//! Programs of a test among the programs that an image ships for gates.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::gates::PROGRAMS_FOLDER;

/// Puts a script into the folder of programs below `root`; the script becomes the program. Returns
/// the path for a gate. Of a missing program no script is written.
pub(crate) fn ship(root: &Path, program: &str) -> String {
    let name = program.rsplit('/').next().unwrap();
    let folder = root.join(PROGRAMS_FOLDER.trim_start_matches('/'));
    std::fs::create_dir_all(&folder).unwrap();
    let set_mode = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    // `usr/libexec` and the two folders below.
    folder.ancestors().take(3).for_each(set_mode);
    if is_installed(program) {
        let file = folder.join(name);
        std::fs::write(&file, format!("#!/bin/sh\nexec '{program}' \"$@\"\n")).unwrap();
        set_mode(&file);
    }
    format!("{PROGRAMS_FOLDER}/{name}")
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    match program.contains('/') {
        true => Path::new(program).exists(),
        false => std::env::split_paths(&folders).any(|folder| folder.join(program).exists()),
    }
}
