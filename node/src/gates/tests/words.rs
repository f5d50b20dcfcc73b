//! What nvidia-smi says where a value should stand, in each place of each of its formats: a GPU that does not answer for something has no value there, and
//! is never taken for one that does. With answers of two GPUs, made of the recordings' one by saying it twice.

use std::collections::BTreeMap;

use muster_core::facts::Facts;
use muster_core::gates::{Reference, Sample, Verdict, assess};

use super::bench::{gate, profile};
use super::recordings::fixture;
use crate::gates::parsers::{Answer, Reading, parse};

const FORMATS: [(&str, &str); 3] = [
    ("nvidia-smi-csv", "nvidia-smi-590.48.01-h100-load.csv"),
    ("nvidia-smi-text", "nvidia-smi-590.48.01-h100-q.txt"),
    ("nvidia-smi-xml", "nvidia-smi-590.44.01-2xa5000-v13.xml"),
];
const ODD: [&str; 6] = ["[N/A]", "N/A", "ERR!", "[Unknown Error]", "Unknown Error", "[GPU requires reset]"];
/// Answers of a GPU that are answers, to find out by whether a place is looked at.
const OTHERS: [&str; 8] = ["Yes", "No", "Active", "Not Active", "Enabled", "7", "7 W", "zzz"];

fn read(parser: &str, text: &str) -> Result<Reading, String> {
    parse(parser, &Answer { exit: 0, text, messages: "", serial: None })
}

/// Where values stand: in the rows of CSV, behind a colon, between two tags.
fn places(parser: &str, text: &str) -> Vec<(usize, usize)> {
    let (mut places, mut at) = (Vec::new(), 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let bare = line.trim_end();
        match parser {
            "nvidia-smi-csv" if number > 0 => {
                let mut start = at;
                for value in bare.split(", ") {
                    places.push((start, start + value.len()));
                    start += value.len() + 2;
                }
            }
            "nvidia-smi-text" => {
                places.extend(line.find(" : ").map(|colon| (at + colon + 3, at + bare.len())));
            }
            "nvidia-smi-xml" if line.trim_start().starts_with('<') => {
                let between = line.find('>').zip(line.rfind("</")).filter(|(open, close)| open < close);
                places.extend(between.map(|(open, close)| (at + open + 1, at + close)));
            }
            _ => {}
        }
        at += line.len();
    }
    places
}

#[test]
fn a_value_that_is_none_is_never_a_value() {
    for (parser, file) in FORMATS {
        let text = fixture(file);
        let good = read(parser, &text).expect(file).samples;
        let (mut looked_at, mut problems) = (0, Vec::new());
        for (start, end) in places(parser, &text) {
            let with = |word: &str| read(parser, &format!("{}{word}{}", &text[..start], &text[end..]));
            let changes = |word: &&str| with(word).map_or(true, |reading| reading.samples != good);
            if !OTHERS.iter().any(changes) {
                continue;
            }
            looked_at += 1;
            // Where the recorded GPU has no such thing, that it has none is what was read.
            let none = text[start..end].contains("N/A");
            for odd in ODD.into_iter().filter(|odd| !(none && odd.contains("N/A"))) {
                let Ok(reading) = with(odd) else { continue };
                let as_before = |sample: &Sample| good.contains(sample);
                if reading.samples.len() >= good.len() || !reading.samples.iter().all(as_before) {
                    let line = text[..start].rsplit('\n').next().unwrap_or_default();
                    problems.push(format!("{file}: {odd:?} behind {:?}", line.get(..60).unwrap_or(line)));
                }
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        assert!(looked_at > 30, "{file}: {looked_at} places are looked at");
    }
}

/// Whether a gate passes that asks two GPUs for this.
fn both_tell(parser: &str, metric: &str, unit: &str, text: &str) -> bool {
    let criterion = match unit {
        "text" => format!("{{ metric = {metric:?}, op = \"!=\", limit = \"never\", unit = \"text\" }}"),
        unit => format!("{{ metric = {metric:?}, op = \"<=\", limit = 1000000, unit = {unit:?} }}"),
    };
    let gate = gate(&format!(
        "id = \"g\"\nstage = \"gpu\"\ntimeout_s = 1\nargv = [\"t\"]\ncount = \"2\"\nparser = {parser:?}\ncriteria = [{criterion}]"
    ));
    let (profile, facts, variables) = (profile(), Facts::default(), BTreeMap::new());
    let reference = Reference { profile: &profile, facts: &facts, stack: None, variables: &variables };
    read(parser, text).is_ok_and(|reading| assess(&gate, &reading.samples, &reference).verdict == Verdict::Pass)
}

#[test]
fn of_two_gpus_each_must_tell() {
    let one = fixture("nvidia-smi-590.48.01-h100-q.txt");
    let (head, section) = one.split_at(one.find("GPU 00000000:00:09.0").expect("a GPU"));
    let head = head.replace(": 1\n", ": 2\n");
    let second = section.replace("00000000:00:09.0", "00000000:00:0A.0");
    for (metric, unit, title) in [
        ("gpu.remapped_rows_pending", "flags", "    Remapped Rows\n"),
        ("gpu.ecc_mode", "text", "    ECC Mode\n"),
        ("gpu.ecc_uncorrected_volatile", "errors", "    ECC Errors\n"),
        ("gpu.memory_total", "MiB", "    FB Memory Usage\n"),
        ("gpu.pcie_width", "lanes", "    PCI\n"),
    ] {
        let told = |second: &str| both_tell("nvidia-smi-text", metric, unit, &format!("{head}{section}{second}"));
        assert!(told(&second), "{metric}");
        let start = second.find(title).expect(title);
        let below: usize = second[start..]
            .split_inclusive('\n')
            .skip(1)
            .take_while(|line| line.starts_with("        "))
            .map(str::len)
            .sum();
        let without = format!("{}{}", &second[..start], &second[start + title.len() + below..]);
        assert!(!told(&without), "{metric} without its section");
    }

    let one = fixture("nvidia-smi-590.48.01-h100-load.csv");
    let (header, row) = one.split_once('\n').expect("a header");
    let count = header.split(", ").position(|column| column == "count").expect("a count");
    let values: Vec<&str> = row.trim_end().split(", ").collect();
    let row = |address: &str, without: &str| {
        let value = |(at, value): (usize, &&str)| match header.split(", ").nth(at).unwrap_or_default() {
            column if column == without => "[N/A]".to_owned(),
            _ if at == count => "2".to_owned(),
            _ => value.replace("00000000:00:09.0", address),
        };
        values.iter().enumerate().map(value).collect::<Vec<_>>().join(", ")
    };
    let column = "remapped_rows.pending";
    let text =
        |without: &str| format!("{header}\n{}\n{}\n", row("00000000:00:09.0", ""), row("00000000:00:0A.0", without));
    let told = |text: &str| both_tell("nvidia-smi-csv", "gpu.remapped_rows_pending", "flags", text);
    assert!(told(&text("")));
    assert!(!told(&text(column)), "it does not tell");
    assert!(!told(&text("").replacen(", Enabled", "", 2)), "a row is shorter than its header");
}
