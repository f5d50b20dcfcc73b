//! Parser for gpu-fryer: timed multiplication at the requested precision, with the speed of each
//! GPU. gpu-fryer compares GPUs only with the fastest GPU of the node, so a node of slow GPUs
//! passes. gpu-fryer also calls a GPU healthy after no computation at all (issue 10 of gpu-fryer).
//! The parser therefore checks the numbers against each other and against the final verdict.

use crate::gates::parsers::{Answer, Reading, scan};

const GPUS_MAX: usize = 256;
/// The average is rounded to whole Gflop/s.
const ROUNDING: f64 = 0.51;

/// Result for a GPU.
struct Gpu {
    /// Gflop/s, over the whole run without the first seconds.
    speed: f64,
    slowest: f64,
    /// Highest temperature, in °C.
    temperature: f64,
    throttled: bool,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    scan::whole(answer.text)?;
    let lines: Vec<&str> = answer.text.lines().map(str::trim).collect();
    let detected = lines
        .iter()
        .filter(|line| line.starts_with("Detected GPU #"))
        .count();
    let healthy = lines
        .iter()
        .filter(|line| **line == "All GPUs seem healthy")
        .count();
    let unhealthy = lines
        .iter()
        .filter(|line| **line == "Some GPUs are not healthy. Reasons:")
        .count();
    match (healthy, unhealthy, answer.exit) {
        (1, 0, 0) | (0, 1, 1..) => {}
        _ => {
            return Err(format!(
                "its last word does not go with exit status {}: {}",
                answer.exit,
                answer.reason()
            ));
        }
    }
    let gpus = results(&lines)?;
    if gpus.is_empty() || gpus.len() != detected {
        return Err(format!(
            "it detected {detected} GPUs and tells of {}",
            gpus.len()
        ));
    }
    let mut reading = Reading::default();
    reading.count("fryer.gpus", gpus.len());
    reading.add("fryer.unhealthy", u8::from(unhealthy == 1));
    let fastest = gpus.iter().map(|gpu| gpu.speed).fold(0.0, f64::max);
    let slowest = gpus.iter().map(|gpu| gpu.speed).fold(f64::MAX, f64::min);
    reading.add("fryer.spread", (fastest - slowest) / fastest * 100.0);
    for (index, gpu) in gpus.iter().enumerate() {
        let entity = format!("GPU {index}");
        reading.add_of("fryer.speed", &entity, gpu.speed);
        reading.add_of("fryer.speed_lowest", &entity, gpu.slowest);
        reading.add_of("fryer.temperature", &entity, gpu.temperature);
        reading.add_of("fryer.throttled", &entity, u8::from(gpu.throttled));
    }
    reading.notes = lines
        .iter()
        .filter(|line| line.starts_with("- GPU "))
        .take(10)
        .map(|line| scan::word(line))
        .collect();
    Ok(reading)
}

/// Parses the three lines of each GPU, in the order of the GPU numbers.
fn results(lines: &[&str]) -> Result<Vec<Gpu>, String> {
    let starts = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.starts_with("GPU #") && line.contains(" Gflops/s ("));
    let mut gpus = Vec::new();
    for (at, line) in starts {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        let (index, rest) = line
            .strip_prefix("GPU #")
            .and_then(|rest| rest.split_once(": "))
            .ok_or_else(unknown)?;
        if index.parse() != Ok(gpus.len()) || gpus.len() >= GPUS_MAX {
            return Err(unknown());
        }
        let (speed, rest) = rest.trim().split_once(" Gflops/s ").ok_or_else(unknown)?;
        let [slowest, fastest, deviation] =
            numbers(rest, ["min", "max", "dev"]).ok_or_else(unknown)?;
        let speed = scan::number(speed).ok_or_else(unknown)?;
        if speed <= 0.0 || fastest <= 0.0 {
            return Err(format!("GPU {index} computed nothing"));
        }
        // Up to 1.1.0, `dev` is the average again, with its fraction. Later `dev` is the standard
        // deviation (gpu-fryer 43ccc3f), which is below the distance between the extremes.
        let repeated = (speed - deviation).abs() <= ROUNDING;
        if speed + ROUNDING < slowest
            || speed > fastest + ROUNDING
            || !(repeated || deviation <= fastest - slowest + ROUNDING)
        {
            return Err(format!("{:?} contradicts itself", scan::word(line)));
        }
        let below = |by: usize| lines.get(at + by).copied().unwrap_or_default();
        let temperature = temperature(below(1))
            .ok_or_else(|| format!("it tells no temperature of GPU {index}"))?;
        let throttled = throttled(below(2))
            .ok_or_else(|| format!("it tells nothing of GPU {index}'s throttling"))?;
        gpus.push(Gpu {
            speed: if repeated { deviation } else { speed },
            slowest,
            temperature,
            throttled,
        });
    }
    Ok(gpus)
}

/// `(min: 47.00, max: 50.00)`
fn numbers<const N: usize>(text: &str, names: [&str; N]) -> Option<[f64; N]> {
    let mut parts = text.strip_prefix('(')?.strip_suffix(')')?.split(", ");
    let mut found = [0.0; N];
    for (name, number) in names.iter().zip(&mut found) {
        *number = scan::number(parts.next()?.strip_prefix(name)?.strip_prefix(": ")?)?;
    }
    parts.next().is_none().then_some(found)
}

/// `Temperature: 48.83°C (min: 47.00, max: 50.00)`
fn temperature(line: &str) -> Option<f64> {
    let (average, rest) = line.strip_prefix("Temperature: ")?.split_once("°C ")?;
    let [coolest, hottest] = numbers(rest, ["min", "max"])?;
    let average = scan::number(average)?;
    (coolest <= average && average <= hottest).then_some(hottest)
}

/// `Throttling HW: false, Thermal SW: false, Thermal HW: false`
fn throttled(line: &str) -> Option<bool> {
    let rest = line.strip_prefix("Throttling HW: ")?;
    let (hw, rest) = rest.split_once(", Thermal SW: ")?;
    let (thermal_sw, thermal_hw) = rest.split_once(", Thermal HW: ")?;
    let flags: Option<Vec<bool>> = [hw, thermal_sw, thermal_hw]
        .iter()
        .map(|word| word.parse().ok())
        .collect();
    flags.map(|flags| flags.contains(&true))
}
