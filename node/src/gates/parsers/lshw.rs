//! Parser for `lshw -json`: a tree of devices, inside a list in newer versions. The document
//! carries no version of lshw, so the parser recognizes devices only by class and id, and the system
//! memory also by the description.

use serde_json::Value;

use super::{Answer, Reading, json, scan};

/// Deeper than the tree of any machine. serde stops at 128.
const DEPTH_MAX: usize = 32;
const NODES_MAX: usize = 20_000;
const MEBIBYTE: f64 = 1_048_576.0;

#[derive(Default)]
struct Counts {
    nodes: usize,
    processors: usize,
    modules: usize,
    slots_empty: usize,
    disks: usize,
    nics: usize,
    displays: usize,
    unclaimed: usize,
    /// In bytes, of `System memory`.
    memory: Option<f64>,
}

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("lshw failed: {}", answer.reason()));
    }
    let document: Value = json(answer.text)?;
    let system = match &document {
        Value::Array(systems) if systems.len() == 1 => &systems[0],
        other => other,
    };
    let class = |value: &Value| {
        value
            .get("class")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if class(system) != "system" {
        return Err(format!(
            "its root is of class {:?}, not of a system",
            scan::word(&class(system))
        ));
    }
    let mut counts = Counts::default();
    walk(system, 0, &mut counts)?;
    let memory = counts.memory.ok_or("it tells of no system memory")?;
    if counts.processors == 0 {
        return Err("it tells of no processor".into());
    }
    let mut reading = Reading::default();
    if let Some(product) = system.get("product").and_then(Value::as_str) {
        reading.add_word("host.product", "", product);
    }
    reading.add("host.memory", memory / MEBIBYTE);
    reading.count("host.processors", counts.processors);
    reading.count("host.memory_modules", counts.modules);
    reading.count("host.memory_slots_empty", counts.slots_empty);
    reading.count("host.disks", counts.disks);
    reading.count("host.nics", counts.nics);
    reading.count("host.displays", counts.displays);
    reading.count("host.unclaimed", counts.unclaimed);
    Ok(reading)
}

fn walk(device: &Value, depth: usize, counts: &mut Counts) -> Result<(), String> {
    counts.nodes += 1;
    if depth > DEPTH_MAX || counts.nodes > NODES_MAX {
        return Err("it has more devices than a machine".into());
    }
    let text = |key: &str| device.get(key).and_then(Value::as_str);
    let (Some(class), Some(id)) = (text("class"), text("id")) else {
        return Err("a device has no class or no id".into());
    };
    let size = match device.get("size") {
        None => None,
        Some(size) => {
            let number = size
                .as_f64()
                .filter(|number| (0.0..scan::LARGEST).contains(number));
            Some(number.ok_or_else(|| format!("{}: size {size} is no size", scan::word(id)))?)
        }
    };
    let stem = id.split(':').next().unwrap_or_default();
    match (class, stem) {
        // A socket without a processor has no size and is marked as disabled.
        ("processor", "cpu") if device.get("disabled") != Some(&Value::Bool(true)) => {
            counts.processors += 1
        }
        ("memory", "memory")
            if text("description") == Some("System Memory")
                || text("description") == Some("System memory") =>
        {
            let size = size.ok_or("its system memory has no size")?;
            counts.memory = Some(counts.memory.unwrap_or(0.0) + size);
        }
        ("memory", "bank") if size.is_some() => counts.modules += 1,
        ("memory", "bank") => counts.slots_empty += 1,
        ("disk", _) => counts.disks += 1,
        // The network interface is a device below its controller. Only the interface has a logical
        // name.
        ("network", _) if device.get("logicalname").is_some() => counts.nics += 1,
        ("display", _) => counts.displays += 1,
        _ => {}
    }
    if device.get("claimed") == Some(&Value::Bool(false)) {
        counts.unclaimed += 1;
    }
    match device.get("children") {
        None => Ok(()),
        Some(Value::Array(children)) => children
            .iter()
            .try_for_each(|child| walk(child, depth + 1, counts)),
        Some(_) => Err("children are no list".into()),
    }
}
