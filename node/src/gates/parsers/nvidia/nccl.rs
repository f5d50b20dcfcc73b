//! Parser for the tables of nccl-tests (`all_reduce_perf` and the other tests): a row per message
//! size, out of place and in place. The first lines announce the sizes, and a table with fewer rows
//! is an error. With `-c 0`, nccl-tests does not check the results. The parser rejects unchecked
//! results.
//!
//! Numbers too long for a column have an exponent: `6e+06` (nccl-tests 2.19.6, `getFloatStr` in
//! `src/util.cu`). A number of wrong values keeps six digits from a million on.
//!
//! With `NCCL_DEBUG`, also from /etc/nccl.conf, NCCL writes lines of its own log between the rows.
//! Such a line is a note.

use crate::gates::parsers::{Answer, Reading, scan};

const COLUMNS: &str = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
const UNITS: &str = "(B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)";
const ROWS_MAX: usize = 10_000;
/// Levels of NCCL's log, behind a time or none, `HOST:PID:TID` and the place (NVIDIA/nccl,
/// `ncclDebugLog` in src/debug.cc, commit 3c223c10).
const LOG_LEVELS: [&str; 4] = [" NCCL WARN ", " NCCL INFO ", " NCCL CALL ", " NCCL TRACE "];
const NOTES_MAX: usize = 10;

/// The run, as read from either format.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) ranks: usize,
    /// Size in bytes, in-place bus bandwidth in GB/s, and wrong values of both halves, in order of
    /// the sizes.
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

/// State while reading a table.
#[derive(Default)]
struct Table {
    run: Run,
    expected: Option<Sizes>,
    version: Option<String>,
    /// The first lines of NCCL's log among the rows.
    log: Vec<String>,
    /// The column names were read.
    columns: bool,
    /// The units below the column names were read.
    units: bool,
    out_of_bounds: Option<Outcome>,
    average: Option<Outcome>,
}

/// A number of the summary, with the tool's own verdict.
#[derive(Clone, Copy)]
struct Outcome {
    value: f64,
    ok: Option<bool>,
}

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    scan::whole(answer.text)?;
    let mut table = Table::default();
    for line in answer.text.lines().filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("{:?} is not understood", scan::word(line));
        match line.trim_start().strip_prefix('#').map(str::trim) {
            // `vm: Test CUDA failure util.cu:674 'no CUDA-capable device is detected'`
            None if line.contains(": Test CUDA failure ")
                || line.contains(": Test NCCL failure ") =>
            {
                return Err(scan::word(line));
            }
            None => table.read_row(line).ok_or_else(unknown)?,
            Some(comment) => {
                table.read_comment(comment).ok_or_else(unknown)?;
                if table.run.rows.len() > ROWS_MAX {
                    return Err("it has more sizes than anybody asks for".into());
                }
            }
        }
    }
    let version = table.version.take();
    let log = std::mem::take(&mut table.log);
    let mut reading = table.into_run(answer.exit)?.into_reading()?;
    if let Some(version) = version {
        reading.version("nccl", &version);
    }
    reading.notes = log;
    Ok(reading)
}

impl Table {
    /// Reads a line without `#`: a row, the version of the library, or a line of the log.
    fn read_row(&mut self, line: &str) -> Option<()> {
        if let Some(version) = line.strip_prefix("NCCL version ") {
            self.version = Some(scan::word(version));
        } else if is_log(line) {
            if self.log.len() < NOTES_MAX {
                self.log.push(scan::word(line));
            }
        } else if self.columns && self.out_of_bounds.is_none() {
            self.run.rows.push(row(line)?);
        }
        Some(())
    }

    /// Reads a line after its `#`. Returns `None` for a known line in an unknown form.
    fn read_comment(&mut self, comment: &str) -> Option<()> {
        let words = comment.split_whitespace().collect::<Vec<_>>().join(" ");
        if comment.starts_with("nThread ") {
            self.expected = Some(Sizes::read(&words)?);
        } else if comment.starts_with("Reducing maxBytes to ") {
            let max = words.split(' ').nth(3).and_then(scan::count)?;
            self.expected = self.expected.map(|sizes| Sizes { max, ..sizes });
        } else if comment.starts_with("Rank ") {
            let rank: usize = words.split(' ').nth(1)?.parse().ok()?;
            if rank != self.run.ranks {
                return None;
            }
            self.run.ranks += 1;
        } else if words == COLUMNS {
            self.columns = true;
        } else if words == UNITS {
            self.units = self.columns;
        } else if comment.starts_with("size ") {
            return None;
        } else if comment.starts_with("Out of bounds values") {
            self.out_of_bounds = Some(outcome(comment)?);
        } else if comment.starts_with("Avg bus bandwidth") {
            self.average = Some(outcome(comment)?);
        }
        Some(())
    }

    /// Checks that the table is complete, and that the summary agrees with the exit status.
    fn into_run(self, exit: i32) -> Result<Run, String> {
        let expected = self
            .expected
            .and_then(Sizes::count)
            .ok_or("it does not say which sizes it tries")?;
        let out_of_bounds = self
            .out_of_bounds
            .ok_or("it does not sum up what was out of bounds")?;
        let average = self.average.ok_or("it tells no average")?;
        let rows = self.run.rows.len();
        if !self.units || rows != expected {
            return Err(format!("{rows} sizes of {expected} in GB/s"));
        }
        let Outcome { value, ok } = out_of_bounds;
        if ok != Some(value == 0.0) || (exit != 0 && ok == Some(true) && average.ok != Some(false))
        {
            return Err(format!(
                "{value} values out of bounds do not go with its exit status"
            ));
        }
        Ok(Run {
            out_of_bounds: value,
            average: average.value,
            ..self.run
        })
    }
}

/// Whether a line belongs to NCCL's log: `HOST:PID:TID` stands before the level. A line that begins
/// with a number is a row, also with a part of the log behind.
fn is_log(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    let names_thread = |head: &str| {
        head.split_whitespace().any(|word| {
            let mut parts = word.rsplitn(3, ':');
            let mut is_number = || parts.next().is_some_and(|part| scan::index(part).is_some());
            is_number() && is_number() && parts.next().is_some_and(|host| !host.is_empty())
        })
    };
    scan::number(first).is_none()
        && LOG_LEVELS.iter().any(|level| {
            line.split_once(level)
                .is_some_and(|(head, _)| names_thread(head))
        })
}

/// Parses `33554432 8388608 float sum -1 344.8 97.32 170.31 0 349.5 95.99 167.99 0`.
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
    scan::count(count)?;
    let rates = [time, algorithm, bus, in_time, in_algorithm];
    rates
        .iter()
        .all(|word| scan::number(word).is_some())
        .then_some(())?;
    Some((
        scan::count(size)?,
        scan::number(in_bus)?,
        scan::count(wrong)? + scan::count(in_wrong)?,
    ))
}

/// Parses `Out of bounds values : 0 OK` or `Avg bus bandwidth : 210.99`: a number, and the tool's
/// verdict on the number.
fn outcome(comment: &str) -> Option<Outcome> {
    let (_, rest) = comment.split_once(':')?;
    let mut words = rest.split_whitespace();
    let value = scan::number(words.next()?)?;
    let ok = match (words.next(), words.next()) {
        (None, _) => None,
        (Some("OK"), None) => Some(true),
        (Some("FAILED"), None) => Some(false),
        _ => return None,
    };
    Some(Outcome { value, ok })
}

/// The message sizes of `… minBytes 33554432 maxBytes 1073741824 step: 2(factor) …`.
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

    /// Returns the number of sizes from the smallest to the largest.
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
        // Rounding must not lose a size reached exactly.
        let count = (count + 1e-9).floor() + 1.0;
        (count <= ROWS_MAX as f64).then_some(count as usize)
    }
}
