//! `mdadm --detail`, metadata 0.90 and 1, and arrays in a container of a controller's own metadata: one or several. Its counts, its state and its list of
//! devices must agree.

use std::collections::BTreeMap;

use super::{Array, PLAIN, REDUNDANT, told};
use crate::gates::parsers::{Answer, Reading, scan};

const ARRAYS_MAX: usize = 512;
/// Words of `State` that say nothing bad, that say that it works on itself, and that say that it does not run.
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

/// What is said of one array: its fields, and the rows of its devices.
#[derive(Default)]
struct Block<'a> {
    name: String,
    fields: BTreeMap<&'a str, &'a str>,
    rows: Vec<&'a str>,
    listing: bool,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("mdadm failed: {}", scan::word(answer.messages)));
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
    blocks.iter().map(array).collect::<Result<_, _>>().map(told)
}

fn array(block: &Block<'_>) -> Result<Array, String> {
    let name = &block.name;
    let field = |key: &str| {
        block
            .fields
            .get(key)
            .copied()
            .ok_or_else(|| format!("{name}: there is no {key}"))
    };
    let count = |key: &str| {
        let count = scan::count(field(key)?).ok_or_else(|| format!("{name}: {key} is no count"))?;
        Ok::<usize, String>(count as usize)
    };
    // `/dev/md/imsm0, member 0` stands in place of a version (mdadm's Detail.c).
    let (metadata, known) = match block.fields.get("Container") {
        Some(container) => (*container, container.contains(", member ")),
        None => (
            field("Version")?,
            ["0.90", "1.0", "1.1", "1.2", "1"].contains(&field("Version")?),
        ),
    };
    if !known {
        return Err(format!("{name}: metadata {metadata:?} is not known"));
    }
    let level = field("Raid Level")?;
    if !REDUNDANT.contains(&level) && !PLAIN.contains(&level) {
        return Err(format!("{name}: level {level:?} is not known"));
    }
    let words: Vec<&str> = field("State")?.split(", ").map(str::trim).collect();
    let known = |word: &&str| {
        *word == "degraded" || WELL.contains(word) || BUSY.contains(word) || DOWN.contains(word)
    };
    if let Some(strange) = words.iter().find(|word| !known(word)) {
        return Err(format!("{name}: state {strange:?} is not known"));
    }
    let down = words.iter().any(|word| DOWN.contains(word));
    if down {
        // Of one that does not run less is told, and what it has is not in its slots.
        let devices = count("Raid Devices").or_else(|_| count("Total Devices"))?;
        let level = Some(level.to_owned());
        return Ok(Array {
            name: name.clone(),
            level,
            inactive: true,
            devices,
            missing: None,
            failed: 0,
            rebuilding: false,
        });
    }
    let (devices, active) = (count("Raid Devices")?, count("Active Devices")?);
    let (working, failed, spare) = (
        count("Working Devices")?,
        count("Failed Devices")?,
        count("Spare Devices")?,
    );
    let listed = |sign: &str| block.rows.iter().filter(|row| row.contains(sign)).count();
    let agrees = active <= devices
        && (active < devices) == words.contains(&"degraded")
        && active + spare == working
        && listed(" active sync ") == active
        && listed(" faulty ") == failed;
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
