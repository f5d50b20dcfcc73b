//! Parser for `perfquery` and `perfquery -x`. Counters accumulate until cleared, and a healthy port
//! counts a link-down after every replug. Gates therefore limit a difference, or use a generous
//! bound. A saturated short counter no longer counts, and is an error.

use std::collections::BTreeMap;

use crate::gates::parsers::{Answer, Reading, scan};

/// Counter, metric, and the value where the short counter saturates (InfiniBand specification,
/// 16.1.3.5).
const COUNTERS: [(&str, &str, f64); 13] = [
    ("SymbolErrorCounter", "ib.symbol_errors", 65_535.0),
    ("LinkErrorRecoveryCounter", "ib.link_recoveries", 255.0),
    ("LinkDownedCounter", "ib.link_downed", 255.0),
    ("PortRcvErrors", "ib.receive_errors", 65_535.0),
    (
        "PortRcvRemotePhysicalErrors",
        "ib.receive_remote_errors",
        65_535.0,
    ),
    (
        "PortRcvSwitchRelayErrors",
        "ib.receive_switch_errors",
        65_535.0,
    ),
    ("PortXmitDiscards", "ib.transmit_discards", 65_535.0),
    (
        "PortXmitConstraintErrors",
        "ib.transmit_constraint_errors",
        255.0,
    ),
    (
        "PortRcvConstraintErrors",
        "ib.receive_constraint_errors",
        255.0,
    ),
    ("LocalLinkIntegrityErrors", "ib.integrity_errors", 15.0),
    ("ExcessiveBufferOverrunErrors", "ib.buffer_overruns", 15.0),
    ("VL15Dropped", "ib.vl15_dropped", 65_535.0),
    ("PortXmitWait", "ib.transmit_wait", 4_294_967_295.0),
];

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("perfquery failed: {}", answer.reason()));
    }
    scan::whole(answer.text)?;
    let mut reading = Reading::default();
    let mut port: Option<(String, bool)> = None;
    let mut counters: BTreeMap<&str, &str> = BTreeMap::new();
    for line in answer.text.lines().filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        if let Some(header) = line.strip_prefix("# ") {
            settle(&mut reading, port.take(), &mut counters)?;
            port = Some(head(header).ok_or_else(unknown)?);
            continue;
        }
        let (name, value) = line.split_once(':').ok_or_else(unknown)?;
        if port.is_none()
            || counters
                .insert(name, value.trim_start_matches('.').trim())
                .is_some()
        {
            return Err(unknown());
        }
    }
    settle(&mut reading, port, &mut counters)?;
    match reading.samples.is_empty() {
        true => Err("it tells of no port".into()),
        false => Ok(reading),
    }
}

/// Parses `Port extended counters: Lid 2052 port 1 (CapMask: …)` or `Port counters: Lid 6 port 1`:
/// the port, and whether the counters are wide.
fn head(header: &str) -> Option<(String, bool)> {
    let (kind, rest) = header.split_once(": Lid ")?;
    let wide = match kind {
        "Port extended counters" => true,
        "Port counters" => false,
        _ => return None,
    };
    let mut words = rest.split_whitespace();
    let lid: u32 = words.next()?.parse().ok()?;
    if words.next() != Some("port") {
        return None;
    }
    let port: u32 = words.next()?.parse().ok()?;
    Some((format!("{lid}/{port}"), wide))
}

/// Ends a port. Fails unless all counters were present.
fn settle(
    reading: &mut Reading,
    port: Option<(String, bool)>,
    counters: &mut BTreeMap<&str, &str>,
) -> Result<(), String> {
    let Some((entity, wide)) = port else {
        return Ok(());
    };
    if reading.samples.iter().any(|sample| sample.entity == entity) {
        return Err(format!("port {entity} stands there twice"));
    }
    for (name, metric, end) in COUNTERS {
        let text = counters
            .get(name)
            .ok_or_else(|| format!("port {entity} does not tell {name}"))?;
        let value = scan::count(text)
            .ok_or_else(|| format!("{entity}: {name} is {:?}", scan::word(text)))?;
        if !wide && value >= end {
            return Err(format!(
                "{entity}: {name} stands at its end, {value}; clear the counters, or ask for -x"
            ));
        }
        reading.add_of(metric, &entity, value);
    }
    counters.clear();
    Ok(())
}
