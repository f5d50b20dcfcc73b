//! Parser for the printed output of `ib_write_bw`, `ib_write_lat` and the other tests. Bandwidth
//! must be requested in Gb/s (`--report_gbits`), because the default unit MB/s means 2^20 bytes.
//! With `-D`, the peak is 0.00 and was not measured, so only the average is read. If perftest
//! cannot measure the frequency of the CPU's counter, perftest reports the problem on stderr,
//! prints 0 for every rate and exits with 0. The parser rejects such an output.

use crate::gates::parsers::{Answer, Reading, scan};

const BANDWIDTH: &str = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]";
const LATENCY: &str = "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]";
/// Message of perftest's get_clock.c, printed if times do not grow with the counter's cycles, as on
/// a shared CPU.
const NO_CLOCK: &str = "Correlation coefficient r^2";
const ROWS_MAX: usize = 64;

pub(in crate::gates::parsers) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return Err(format!("it failed: {}", answer.reason()));
    }
    if answer.messages.contains(NO_CLOCK) {
        return Err(format!(
            "it could not measure its own clock: {}",
            scan::word(answer.messages)
        ));
    }
    scan::whole(answer.text)?;
    let mut lines = answer.text.lines();
    let header = lines
        .by_ref()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .find(|line| line.starts_with("#bytes"))
        .ok_or("there is no table in it")?;
    let mut reading = Reading::default();
    let mut rows = 0;
    let mut ended = false;
    for line in lines {
        // A dashed rule ends the table.
        if line.starts_with("-----") {
            ended = true;
            break;
        }
        read_row(&mut reading, &header, line)?;
        rows += 1;
        if rows > ROWS_MAX {
            return Err("it has more sizes than there are".into());
        }
    }
    match (rows, ended) {
        (0, _) => Err("its table is empty".into()),
        (_, false) => Err("its table does not end".into()),
        (_, true) => Ok(reading),
    }
}

/// Reads the row of a message size.
fn read_row(reading: &mut Reading, header: &str, line: &str) -> Result<(), String> {
    let unknown = || format!("{:?} is not understood", scan::word(line));
    let words: Vec<&str> = line.split_whitespace().collect();
    let numbers: Vec<f64> = words
        .iter()
        .map(|word| scan::number(word))
        .collect::<Option<_>>()
        .ok_or_else(unknown)?;
    let entity = format!("{} B", words.first().copied().unwrap_or_default());
    match (header, &numbers[..]) {
        (BANDWIDTH, [_, iterations, _, 0.0, _]) if *iterations > 0.0 => {
            return Err(format!(
                "it sent something and measured no rate: {:?}",
                scan::word(line)
            ));
        }
        (BANDWIDTH, [_, iterations, _, average, rate]) => {
            reading.add_of("rdma.iterations", &entity, *iterations);
            reading.add_of("rdma.bandwidth", &entity, *average);
            reading.add_of("rdma.message_rate", &entity, *rate);
        }
        (LATENCY, [_, iterations, _, max, typical, average, _, p99, p999]) => {
            reading.add_of("rdma.iterations", &entity, *iterations);
            reading.add_of("rdma.latency_max", &entity, *max);
            reading.add_of("rdma.latency_typical", &entity, *typical);
            reading.add_of("rdma.latency_avg", &entity, *average);
            reading.add_of("rdma.latency_p99", &entity, *p99);
            reading.add_of("rdma.latency_p999", &entity, *p999);
        }
        (BANDWIDTH | LATENCY, _) => return Err(unknown()),
        (other, _) => {
            return Err(format!(
                "columns {other:?} are not known; ask for --report_gbits"
            ));
        }
    }
    match scan::index(words[0]).is_none() || numbers[1] == 0.0 {
        true => Err(format!("nothing was sent: {:?}", scan::word(line))),
        false => Ok(()),
    }
}
