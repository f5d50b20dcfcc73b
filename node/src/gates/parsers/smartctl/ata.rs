//! Attributes of an ATA disk. Raw counts of an attribute differ by maker, and only the maker's
//! threshold is comparable.

use serde::Deserialize;

use crate::gates::parsers::{Reading, scan};

#[derive(Deserialize)]
pub(super) struct Attributes {
    table: Vec<Attribute>,
}

/// An attribute of an ATA disk. `when_failed` is `now` while the value is at its threshold, `past`
/// after an earlier time at the threshold, and otherwise empty (smartctl(8), `-A`).
#[derive(Deserialize)]
struct Attribute {
    id: u8,
    name: String,
    when_failed: String,
    flags: Flags,
}

#[derive(Deserialize)]
struct Flags {
    prefailure: bool,
}

/// Counts the attributes at their threshold. With an unknown word about an attribute, the count is
/// unread.
pub(super) fn add_attributes(reading: &mut Reading, serial: &str, attributes: &Attributes) {
    let mut failing = 0;
    for Attribute {
        id,
        name,
        when_failed,
        flags,
    } in &attributes.table
    {
        match when_failed.as_str() {
            "" | "past" => {}
            "now" => {
                failing += usize::from(flags.prefailure);
                reading.notes.push(format!(
                    "{serial}: attribute {id} {name} is at its threshold"
                ));
            }
            other => {
                let reason = format!("attribute {id} failed {:?}", scan::word(other));
                reading.leave("smart.prefail", reason);
                return;
            }
        }
    }
    reading.count("smart.prefail", failing);
}
