//! Parser for `/proc/mdstat` (drivers/md/md.c, md_seq_show). The first and the last line must be
//! present, because all arrays are listed between them. The list also contains containers of arrays
//! with a controller's own metadata. Such containers are always inactive.

use super::{Array, PLAIN, REDUNDANT, told};
use crate::gates::parsers::{Answer, Reading, scan};

const ARRAYS_MAX: usize = 512;
/// Metadata of a container (mdadm(8), container). The metadata of an array inside a container
/// begins with the container's path: `external:/md127/0`.
const CONTAINERS: [&str; 2] = ["external:imsm", "external:ddf"];

/// State while reading the lines of an array.
struct Found {
    array: Array,
    /// `[3/2]` and `[U_U]`.
    counts: Option<(usize, usize)>,
    slots: Option<String>,
    container: bool,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("/proc/mdstat was not read: {}", answer.reason()));
    }
    scan::whole(answer.text)?;
    let lines: Vec<&str> = answer
        .text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let [first, lines @ .., last] = lines.as_slice() else {
        return Err("it has no two lines".into());
    };
    if !first.starts_with("Personalities : ") || !last.starts_with("unused devices: ") {
        return Err("it does not begin and end as /proc/mdstat does".into());
    }
    let mut found: Vec<Found> = Vec::new();
    for line in lines {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        if line.starts_with([' ', '\t']) {
            detail(found.last_mut().ok_or_else(unknown)?, line.trim()).ok_or_else(unknown)?;
            continue;
        }
        let one = head(line).ok_or_else(unknown)?;
        if found.len() >= ARRAYS_MAX || found.iter().any(|other| other.array.name == one.array.name)
        {
            return Err(unknown());
        }
        found.push(one);
    }
    let arrays = found
        .into_iter()
        .filter(|one| !(one.array.inactive && one.container));
    arrays.map(settled).collect::<Result<_, _>>().map(told)
}

/// Parses `md0 : active raid1 loop1[1](F) loop0[0]`, or `md127 : inactive sda[0](S)`.
fn head(line: &str) -> Option<Found> {
    let (name, rest) = line.split_once(" : ")?;
    let mut words = rest.split_whitespace().peekable();
    let inactive = match words.next()? {
        "active" => false,
        "inactive" => true,
        _ => return None,
    };
    while words
        .next_if(|word| ["(read-only)", "(auto-read-only)"].contains(word))
        .is_some()
    {}
    let level = match inactive {
        true => None,
        false => Some(
            words
                .next()
                .filter(|level| REDUNDANT.contains(level) || PLAIN.contains(level))?
                .to_owned(),
        ),
    };
    let (mut devices, mut failed) = (0, 0);
    for word in words {
        let (_, rest) = word.split_once('[')?;
        let (slot, flags) = rest.split_once(']')?;
        scan::index(slot)?;
        match flags {
            "" | "(W)" | "(R)" | "(J)" => devices += 1,
            // In an inactive array, the kernel marks every member as a spare.
            "(S)" => devices += usize::from(inactive),
            "(F)" => failed += 1,
            _ => return None,
        }
    }
    let name = name.starts_with("md").then(|| scan::word(name))?;
    let array = Array {
        name,
        level,
        inactive,
        devices,
        missing: None,
        failed,
        rebuilding: false,
    };
    Some(Found {
        array,
        counts: None,
        slots: None,
        container: false,
    })
}

/// Parses `10176 blocks super 1.2 [2/1] [U_]`, `[==>…]  recovery = 12.6% …`, or `bitmap: 0/1 pages
/// …`.
fn detail(found: &mut Found, line: &str) -> Option<()> {
    let working = [
        "recovery =",
        "resync =",
        "reshape =",
        "resync=DELAYED",
        "resync=PENDING",
        "recovery=DELAYED",
    ];
    found.array.rebuilding |= working.iter().any(|sign| line.contains(sign));
    if !line.contains(" blocks") {
        return Some(());
    }
    for word in line.split_whitespace() {
        found.container |= CONTAINERS.contains(&word);
        let Some(inner) = word
            .strip_prefix('[')
            .and_then(|word| word.strip_suffix(']'))
        else {
            continue;
        };
        let told_twice = match inner.split_once('/') {
            Some((wanted, working)) => {
                let counts = (wanted.parse().ok()?, working.parse().ok()?);
                found.counts.replace(counts).is_some()
            }
            None if inner.chars().all(|slot| matches!(slot, 'U' | '_')) => {
                found.slots.replace(inner.to_owned()).is_some()
            }
            None => return None,
        };
        if told_twice {
            return None;
        }
    }
    Some(())
}

/// Checks that both counts of a redundant array agree, and that an array of another level has no
/// counts.
fn settled(found: Found) -> Result<Array, String> {
    let Found {
        mut array,
        counts,
        slots,
        ..
    } = found;
    let redundant = array
        .level
        .as_deref()
        .is_some_and(|level| REDUNDANT.contains(&level));
    match (redundant, counts, slots) {
        (true, Some((wanted, working)), Some(slots)) => {
            let up = slots.chars().filter(|slot| *slot == 'U').count();
            if slots.len() != wanted || up != working || working > wanted {
                return Err(format!(
                    "{}: [{wanted}/{working}] does not go with [{slots}]",
                    array.name
                ));
            }
            (array.devices, array.missing) = (wanted, Some(wanted - working));
        }
        // A running array without redundancy has all of its devices.
        (false, None, None) if !array.inactive && array.devices > 0 => array.missing = Some(0),
        (false, None, None) if array.inactive => {}
        _ => {
            return Err(format!(
                "{}: it does not say how many devices it has",
                array.name
            ));
        }
    }
    Ok(array)
}
