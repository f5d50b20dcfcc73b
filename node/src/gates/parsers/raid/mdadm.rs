//! Parser for `mdadm --detail` of an array or several arrays: metadata 0.90 and 1, and arrays in a
//! container with a controller's own metadata. The counts, the state and the list of devices must
//! agree.

use std::collections::BTreeMap;

use super::{Array, PLAIN, REDUNDANT, told};
use crate::gates::parsers::{Answer, Reading, scan};

const ARRAYS_MAX: usize = 512;
/// Words of `State` for a healthy array. `BUSY` lists the words for a rebuild or similar work, and
/// `DOWN` the words for a stopped array.
const WELL: [&str; 6] = [
    "clean",
    "active",
    "active-idle",
    "write-pending",
    "read-auto",
    "checking",
];
const BUSY: [&str; 4] = [
    "recovering",
    "resyncing",
    "reshaping",
    "resyncing (DELAYED)",
];
const DOWN: [&str; 4] = ["inactive", "Not Started", "FAILED", "broken"];

/// The output for an array: the fields, and the rows of the device list.
#[derive(Default)]
struct Block<'a> {
    name: String,
    fields: BTreeMap<&'a str, &'a str>,
    rows: Vec<&'a str>,
    listing: bool,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("mdadm failed: {}", answer.reason()));
    }
    scan::whole(answer.text)?;
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for line in answer.text.lines().filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        if let Some(name) = line
            .strip_prefix("/dev/")
            .and_then(|line| line.strip_suffix(':'))
        {
            if blocks.len() >= ARRAYS_MAX || blocks.iter().any(|block| block.name == name) {
                return Err(unknown());
            }
            blocks.push(Block {
                name: scan::word(name),
                ..Block::default()
            });
            continue;
        }
        let block = blocks.last_mut().ok_or_else(unknown)?;
        match line.split_once(" : ") {
            Some((key, value)) if !block.listing => {
                if block.fields.insert(key.trim(), value.trim()).is_some() {
                    return Err(unknown());
                }
            }
            _ if line
                .trim_start()
                .starts_with("Number   Major   Minor   RaidDevice")
                && !block.listing =>
            {
                block.listing = true;
            }
            _ if block.listing => block.rows.push(line.trim()),
            _ => return Err(unknown()),
        }
    }
    if blocks.is_empty() {
        return Err("it tells of no array".into());
    }
    blocks
        .iter()
        .map(read_array)
        .collect::<Result<_, _>>()
        .map(told)
}

impl Block<'_> {
    fn field(&self, key: &str) -> Result<&str, String> {
        let value = self.fields.get(key).copied();
        value.ok_or_else(|| format!("{}: there is no {key}", self.name))
    }

    fn count(&self, key: &str) -> Result<usize, String> {
        let count = scan::count(self.field(key)?);
        let count = count.ok_or_else(|| format!("{}: {key} is no count", self.name))?;
        Ok(count as usize)
    }

    /// Returns the number of rows in the device list containing a word.
    fn rows_with(&self, word: &str) -> usize {
        self.rows.iter().filter(|row| row.contains(word)).count()
    }
}

fn read_array(block: &Block<'_>) -> Result<Array, String> {
    let name = &block.name;
    check_metadata(block)?;
    let level = block.field("Raid Level")?;
    if !REDUNDANT.contains(&level) && !PLAIN.contains(&level) {
        return Err(format!("{name}: level {level:?} is not known"));
    }
    let words: Vec<&str> = block.field("State")?.split(", ").map(str::trim).collect();
    let known = |word: &&str| {
        *word == "degraded" || WELL.contains(word) || BUSY.contains(word) || DOWN.contains(word)
    };
    if let Some(strange) = words.iter().find(|word| !known(word)) {
        return Err(format!("{name}: state {strange:?} is not known"));
    }
    if words.iter().any(|word| DOWN.contains(word)) {
        // For an inactive array, mdadm prints fewer counts, and the devices are not in their slots.
        let devices = block
            .count("Raid Devices")
            .or_else(|_| block.count("Total Devices"))?;
        return Ok(Array {
            name: name.clone(),
            level: Some(level.to_owned()),
            inactive: true,
            devices,
            missing: None,
            failed: 0,
            rebuilding: false,
        });
    }
    let (devices, active) = (block.count("Raid Devices")?, block.count("Active Devices")?);
    let (working, failed, spare) = (
        block.count("Working Devices")?,
        block.count("Failed Devices")?,
        block.count("Spare Devices")?,
    );
    let agrees = active <= devices
        && (active < devices) == words.contains(&"degraded")
        && active + spare == working
        && block.rows_with(" active sync ") == active
        && block.rows_with(" faulty ") == failed;
    if !agrees {
        return Err(format!(
            "{name}: its counts, its state and its devices do not agree"
        ));
    }
    Ok(Array {
        name: name.clone(),
        level: Some(level.to_owned()),
        inactive: false,
        devices,
        missing: Some(devices - active),
        failed,
        rebuilding: words.iter().any(|word| BUSY.contains(word)),
    })
}

/// Checks the metadata version. An array in a container has `/dev/md/imsm0, member 0` instead of a
/// version (mdadm's Detail.c).
fn check_metadata(block: &Block<'_>) -> Result<(), String> {
    let (metadata, known) = match block.fields.get("Container") {
        Some(container) => (*container, container.contains(", member ")),
        None => {
            let version = block.field("Version")?;
            let known = ["0.90", "1.0", "1.1", "1.2", "1"].contains(&version);
            (version, known)
        }
    };
    match known {
        true => Ok(()),
        false => Err(format!(
            "{}: metadata {metadata:?} is not known",
            block.name
        )),
    }
}
