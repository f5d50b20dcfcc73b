//! A minimal Debian 12 in a folder: built once, cached, unpacked per test and removed with the
//! test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::Machine;

/// A replacement of systemctl: units are files, changes are a log.
const SYSTEMCTL: &str = r#"#!/bin/sh
state=/var/lib/units
mkdir -p $state
words=; now=
case " $* " in *" --now "*) now=1 ;; esac
for word in "$@"; do case $word in --*) ;; *) words="$words $word" ;; esac; done
set -- $words
verb=$1; shift
[ "$verb" = show ] || { echo "$verb${1:+ $1}" >>/var/log/units; }
for unit in "$@"; do
    case $verb in
    show)
        [ ! -e $state/$unit.unanswered ] || { echo "Failed to get properties" >&2; exit 1; }
        load=not-found; active=inactive; file=; id=$unit
        [ ! -e $state/$unit.alias ] || id=$(cat $state/$unit.alias)
        [ ! -e /lib/systemd/system/$id -a ! -e /etc/systemd/system/$id ] || { load=loaded; file=disabled; }
        [ ! -e $state/$unit.enabled ] || file=enabled
        [ ! -e $state/$unit.masked ] || { load=masked; file=masked; }
        [ ! -e $state/$unit.active ] || active=active
        [ ! -e $state/$unit.activating ] || active=activating
        [ ! -e $state/$unit.failed ] || active=failed
        printf 'Id=%s\nNames=%s %s\nLoadState=%s\nActiveState=%s\nUnitFileState=%s\n' $id $unit $id $load $active $file
        [ ! -e $state/$unit.environment ] || sed 's/.*/EnvironmentFiles=& (ignore_errors=yes)/' $state/$unit.environment
        echo ;;
    unmask) rm -f $state/$unit.masked ;;
    enable | start) [ ! -e $state/$unit.masked ] || { echo "Failed to $verb unit: Unit $unit is masked." >&2; exit 1; } ;;
    esac
    case $verb in
    enable) touch $state/$unit.enabled ;;
    disable) rm -f $state/$unit.enabled; [ -z "$now" ] || rm -f $state/$unit.active ;;
    start | restart)
        rm -f $state/$unit.active $state/$unit.failed
        [ ! -e $state/$unit.needs -o -e "$(cat $state/$unit.needs 2>/dev/null)" ] || { echo "no file" >&2; exit 1; }
        [ ! -e $state/$unit.broken ] || { echo "Job for $unit failed." >&2; exit 1; }
        [ ! -e $state/$unit.slow ] || { touch $state/$unit.activating; sleep 60; }
        rm -f $state/$unit.activating
        touch $state/$unit.active ;;
    stop) rm -f $state/$unit.active ;;
    esac
done
"#;
/// Like GRUB's own program, the script empties its target before writing.
const GRUB_MKCONFIG: &str = r#"#!/bin/sh
set -e
[ "$1" = -o ]
mkdir -p "${2%/*}"
: >"$2"
[ ! -e /run/slow-grub ] || { touch /run/in-grub; sleep 60; }
echo menu >"$2"
echo grub-mkconfig >>/var/log/grub
"#;
const PROGRAMS: [(&str, &str); 3] = [
    ("/usr/bin/systemctl", SYSTEMCTL),
    ("/usr/bin/journalctl", "#!/bin/sh\necho it is broken\n"),
    ("/usr/sbin/grub-mkconfig", GRUB_MKCONFIG),
];

/// An unpacked tree.
pub(super) struct Tree {
    folder: tempfile::TempDir,
}

/// An empty folder in memory, if there is room. On ext4 without a journal, a new file costs a scan
/// over the files deleted within the last seconds, and each test deletes a whole tree.
fn folder_in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let has_room = nix::sys::statvfs::statvfs(memory).is_ok_and(|found| {
        let free = found.blocks_available() * found.fragment_size();
        free > 4 * 1024 * 1024 * 1024
            && !found
                .flags()
                .contains(nix::sys::statvfs::FsFlags::ST_NOEXEC)
    });
    let folder = match has_room {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    folder.expect("a folder")
}

impl Tree {
    /// Unpacks the tree; `None`, with the reason on stderr, on a machine that cannot enter or build
    /// a tree.
    pub(super) fn unpack() -> Option<Self> {
        Self::unpack_archive(archive("bookworm-minbase", None))
    }

    /// Unpacks the tree with one more package and its dependencies.
    pub(super) fn unpack_with(package: &str) -> Option<Self> {
        Self::unpack_archive(archive(&format!("bookworm-{package}"), Some(package)))
    }

    fn unpack_archive(archive: Result<PathBuf, String>) -> Option<Self> {
        let archive = match archive {
            Ok(archive) => archive,
            Err(why) => {
                // A missing tool on a maintainer's machine is not a fault of the code; in CI a
                // skipped test protects no code.
                assert!(std::env::var_os("CI").is_none(), "not run: {why}");
                eprintln!("not run: {why}");
                return None;
            }
        };
        let folder = folder_in_memory();
        let status = Command::new("tar")
            .arg("-C")
            .arg(folder.path())
            .arg("-xf")
            .arg(archive)
            .status()
            .expect("tar");
        assert!(status.success(), "the tree is unpacked");
        let tree = Self { folder };
        for (path, text) in PROGRAMS {
            tree.program(path, text);
        }
        // The kernel's files, as plain files: a read returns the written text.
        for (path, text) in [
            ("/proc/sys/vm/swappiness", "60\n"),
            ("/proc/cmdline", "quiet\n"),
        ] {
            tree.write(path, text);
        }
        Some(tree)
    }

    pub(super) fn machine(&self) -> Machine {
        Machine::at(self.folder.path())
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.path(path).parent().expect("a parent")).expect("a folder");
        std::fs::write(self.path(path), text).expect("a file");
    }

    /// Writes a program of the tree.
    pub(super) fn program(&self, path: &str, text: &str) {
        self.write(path, text);
        std::fs::set_permissions(self.path(path), std::fs::Permissions::from_mode(0o755))
            .expect("a mode");
    }

    pub(super) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    pub(super) fn remove(&self, path: &str) {
        std::fs::remove_file(self.path(path)).expect("a file to remove");
    }

    /// Runs a program in the tree and returns all its output.
    pub(super) fn output(&self, argv: &[&str]) -> String {
        let done = Command::new("chroot")
            .arg(self.folder.path())
            .args(argv)
            .output()
            .expect("chroot");
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }

    pub(super) fn wait_for(&self, path: &str) {
        let started = Instant::now();
        while !self.path(path).exists() {
            assert!(
                started.elapsed() < Duration::from_secs(300),
                "{path} never came"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills every process whose root is this tree with `kill -9`: apt, dpkg and scripts at once,
    /// like a power cut.
    pub(super) fn kill_everything(&self) -> usize {
        let inside = self.processes();
        inside
            .iter()
            .for_each(|pid| _ = kill(Pid::from_raw(*pid), Signal::SIGKILL));
        inside.len()
    }

    fn processes(&self) -> Vec<i32> {
        let root = self.folder.path().canonicalize().expect("a root");
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/root")).is_ok_and(|link| link == root)
        })
        .collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.kill_everything();
    }
}

/// Returns the cached archive. The first build takes half a minute and needs a mirror.
fn archive(name: &str, package: Option<&str>) -> Result<PathBuf, String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("a chroot needs root".into());
    }
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/tests");
    std::fs::create_dir_all(&cache).map_err(|error| error.to_string())?;
    let archive = cache.join(format!("{name}.tar"));
    // Tests are separate processes: the first test builds, the others wait.
    let lock = std::fs::File::create(cache.join(format!("{name}.lock")))
        .map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    if !archive.exists() {
        let building = cache.join(format!("{name}.new.tar"));
        let built = Command::new("timeout")
            .args(["600", "mmdebstrap", "--quiet", "--variant=minbase"])
            .args(package.map(|package| format!("--include={package}")))
            .arg("bookworm")
            .arg(&building)
            .status()
            .map_err(|error| format!("mmdebstrap: {error}"))?;
        if !built.success() {
            return Err("mmdebstrap could not build a tree; is there a mirror?".into());
        }
        std::fs::rename(&building, &archive).map_err(|error| error.to_string())?;
    }
    Ok(archive)
}
