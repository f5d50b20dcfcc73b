//! Parser for `df -P -k` and `df -P -i`: a line per file system in POSIX format. Each line states
//! the usage as counts and as a percentage, and the parser rejects a line where they disagree.

use super::{Answer, Reading, scan};

const FILE_SYSTEMS_MAX: usize = 1000;

/// The unit counted by the columns.
#[derive(Clone, Copy)]
enum Of {
    /// Blocks of 1024 bytes.
    Space,
    Inodes,
}

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("df failed: {}", answer.reason()));
    }
    scan::whole(answer.text)?;
    let mut lines = answer.text.lines();
    let of = read_header(lines.next().unwrap_or_default())?;
    let mut reading = Reading::default();
    let (mut seen, mut fullest) = (Vec::new(), None::<(f64, &str)>);
    for line in lines {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        let found = read_line(line).ok_or_else(unknown)?;
        if seen.contains(&found.mount) || seen.len() >= FILE_SYSTEMS_MAX {
            return Err(format!("{} stands there twice", scan::word(found.mount)));
        }
        seen.push(found.mount);
        // A file system without a limit on inodes has no usage.
        let Some(used) = found.used else { continue };
        let mount = scan::word(found.mount);
        match of {
            Of::Space => {
                reading.add_of("fs.used", &mount, used);
                reading.add_of("fs.available", &mount, (found.available / 1024.0).floor());
            }
            Of::Inodes => {
                reading.add_of("fs.inodes_used", &mount, used);
                reading.add_of("fs.inodes_available", &mount, found.available);
            }
        }
        if fullest.is_none_or(|(most, _)| used > most) {
            fullest = Some((used, found.mount));
        }
    }
    let (used, mount) = fullest.ok_or("it tells of no file system")?;
    reading.count("fs.count", seen.len());
    let metric = match of {
        Of::Space => "fs.fullest",
        Of::Inodes => "fs.inodes_fullest",
    };
    reading.add(metric, used);
    reading
        .notes
        .push(format!("{} is the fullest: {used} %", scan::word(mount)));
    Ok(reading)
}

/// Returns the counted unit named by the header's columns.
fn read_header(line: &str) -> Result<Of, String> {
    let columns = line.split_whitespace().collect::<Vec<_>>().join(" ");
    match columns.as_str() {
        "Filesystem 1024-blocks Used Available Capacity Mounted on" => Ok(Of::Space),
        "Filesystem Inodes IUsed IFree IUse% Mounted on" => Ok(Of::Inodes),
        _ => Err(format!(
            "{:?} are not the columns of df -P -k or df -P -i",
            scan::word(&columns)
        )),
    }
}

struct FileSystem<'a> {
    mount: &'a str,
    /// Percentage of the usable space or inodes in use. `None` for a file system with a total of 0.
    used: Option<f64>,
    available: f64,
}

/// Parses a line such as `/dev/sda1   51472996 7123456  41702524      15% /`. A source name with a
/// space shifts the columns, so such a line returns `None` unless the shifted columns are numbers.
fn read_line(line: &str) -> Option<FileSystem<'_>> {
    let mut rest = line;
    let mut word = || {
        let start = rest.trim_start();
        let (word, after) = start.split_once(' ')?;
        rest = after;
        Some(word)
    };
    let _source = word()?;
    let [total, used, available] = [word()?, word()?, word()?];
    let percent = word()?;
    let mount = rest.trim_start();
    let (total, used, available) = (
        scan::count(total)?,
        scan::count(used)?,
        scan::count(available)?,
    );
    if !mount.starts_with('/') || used > total || available > total {
        return None;
    }
    let used = match percent.strip_suffix('%') {
        None if percent == "-" && total == 0.0 => None,
        None => return None,
        // df rounds up used / (used + available). The blocks reserved for root are in neither
        // count.
        Some(told) => {
            let told = scan::count(told)?;
            let counted = 100.0 * used / (used + available).max(1.0);
            (told >= counted - 0.5 && told <= counted + 1.0).then_some(Some(told))?
        }
    };
    Some(FileSystem {
        mount,
        used,
        available,
    })
}
