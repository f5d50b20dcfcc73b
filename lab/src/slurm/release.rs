//! Slurm of another release of Debian, from an unpacked system. A controller serves no slurmd newer
//! than the controller, and no client two releases older: nodes with Debian 13 need daemons and
//! clients of Debian 13.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::error::{LabError, io};

/// The programs run in the unpacked system.
const PROGRAMS: [&str; 6] = ["munged", "scontrol", "sinfo", "slurmctld", "squeue", "srun"];
const INSIDE: &str = include_str!("inside.sh");

/// Writes a folder with the programs, for use before all other folders of `PATH`. `dir` is the
/// directory of the controller, and `root` the unpacked system.
pub(super) fn write_programs(dir: &Path, root: &Path) -> Result<PathBuf, LabError> {
    let slurmctld = root.join("usr/sbin/slurmctld");
    if !slurmctld.exists() {
        return Err(LabError::Unknown(format!(
            "file {}: run tests/slurm/unpack",
            slurmctld.display()
        )));
    }
    let folder = dir.join("programs");
    // The mount point of the controller's directory, in the unpacked system.
    let inner = root.join(dir.strip_prefix("/").unwrap_or(dir));
    for made in [&folder, &inner] {
        fs::create_dir_all(made).map_err(io(format!("make {}", made.display())))?;
    }
    let script = folder.join("inside");
    let executable = fs::Permissions::from_mode(0o755);
    fs::write(&script, INSIDE)
        .and_then(|()| fs::set_permissions(&script, executable))
        .map_err(io(format!("write {}", script.display())))?;
    let programs = PROGRAMS.map(|program| (program, script.as_path()));
    let places = [("root", root), ("controller", dir)];
    for (name, target) in programs.into_iter().chain(places) {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|present| present == target) {
            continue;
        }
        symlink(target, &link).map_err(io(format!("make {}", link.display())))?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_lead_into_the_unpacked_system() {
        let dir = tempfile::tempdir().unwrap();
        let (controller, root) = (dir.path().join("controller"), dir.path().join("root"));
        let refused = write_programs(&controller, &root).unwrap_err().to_string();
        assert!(refused.contains("tests/slurm/unpack"), "{refused}");
        fs::create_dir_all(root.join("usr/sbin")).unwrap();
        fs::write(root.join("usr/sbin/slurmctld"), "").unwrap();
        for _ in 0..2 {
            let folder = write_programs(&controller, &root).unwrap();
            assert_eq!(fs::read_link(folder.join("root")).unwrap(), root);
            assert_eq!(
                fs::read_link(folder.join("controller")).unwrap(),
                controller
            );
            for program in PROGRAMS {
                let mode = fs::metadata(folder.join(program))
                    .unwrap()
                    .permissions()
                    .mode();
                assert_eq!(mode & 0o111, 0o111, "{program} can be run");
            }
        }
        let inner = root.join(controller.strip_prefix("/").unwrap());
        assert!(inner.is_dir(), "the mount point of the controller");
    }
}
