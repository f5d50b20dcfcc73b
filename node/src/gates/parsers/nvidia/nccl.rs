//! Tables of nccl-tests (`all_reduce_perf` and its sisters): a row per message size, out of place and in place. The first lines say which sizes will be
//! tried; a table with fewer rows is an error. With `-c 0` nothing is checked, and what was not checked is no measurement.

use crate::gates::parsers::{Answer, Reading, scan};

const COLUMNS: &str = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
const UNITS: &str = "(B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)";
const ROWS_MAX: usize = 10_000;

/// What both formats come to.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) ranks: usize,
    /// Size in bytes, bus bandwidth in place in GB/s, wrong values of both halves; in the order of the sizes.
    pub(super) rows: Vec<(f64, f64, f64)>,
    pub(super) out_of_bounds: f64,
    pub(super) average: f64,
}

impl Run {
    pub(super) fn into_reading(self) -> Result<Reading, String> {
        let (Some(last), true) = (self.rows.last(), self.ranks > 0) else {
            return Err(format!("{} sizes on {} ranks", self.rows.len(), self.ranks));
        };
        if !self.rows.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return Err("sizes do not rise".into());
        }
        if self.rows.iter().any(|row| row.0 <= 0.0) {
            return Err("a message of no size".into());
        }
        let best = self.rows.iter().map(|row| row.1).fold(0.0, f64::max);
        let wrong: f64 = self.rows.iter().map(|row| row.2).sum();
        if (wrong > 0.0) != (self.out_of_bounds > 0.0) {
            return Err(format!(
                "{wrong} wrong values do not go with {} out of bounds",
                self.out_of_bounds
            ));
        }
        let mut reading = Reading::default();
        reading.count("nccl.ranks", self.ranks);
        reading.count("nccl.sizes", self.rows.len());
        reading.add("nccl.bus_bandwidth_avg", self.average);
        reading.add("nccl.bus_bandwidth_max", best);
        reading.add("nccl.bus_bandwidth_last", last.1);
        reading.add("nccl.largest", last.0);
        reading.add("nccl.wrong", wrong);
        reading.add("nccl.out_of_bounds", self.out_of_bounds);
        Ok(reading)
    }
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    scan::whole(answer.text)?;
    let mut run = Run::default();
    let (mut expected, mut library, mut table, mut units) = (None, None, false, false);
    let (mut bounds, mut average) = (None, None);
    for line in answer.text.lines().filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        let Some(comment) = line.trim_start().strip_prefix('#').map(str::trim) else {
            if let Some(version) = line.strip_prefix("NCCL version ") {
                library = Some(scan::word(version));
            } else if table && bounds.is_none() {
                run.rows.push(row(line).ok_or_else(unknown)?);
            }
            continue;
        };
        let words = comment.split_whitespace().collect::<Vec<_>>().join(" ");
        match comment {
            _ if comment.starts_with("nThread ") => {
                expected = Some(Sizes::read(&words).ok_or_else(unknown)?)
            }
            _ if comment.starts_with("Reducing maxBytes to ") => {
                let to = words
                    .split(' ')
                    .nth(3)
                    .and_then(scan::count)
                    .ok_or_else(unknown)?;
                expected = expected.map(|sizes| Sizes { max: to, ..sizes });
            }
            _ if comment.starts_with("Rank ") => {
                let rank = words
                    .split(' ')
                    .nth(1)
                    .and_then(|rank| rank.parse::<usize>().ok());
                if rank != Some(run.ranks) {
                    return Err(unknown());
                }
                run.ranks += 1;
            }
            _ if words == COLUMNS => table = true,
            _ if words == UNITS => units = table,
            _ if comment.starts_with("size ") => return Err(unknown()),
            _ if comment.starts_with("Out of bounds values") => {
                bounds = Some(outcome(comment).ok_or_else(unknown)?);
            }
            _ if comment.starts_with("Avg bus bandwidth") => {
                average = Some(outcome(comment).ok_or_else(unknown)?);
            }
            _ => {}
        }
        if run.rows.len() > ROWS_MAX {
            return Err("it has more sizes than anybody asks for".into());
        }
    }
    let expected = expected
        .and_then(|sizes| sizes.count())
        .ok_or("it does not say which sizes it tries")?;
    let ((out_of_bounds, good), (average, fast)) = (
        bounds.ok_or("it does not sum up what was out of bounds")?,
        average.ok_or("it tells no average")?,
    );
    if !units || run.rows.len() != expected {
        return Err(format!("{} sizes of {expected} in GB/s", run.rows.len()));
    }
    if good != Some(out_of_bounds == 0.0)
        || (answer.exit != 0 && good == Some(true) && fast != Some(false))
    {
        return Err(format!(
            "{out_of_bounds} values out of bounds do not go with its exit status"
        ));
    }
    (run.out_of_bounds, run.average) = (out_of_bounds, average);
    let mut reading = run.into_reading()?;
    if let Some(library) = library {
        reading.version("nccl", &library);
    }
    Ok(reading)
}

/// `33554432 8388608 float sum -1 344.8 97.32 170.31 0 349.5 95.99 167.99 0`
fn row(line: &str) -> Option<(f64, f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [
        size,
        count,
        kind,
        operation,
        root,
        time,
        algorithm,
        bus,
        wrong,
        in_time,
        in_algorithm,
        in_bus,
        in_wrong,
    ] = words[..]
    else {
        return None;
    };
    let named = |word: &str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    if !named(kind) || !named(operation) || root.parse::<i32>().is_err() {
        return None;
    }
    let all = [count, time, algorithm, bus, in_time, in_algorithm];
    all.iter()
        .all(|word| scan::number(word).is_some())
        .then_some(())?;
    Some((
        scan::count(size)?,
        scan::number(in_bus)?,
        scan::count(wrong)? + scan::count(in_wrong)?,
    ))
}

/// `Out of bounds values : 0 OK`, `Avg bus bandwidth : 210.99`: a number, and what it thinks of it.
fn outcome(comment: &str) -> Option<(f64, Option<bool>)> {
    let (_, rest) = comment.split_once(':')?;
    let mut words = rest.split_whitespace();
    let number = scan::number(words.next()?)?;
    match (words.next(), words.next()) {
        (None, _) => Some((number, None)),
        (Some("OK"), None) => Some((number, Some(true))),
        (Some("FAILED"), None) => Some((number, Some(false))),
        _ => None,
    }
}

/// `… minBytes 33554432 maxBytes 1073741824 step: 2(factor) …`
#[derive(Clone, Copy)]
struct Sizes {
    min: f64,
    max: f64,
    step: f64,
    multiplied: bool,
}

impl Sizes {
    fn read(words: &str) -> Option<Self> {
        let after = |key: &str| words.split_once(key)?.1.split(' ').next();
        let step = after("step: ")?;
        let (step, kind) = step.split_once('(')?;
        let multiplied = match kind {
            "factor)" => true,
            "bytes)" => false,
            _ => return None,
        };
        let (min, max) = (
            scan::count(after("minBytes ")?)?,
            scan::count(after("maxBytes ")?)?,
        );
        Some(Self {
            min,
            max,
            step: scan::count(step)?,
            multiplied,
        })
    }

    /// How many sizes there are from the least to the greatest.
    fn count(self) -> Option<usize> {
        let Self {
            min,
            max,
            step,
            multiplied,
        } = self;
        if min <= 0.0 || max < min || (multiplied && step < 2.0) {
            return None;
        }
        if min == max || (!multiplied && step == 0.0) {
            return Some(1);
        }
        let count = match multiplied {
            true => (max / min).log(step),
            false => (max - min) / step,
        };
        // Rounding must not lose a size that is met exactly.
        let count = (count + 1e-9).floor() + 1.0;
        (count <= ROWS_MAX as f64).then_some(count as usize)
    }
}
