//! Partitions assigned to the node's InfiniBand ports by the subnet manager (InfiniBand
//! specification, 10.9). Two nodes without a common partition cannot reach each other. A port in
//! another partition than its neighbors breaks only the jobs using the port.

use std::collections::{BTreeMap, BTreeSet};

use crate::gates::Bench;
use crate::gates::parsers::rdma::ports::{self, Port};
use crate::gates::parsers::{Reading, scan};

/// Maximum entries of a port's table. Adapters have at most 128 entries.
const KEYS_MAX: usize = 1024;
/// An unused entry.
const INVALID: u16 = 0;

pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for port in ports::all(&bench.machine)? {
        if is(&port, "link_layer", "InfiniBand")? && is(&port, "state", "4: ACTIVE")? {
            seen.entry(keys(&port)?).or_default().push(port.name);
        }
    }
    let mut reading = Reading::default();
    let told = match seen.len() {
        0 => return Err("no InfiniBand port is active".into()),
        1 => seen.into_keys().collect(),
        _ => seen
            .iter()
            .map(|(keys, ports)| format!("{keys} ({})", ports.join(", ")))
            .collect::<Vec<_>>()
            .join("; "),
    };
    reading.add_word("ib.pkeys", "", &told);
    Ok(reading)
}

fn is(port: &Port<'_>, file: &str, wanted: &str) -> Result<bool, String> {
    let text = port
        .read(file)?
        .ok_or_else(|| format!("{} does not tell its {file}", port.name))?;
    Ok(text == wanted)
}

/// Returns the keys in use on a port, sorted.
fn keys(port: &Port<'_>) -> Result<String, String> {
    let entries = port.list("pkeys")?;
    if entries.len() > KEYS_MAX {
        return Err(format!(
            "{} has {} partition keys, more than are read",
            port.name,
            entries.len()
        ));
    }
    let mut keys = BTreeSet::new();
    for entry in entries {
        let text = port.read(&format!("pkeys/{entry}"))?.unwrap_or_default();
        let digits = text
            .strip_prefix("0x")
            .and_then(|digits| u16::from_str_radix(digits, 16).ok());
        keys.insert(
            digits.ok_or_else(|| {
                format!("{}: a partition key is {:?}", port.name, scan::word(&text))
            })?,
        );
    }
    keys.remove(&INVALID);
    match keys.is_empty() {
        true => Err(format!("{} is in no partition", port.name)),
        false => Ok(keys
            .into_iter()
            .map(|key| format!("0x{key:04x}"))
            .collect::<Vec<_>>()
            .join(" ")),
    }
}
