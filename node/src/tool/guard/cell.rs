//! The cgroup of a tool: limits, the processes inside, and the removal.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::ceiling::{Ceiling, count, find_ceiling};
use super::limits::Limits;

/// Longest wait for the end of killed processes. A process that hangs in the kernel keeps the
/// cgroup, and systemd removes the cgroup with the unit.
const CLEARING: Duration = Duration::from_secs(3);
/// Interval between two checks for the end of killed processes.
const POLL: Duration = Duration::from_millis(2);
/// Events of the limit of the delegated cgroup alone. `pids.events` there also has the events of
/// other tools. Linux before 6.11 has no such file, and counts every refusal in the tool's cgroup.
const PIDS_ABOVE: &str = "../pids.events.local";

/// A cgroup. Dropping the value kills all processes inside, and removes the cgroup.
#[derive(Debug)]
pub(super) struct Cell {
    folder: PathBuf,
    limits: Limits,
    /// Processes refused by the delegated cgroup before the tool.
    refused_before: u64,
}

impl Cell {
    /// Creates the cgroup with its limits, without a process.
    pub(super) fn create(folder: PathBuf, limits: Limits) -> io::Result<Self> {
        std::fs::create_dir(&folder)?;
        let mut cell = Self {
            folder,
            limits,
            refused_before: 0,
        };
        cell.refused_before = cell.count_refused_above();
        let processes = limits.processes.to_string();
        let memory = limits.memory_bytes.to_string();
        cell.write("pids.max", &processes)?;
        cell.write("memory.max", &memory)?;
        // A tool without some of its processes measures wrong values.
        cell.write("memory.oom.group", "1")?;
        // A kernel without accounting of swap has no such file.
        if cell.folder.join("memory.swap.max").exists() {
            cell.write("memory.swap.max", "0")?;
        }
        Ok(cell)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The limit reached by the processes inside, if any.
    pub(super) fn ceiling(&self) -> Option<Ceiling> {
        find_ceiling(
            &self.read("pids.events"),
            self.count_refused_above()
                .saturating_sub(self.refused_before),
            &self.read("memory.events"),
            self.limits,
        )
    }

    /// Kills every process inside, also a process that is forking now.
    pub(super) fn kill(&self) {
        // A failed kill shows in `cgroup.events`.
        let _ = self.write("cgroup.kill", "1");
    }

    /// Processes refused by the delegated cgroup until now.
    fn count_refused_above(&self) -> u64 {
        count(&self.read(PIDS_ABOVE), "max")
    }

    fn is_populated(&self) -> bool {
        count(&self.read("cgroup.events"), "populated") > 0
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap_or_default()
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        std::fs::write(self.folder.join(file), value)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.kill();
        let killed = Instant::now();
        while self.is_populated() && killed.elapsed() < CLEARING {
            std::thread::sleep(POLL);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// The mount point of a cgroup v2, if a folder can be created there.
    fn writable_mount() -> Option<PathBuf> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(words[1]))
        })?;
        let tried = mount.join(format!("muster-test-{}", std::process::id()));
        std::fs::create_dir(&tried).ok()?;
        std::fs::remove_dir(&tried).ok()?;
        Some(mount)
    }

    #[test]
    fn a_dropped_cell_kills_a_process_that_has_left_its_session() {
        let Some(mount) = writable_mount() else {
            let why = "this machine has no cgroup v2 that this user may write";
            assert!(std::env::var_os("MUSTER_NEEDS_CGROUPS").is_none(), "{why}");
            eprintln!("skipped: {why}");
            return;
        };
        let folder = mount.join(format!("muster-test-cell-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a cgroup");
        let limits = Limits {
            processes: 1,
            memory_bytes: 1,
        };
        let cell = Cell {
            folder,
            limits,
            refused_before: 0,
        };
        // The process group of the child is another than that of its own child.
        let procs = cell.folder.join("cgroup.procs");
        let script = "echo $$ >\"$0\" && { setsid sleep 600 & } && echo started && sleep 600";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(&procs)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut said = [0; 8];
        let mut out = child.stdout.take().expect("a pipe");
        io::Read::read_exact(&mut out, &mut said).expect("the shell has started");
        assert!(cell.is_populated());
        let folder = cell.folder.clone();
        drop(cell);
        assert!(
            !folder.exists(),
            "no process is left, so the cgroup is gone"
        );
        assert!(!child.wait().expect("a status").success());
    }

    #[test]
    fn a_process_refused_above_counts_from_the_start_of_the_tool() {
        let base = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| {
            std::fs::write(base.path().join(path), text).expect("a file");
        };
        let limits = Limits {
            processes: 64,
            memory_bytes: 1 << 20,
        };
        put("pids.events.local", "max 5\n");
        let cell = Cell::create(base.path().join("tool-0"), limits).expect("a folder");
        // Another tool has reached the limit of that tool.
        put("pids.events", "max 7\n");
        assert_eq!(cell.ceiling(), None, "5 refusals are older than the tool");
        put("pids.events.local", "max 6\n");
        assert_eq!(cell.ceiling(), Some(Ceiling::NodeProcesses));
        put("tool-0/pids.events", "max 1\n");
        assert_eq!(cell.ceiling(), Some(Ceiling::Processes(64)));
    }

    #[test]
    fn limits_are_written_before_a_process_enters() {
        let base = tempfile::tempdir().expect("a folder");
        let limits = Limits {
            processes: 64,
            memory_bytes: 1 << 20,
        };
        let cell = Cell::create(base.path().join("tool-0"), limits).expect("a folder");
        assert_eq!(
            ["pids.max", "memory.max", "memory.oom.group"].map(|file| cell.read(file)),
            ["64", "1048576", "1"]
        );
        assert_eq!(
            cell.read("memory.swap.max"),
            "",
            "a kernel without accounting of swap"
        );
        let again = Cell::create(base.path().join("tool-0"), limits);
        assert_eq!(
            again.expect_err("it exists").kind(),
            io::ErrorKind::AlreadyExists
        );
    }
}
