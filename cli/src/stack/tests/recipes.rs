//! Programs of the recipes in `stacks/`, run in a folder with files, and flat repositories.

use std::process::Stdio;

use super::*;

/// The time of the packages that tests make (Unix seconds).
pub(super) const BUILT: &str = "1744000000";

/// A folder with the input and the output of a recipe.
pub(super) struct Recipe {
    pub(super) dir: tempfile::TempDir,
    /// The folder of the programs, below `stacks/`.
    programs: &'static str,
}

/// The end of a program of a recipe.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) success: bool,
    pub(super) output: String,
    pub(super) messages: String,
}

impl Recipe {
    pub(super) fn of(programs: &'static str) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            programs,
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs a program of the system in the folder, and returns its output.
    pub(super) fn tool(&self, program: &str, arguments: &[&str]) -> Vec<u8> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.dir.path())
            .env("SOURCE_DATE_EPOCH", BUILT)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        output.stdout
    }

    /// Runs a program of the recipe.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Ended {
        let output = Command::new(shipped(self.programs).join(program))
            .args(arguments)
            .current_dir(self.dir.path())
            .env("MUSTER_CACHE", self.path("cache"))
            .env("MIRROR", line(&self.path("mirror")))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Ended {
            success: output.status.success(),
            output: String::from_utf8(output.stdout).unwrap(),
            messages: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    pub(super) fn expect_refused(&self, says: &str) {
        assert!(!self.success, "{says}: {self:?}");
        assert!(self.messages.contains(says), "{says}: {self:?}");
        assert!(self.output.is_empty(), "{says}: {self:?}");
    }
}

pub(super) fn split(arguments: &str) -> Vec<&str> {
    arguments.split_whitespace().collect()
}

/// Returns the source line of a flat repository.
pub(super) fn line(folder: &Path) -> String {
    format!("deb [trusted=yes] copy:{} /", folder.display())
}

/// Makes a flat repository of empty packages.
pub(super) fn make_repository(dir: &Path, folder: &Path, packages: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).unwrap();
    let stanzas = packages
        .iter()
        .map(|(name, version)| build(dir, folder, (*name, *version, "amd64", "")));
    let packages: String = stanzas.collect();
    let (digest, size) = (Digest::of(packages.as_bytes()).hex(), packages.len());
    let date = "Date: Thu, 01 Jan 2026 00:00:00 UTC";
    let release = format!("{date}\nSHA256:\n {digest} {size} Packages\n");
    std::fs::write(folder.join("Release"), release).unwrap();
    std::fs::write(folder.join("Packages"), packages).unwrap();
}
