//! Builds a cpio archive in the "newc" format, unpacked by the kernel as an initrd
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::Write as _;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

/// Returns an archive with a single file and its parent directories. `path` is relative, short and
/// never chosen by a client.
pub(super) fn with_file(path: &str, content: &[u8]) -> Vec<u8> {
    let mut archive = Vec::with_capacity(content.len() + 1024);
    let directories = path.match_indices('/').map(|(end, _)| &path[..end]);
    for (number, directory) in (1..).zip(directories) {
        add(&mut archive, number, directory, DIRECTORY, &[]);
    }
    add(&mut archive, 100, path, FILE, content);
    add(&mut archive, 0, "TRAILER!!!", 0, &[]);
    // A following archive must start at a multiple of four. The cpio program pads to 512.
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive
}

/// Appends an entry. Each header field has eight hex digits: inode, mode, uid, gid, links, time,
/// size, device and special device numbers, name length, checksum. The time is zero, so that the
/// same content gives the same archive.
fn add(archive: &mut Vec<u8>, inode: u32, name: &str, mode: u32, content: &[u8]) {
    let links = if mode == DIRECTORY { 2 } else { 1 };
    let fields = [
        inode,
        mode,
        0,
        0,
        links,
        0,
        length(content.len()),
        0,
        0,
        0,
        0,
        length(name.len() + 1),
        0,
    ];
    archive.extend_from_slice(b"070701");
    for field in fields {
        write!(archive, "{field:08x}").expect("writing to a vector does not fail");
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(content);
    pad(archive);
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("what goes into a boot archive is far below 4 GiB")
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_archive_is_this() {
        let archive = with_file("etc/muster/site.json", b"{}");
        assert_eq!(archive.len(), 512);
        let text = String::from_utf8_lossy(&archive).replace('\0', ".");
        let head = "07070100000001000041ed000000000000000000000002000000000000000000000000000000000000000000000000000000040000000\
                    0etc...";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("etc/muster/site.json..{}..070701"), "{text}");
    }

    /// Compares the archive with the reference implementation, if installed.
    #[test]
    fn cpio_lists_and_unpacks_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("cpio");
        command
            .args(["--extract", "--make-directories", "--quiet"])
            .current_dir(dir.path())
            .stdin(Stdio::piped());
        let Ok(mut cpio) = command.spawn() else {
            return;
        };
        cpio.stdin
            .take()
            .unwrap()
            .write_all(&with_file("etc/muster/site.json", br#"{"protocol":1}"#))
            .unwrap();
        assert!(cpio.wait().unwrap().success());
        assert_eq!(
            std::fs::read(dir.path().join("etc/muster/site.json")).unwrap(),
            br#"{"protocol":1}"#
        );
    }
}
