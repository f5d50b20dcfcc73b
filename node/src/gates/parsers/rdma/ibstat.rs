//! Parser for `ibstat`. Without an adapter, ibstat prints no text and exits with 0, and the parser
//! rejects the empty output. Each adapter states its number of ports, and every port must be
//! listed. The rails of a node are ports of the same link layer. A port of another layer cannot
//! replace a rail at any speed. The forms are those of rdma-core 50, infiniband-diags/ibstat.c:
//! ca_dump and port_dump.

use std::collections::BTreeMap;

use crate::gates::parsers::{Answer, Reading, scan};

const ADAPTERS_MAX: usize = 128;
const PORTS_MAX: usize = 64;
/// Kinds of adapters, in the words of ibstat.c. Switches and routers are none.
const KINDS: [&str; 2] = ["CA", "iWARP RNIC"];

#[derive(Default)]
struct Adapter {
    name: String,
    kind: String,
    firmware: String,
    ports: Option<usize>,
    told: Vec<Port>,
}

#[derive(Default)]
struct Port {
    number: usize,
    state: Option<String>,
    physical: Option<String>,
    /// The word behind `Rate:`.
    rate: Option<String>,
    layer: Option<String>,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("ibstat failed: {}", answer.reason()));
    }
    scan::whole(answer.text)?;
    let adapters = read(answer.text)?;
    let mut reading = Reading::default();
    let mut ports = 0;
    let mut active: Layers<'_> = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for adapter in &adapters {
        let name = &adapter.name;
        let stated = adapter
            .ports
            .ok_or_else(|| format!("{name} does not say how many ports it has"))?;
        if stated == 0 || stated != adapter.told.len() {
            return Err(format!(
                "{name} has {stated} ports and tells of {}",
                adapter.told.len()
            ));
        }
        for port in &adapter.told {
            let entity = format!("{name}/{}", port.number);
            let missing = |what: &str| format!("{entity} does not tell its {what}");
            let state = port.state.as_deref().ok_or_else(|| missing("state"))?;
            let physical = port
                .physical
                .as_deref()
                .ok_or_else(|| missing("physical state"))?;
            let rate = port.rate.as_deref().ok_or_else(|| missing("rate"))?;
            let layer = port.layer.as_deref().ok_or_else(|| missing("link layer"))?;
            ports += 1;
            let is_active = state == "Active" && physical == "LinkUp";
            *counts.entry(layer).or_default() += usize::from(is_active);
            reading.add_word("ib.state", &entity, state);
            reading.add_word("ib.physical_state", &entity, physical);
            match parse_rate(rate) {
                Some(rate) => {
                    reading.add_of("ib.rate", &entity, rate);
                    if is_active {
                        let of_layer = active.entry(layer).or_default();
                        of_layer.push((rate, entity.clone()));
                    }
                }
                None => leave_rate(&mut reading, &entity, rate),
            }
            reading.add_word("ib.link_layer", &entity, layer);
            add_adapter(&mut reading, &entity, adapter);
            if state != "Active" {
                reading
                    .notes
                    .push(format!("{entity} is {state}, {physical}"));
            }
        }
    }
    reading.notes.truncate(10);
    reading.count("ib.adapters", adapters.len());
    reading.count("ib.ports", ports);
    reading.count(
        "ib.ports_active",
        counts.into_values().max().unwrap_or_default(),
    );
    for (rate, entity) in fastest(active) {
        reading.add_of("ib.active_rate", &entity, rate);
    }
    Ok(reading)
}

/// Adds the kind and the firmware of a port's adapter. Software adapters have neither.
fn add_adapter(reading: &mut Reading, entity: &str, adapter: &Adapter) {
    for (metric, text) in [
        ("ib.adapter_type", &adapter.kind),
        ("ib.firmware", &adapter.firmware),
    ] {
        if !text.is_empty() {
            reading.add_word(metric, entity, text);
        }
    }
}

/// Parses the rate of a port, in Gb/s. Lanes of FDR10 have the rate of QDR, and ibstat names them.
fn parse_rate(word: &str) -> Option<f64> {
    scan::number(word.strip_suffix(" (FDR10)").unwrap_or(word))
}

/// Leaves the rates of a port whose rate has an unknown form.
fn leave_rate(reading: &mut Reading, entity: &str, word: &str) {
    for metric in ["ib.rate", "ib.active_rate"] {
        reading.leave(metric, format!("{entity}: rate {word:?} is not understood"));
    }
}

/// Active ports with their rates, by link layer.
type Layers<'a> = BTreeMap<&'a str, Vec<(f64, String)>>;

/// Returns a port for each place: the n-th fastest port of the layer where the n-th port is
/// fastest. The slowest of the first n ports is therefore the best rate reached by n ports of a
/// single layer. Between equal rates, the layer with more ports wins.
fn fastest(mut layers: Layers<'_>) -> Vec<(f64, String)> {
    layers
        .values_mut()
        .for_each(|ports| ports.sort_by(|one, other| other.0.total_cmp(&one.0)));
    let most = layers.values().map(Vec::len).max().unwrap_or_default();
    let at = |place: usize| {
        let there = layers
            .values()
            .filter_map(move |ports| Some((ports.get(place)?, ports.len())));
        let best = there
            .max_by(|(one, some), (other, more)| one.0.total_cmp(&other.0).then(some.cmp(more)));
        best.map(|(port, _)| port.clone())
    };
    (0..most).filter_map(at).collect()
}

fn read(text: &str) -> Result<Vec<Adapter>, String> {
    let mut adapters: Vec<Adapter> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        if let Some(name) = KINDS.iter().find_map(|kind| name_adapter(line, kind)) {
            if name.is_empty()
                || adapters.len() >= ADAPTERS_MAX
                || adapters.iter().any(|adapter| adapter.name == name)
            {
                return Err(unknown());
            }
            adapters.push(Adapter {
                name: scan::word(name),
                ..Adapter::default()
            });
            continue;
        }
        let adapter = adapters.last_mut().ok_or_else(unknown)?;
        let (key, value) = line.trim().split_once(':').ok_or_else(unknown)?;
        let value = value.trim();
        if let Some(number) = key.strip_prefix("Port ").filter(|_| value.is_empty()) {
            let number = number.parse().map_err(|_| unknown())?;
            if adapter.told.len() >= PORTS_MAX
                || adapter.told.iter().any(|port| port.number == number)
            {
                return Err(unknown());
            }
            adapter.told.push(Port {
                number,
                ..Port::default()
            });
            continue;
        }
        match (key, adapter.told.last_mut()) {
            ("CA type" | "iWARP RNIC type", None) => adapter.kind = scan::word(value),
            ("Firmware version", None) => adapter.firmware = scan::word(value),
            ("Number of ports", None) => {
                adapter.ports = Some(value.parse().map_err(|_| unknown())?)
            }
            ("State", Some(port)) => {
                once(&mut port.state, state(value).ok_or_else(unknown)?).ok_or_else(unknown)?
            }
            ("Physical state", Some(port)) => {
                once(&mut port.physical, physical(value).ok_or_else(unknown)?)
                    .ok_or_else(unknown)?;
            }
            ("Rate", Some(port)) => {
                once(&mut port.rate, scan::word(value)).ok_or_else(unknown)?;
            }
            ("Link layer", Some(port)) => {
                once(&mut port.layer, scan::word(value)).ok_or_else(unknown)?
            }
            _ => {}
        }
    }
    Ok(adapters)
}

/// Returns the name in the first line of an adapter: `CA 'mlx5_0'`.
fn name_adapter<'l>(line: &'l str, kind: &str) -> Option<&'l str> {
    let name = line.strip_prefix(kind)?.strip_prefix(" '")?;
    name.strip_suffix('\'')
}

/// Stores the first value. A second value is a contradiction and returns `None`.
fn once<T>(kept: &mut Option<T>, value: T) -> Option<()> {
    kept.replace(value).is_none().then_some(())
}

/// Returns a known logical state (InfiniBand specification, 14.2.5.6), in the words of ibstat.c.
fn state(word: &str) -> Option<String> {
    ["???", "Down", "Initializing", "Armed", "Active"]
        .contains(&word)
        .then(|| word.to_owned())
}

/// Returns a known physical state, in the words of ibstat.c.
fn physical(word: &str) -> Option<String> {
    let known = [
        "???",
        "No state change",
        "Sleep",
        "Polling",
        "Disabled",
        "PortConfigurationTraining",
        "LinkUp",
        "LinkErrorRecovery",
        "PhyTest",
        "Phy Test",
    ];
    known.contains(&word).then(|| word.to_owned())
}
