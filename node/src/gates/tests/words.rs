//! Puts error words in place of values in nvidia-smi's output, in every place of every format. A
//! parser must leave such a value out. Outputs with several GPUs repeat a recorded GPU.

use std::collections::BTreeMap;

use muster_core::facts::Facts;
use muster_core::gates::{Gate, Limit, Reference, Sample, Verdict, assess};

use super::bench::{gate, profile};
use super::dcgm;
use super::recordings::fixture;
use crate::gates::parsers::{Answer, Reading, parse};
use crate::gates::verdict::{weigh_report, weigh_unread};

const FORMATS: [(&str, &str); 3] = [
    ("nvidia-smi-csv", "nvidia-smi-590.48.01-h100-load.csv"),
    ("nvidia-smi-text", "nvidia-smi-590.48.01-h100-q.txt"),
    ("nvidia-smi-xml", "nvidia-smi-590.44.01-2xa5000-v13.xml"),
];
const ODD: [&str; 6] = [
    "[N/A]",
    "N/A",
    "ERR!",
    "[Unknown Error]",
    "Unknown Error",
    "[GPU requires reset]",
];
/// Other values. A parser reads a place when such a value changes the samples or fails to parse.
const OTHERS: [&str; 8] = [
    "Yes",
    "No",
    "Active",
    "Not Active",
    "Enabled",
    "7",
    "7 W",
    "zzz",
];

fn read(parser: &str, text: &str) -> Result<Reading, String> {
    parse(
        parser,
        &Answer {
            exit: 0,
            text,
            messages: "",
            serial: None,
        },
    )
}

/// Returns the places of values: in the rows of CSV, after a colon, or between two tags.
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
                places.extend(
                    line.find(" : ")
                        .map(|colon| (at + colon + 3, at + bare.len())),
                );
            }
            "nvidia-smi-xml" if line.trim_start().starts_with('<') => {
                let between = line
                    .find('>')
                    .zip(line.rfind("</"))
                    .filter(|(open, close)| open < close);
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
            let with =
                |word: &str| read(parser, &format!("{}{word}{}", &text[..start], &text[end..]));
            let changes = |word: &&str| with(word).map_or(true, |reading| reading.samples != good);
            if !OTHERS.iter().any(changes) {
                continue;
            }
            looked_at += 1;
            // The recorded GPU lacks the feature: `N/A` is the value in the good samples too.
            let none = text[start..end].contains("N/A");
            for odd in ODD.into_iter().filter(|odd| !(none && odd.contains("N/A"))) {
                let Ok(Reading { mut samples, .. }) = with(odd) else {
                    continue;
                };
                // A parser reports an unreachable GPU beside the remaining values.
                let unreachable = |sample: &Sample| {
                    sample.metric == "gpu.unreachable" && sample.value == Limit::Number(1.0)
                };
                let told = samples.iter().any(unreachable);
                samples.retain(|sample| !unreachable(sample));
                let as_before = |sample: &Sample| good.contains(sample);
                if told && !odd.contains("reset")
                    || samples.len() >= good.len()
                    || !samples.iter().all(as_before)
                {
                    let line = text[..start].rsplit('\n').next().unwrap_or_default();
                    problems.push(format!(
                        "{file}: {odd:?} behind {:?}",
                        line.get(..60).unwrap_or(line)
                    ));
                }
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        assert!(looked_at > 30, "{file}: {looked_at} places are looked at");
    }
}

/// Returns whether a gate over two GPUs passes with a criterion on the metric.
fn both_tell(parser: &str, metric: &str, unit: &str, text: &str) -> bool {
    let criterion = match unit {
        "text" => {
            format!("{{ metric = {metric:?}, op = \"!=\", limit = \"never\", unit = \"text\" }}")
        }
        unit => format!("{{ metric = {metric:?}, op = \"<=\", limit = 1000000, unit = {unit:?} }}"),
    };
    let gate = gate(&format!(
        "id = \"g\"\nstage = \"gpu\"\ntimeout_s = 1\nargv = [\"t\"]\ncount = \"2\"\nparser = {parser:?}\ncriteria = [{criterion}]"
    ));
    let (profile, facts, variables) = (profile(), Facts::default(), BTreeMap::new());
    let reference = Reference {
        profile: &profile,
        facts: &facts,
        stack: None,
        variables: &variables,
    };
    read(parser, text).is_ok_and(|reading| {
        let assessment = assess(&gate, &reading.samples, &reference);
        weigh_report(
            &reading.faults,
            &reading.gaps,
            weigh_unread(&gate, &reading.unread, assessment),
        )
        .verdict
            == Verdict::Pass
    })
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
        let told = |second: &str| {
            both_tell(
                "nvidia-smi-text",
                metric,
                unit,
                &format!("{head}{section}{second}"),
            )
        };
        assert!(told(&second), "{metric}");
        let start = second.find(title).expect(title);
        let below: usize = second[start..]
            .split_inclusive('\n')
            .skip(1)
            .take_while(|line| line.starts_with("        "))
            .map(str::len)
            .sum();
        let without = format!(
            "{}{}",
            &second[..start],
            &second[start + title.len() + below..]
        );
        assert!(!told(&without), "{metric} without its section");
    }

    let one = fixture("nvidia-smi-590.48.01-h100-load.csv");
    let (header, row) = one.split_once('\n').expect("a header");
    let count = header
        .split(", ")
        .position(|column| column == "count")
        .expect("a count");
    let values: Vec<&str> = row.trim_end().split(", ").collect();
    let row = |address: &str, without: &str| {
        let value =
            |(at, value): (usize, &&str)| match header.split(", ").nth(at).unwrap_or_default() {
                column if column == without => "[N/A]".to_owned(),
                _ if at == count => "2".to_owned(),
                _ => value.replace("00000000:00:09.0", address),
            };
        values
            .iter()
            .enumerate()
            .map(value)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let column = "remapped_rows.pending";
    let text = |without: &str| {
        format!(
            "{header}\n{}\n{}\n",
            row("00000000:00:09.0", ""),
            row("00000000:00:0A.0", without)
        )
    };
    let told = |text: &str| both_tell("nvidia-smi-csv", "gpu.remapped_rows_pending", "flags", text);
    assert!(told(&text("")));
    assert!(!told(&text(column)), "it does not tell");
    assert!(
        !told(&text("").replacen(", Enabled", "", 2)),
        "a row is shorter than its header"
    );
}

/// Returns an output of eight H100s: copies of a recorded GPU, with `change` applied to the last.
fn board(change: impl Fn(&str) -> String) -> String {
    let one = fixture("nvidia-smi-590.44.01-2xa5000-v13.xml");
    let begins = one.find("\t<gpu id=").expect("a GPU");
    let ends = begins + one[begins..].find("</gpu>\n").expect("its end") + "</gpu>\n".len();
    let gpu = one[begins..ends]
        .replace("NVIDIA RTX A5000", "NVIDIA H100 80GB HBM3")
        .replace("24564 MiB", "81559 MiB");
    let gpus = (1..=8).map(|number| gpu.replacen("81:00.0", &format!("0{number}:00.0"), 1));
    let gpus: String = gpus
        .enumerate()
        .map(|(at, gpu)| if at == 7 { change(&gpu) } else { gpu })
        .collect();
    let tail = &one[one.rfind("</nvidia_smi_log>").expect("the end")..];
    format!(
        "{}{gpus}{tail}",
        one[..begins].replace("<attached_gpus>2", "<attached_gpus>8")
    )
}

#[test]
fn a_gpu_that_cannot_be_asked_is_a_failure() {
    let gates = [
        dcgm::shipped("smoke", "gpu.inventory"),
        dcgm::shipped("admit", "gpu.inventory"),
        dcgm::shipped("admit", "gpu.recovery"),
    ];
    let verdicts = |text: &str| gates.each_ref().map(|gate| dcgm::verdict(gate, 0, text));
    assert_eq!(verdicts(&board(str::to_owned)), [Verdict::Pass; 3]);
    let (temperature, action) = ("13 C</gpu_temp>", "<gpu_recovery_action>None<");
    for (said, recommends) in [
        ("GPU requires reset", "Reset"),
        ("GPU is lost", "GPU is lost"),
        ("GPU is lost", "None"),
    ] {
        let text = board(|gpu| {
            assert!(gpu.contains(temperature) && gpu.contains(action));
            gpu.replace(temperature, &format!("{said}</gpu_temp>"))
                .replace(action, &format!("<gpu_recovery_action>{recommends}<"))
        });
        assert_eq!(verdicts(&text), [Verdict::Fail; 3], "{said}, {recommends}");
        let faults = read("nvidia-smi-xml", &text).expect("an answer").faults;
        assert!(
            faults.len() == 1
                && faults[0].starts_with("0000:08:00.0: ")
                && faults[0].contains(said),
            "{faults:?}"
        );
        // The gate has no criterion about the unreachable GPU.
        let memory = dcgm::shipped("smoke", "gpu.memory");
        assert_eq!(dcgm::verdict(&memory, 0, &text), Verdict::Fail, "{said}");
    }
    // A fault in place of a value without a criterion in the gates.
    for said in [
        "Corrupted infoROM",
        "IRQ issue",
        "Insufficient External Power",
    ] {
        let text = board(|gpu| gpu.replace(temperature, &format!("{said}</gpu_temp>")));
        assert_eq!(verdicts(&text), [Verdict::Fail; 3], "{said}");
    }
    // The driver failed to read a value: the verdict is an error, even without a criterion on the
    // value.
    for said in ["Unknown Error", "Timeout"] {
        let text = board(|gpu| gpu.replace(temperature, &format!("{said}</gpu_temp>")));
        assert_eq!(verdicts(&text), [Verdict::Error; 3], "{said}");
    }
}

#[test]
fn a_value_of_unknown_form_is_an_error_for_gates_that_ask_for_the_value() {
    let temperature = "13 C</gpu_temp>";
    let text = board(|gpu| {
        assert!(gpu.contains(temperature));
        gpu.replace(temperature, "GPU requires attention</gpu_temp>")
    });
    for (suite, id) in [("smoke", "gpu.inventory"), ("admit", "gpu.recovery")] {
        let gate = dcgm::shipped(suite, id);
        assert_eq!(
            dcgm::verdict(&gate, 0, &text),
            Verdict::Pass,
            "{suite} {id}"
        );
    }
    let unread = read("nvidia-smi-xml", &text).expect("an answer").unread;
    assert_eq!(unread.len(), 1, "{unread:?}");
    assert_eq!(unread[0].metric, "gpu.temperature");
    assert!(
        unread[0].reason.contains("GPU requires attention"),
        "{unread:?}"
    );
    // Seven of eight GPUs satisfy the count `>=1`, but the value of the last GPU stays unread.
    let gate = |limit: u32| {
        gate(&format!(
            "id = \"g\"\nstage = \"gpu\"\ntimeout_s = 1\nargv = [\"t\"]\ncount = \">=1\"\nparser = \"nvidia-smi-xml\"\n\
             criteria = [{{ metric = \"gpu.temperature\", op = \"<=\", limit = {limit}, unit = \"°C\" }}]"
        ))
    };
    let of = |gate: &Gate, text: &str| {
        let (profile, facts, variables) = (profile(), Facts::default(), BTreeMap::new());
        let reference = Reference {
            profile: &profile,
            facts: &facts,
            stack: None,
            variables: &variables,
        };
        let reading = read("nvidia-smi-xml", text).expect("an answer");
        let assessment = assess(gate, &reading.samples, &reference);
        weigh_report(
            &reading.faults,
            &reading.gaps,
            weigh_unread(gate, &reading.unread, assessment),
        )
    };
    assert_eq!(of(&gate(90), &board(str::to_owned)).verdict, Verdict::Pass);
    let unread = of(&gate(90), &text);
    assert_eq!(unread.verdict, Verdict::Error);
    assert!(unread.reason.contains("0000:08:00.0"), "{}", unread.reason);
    // A missed limit of a different GPU stays a failure.
    assert_eq!(of(&gate(5), &text).verdict, Verdict::Fail);
}

#[test]
fn a_failed_query_of_the_fabric_is_a_failure_of_the_fabric() {
    let gate = dcgm::shipped("smoke", "gpu.fabric");
    let fabric = |gpu: &str, status: &str| {
        let none = "<state>N/A</state>\n\t\t\t<status>N/A</status>";
        assert!(gpu.contains(none), "{gpu}");
        let told = format!("<state>Completed</state><status>{status}</status>");
        gpu.replace(none, &told)
    };
    let whole = |status: &str| {
        let text = board(str::to_owned);
        let parts: Vec<&str> = text.split_inclusive("</gpu>\n").collect();
        let (last, first) = parts.split_last().expect("the end");
        let gpus: String = first.iter().map(|gpu| fabric(gpu, status)).collect();
        dcgm::verdict(&gate, 0, &format!("{gpus}{last}"))
    };
    assert_eq!(whole("Success"), Verdict::Pass);
    for status in ["Timeout", "Insufficient Resources"] {
        assert_eq!(whole(status), Verdict::Fail, "{status}");
    }
    assert_eq!(whole("Unknown Error"), Verdict::Error);
}

#[test]
fn lost_lanes_are_not_told_without_both_widths() {
    let width = "<current_link_width>16x<";
    let text = board(|gpu| {
        assert!(gpu.contains(width));
        gpu.replace(width, "<current_link_width>wide<")
    });
    let unread = read("nvidia-smi-xml", &text).expect("an answer").unread;
    let metrics: Vec<&str> = unread.iter().map(|unread| unread.metric).collect();
    assert_eq!(metrics, ["gpu.pcie_width", "gpu.pcie_width_lost"]);
}
