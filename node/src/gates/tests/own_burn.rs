//! The lines of the burn in `stacks/packages/gpu-burn`: written by its own C++, read by the parser.

use std::path::Path;
use std::process::Command;

use crate::gates::parsers::{Answer, parse};

/// A run of two GPUs in twenty steps. Arguments: the step at which the second GPU dies, or 0, and
/// its errors.
const MAIN: &str = r#"
#include "report.h"
#include <cstdlib>

int main(int, char **words) {
    const int death = std::atoi(words[1]);
    std::vector<Gpu> gpus(2);
    gpus[0].degrees = 57;
    gpus[1].errors = std::strtoull(words[2], nullptr, 10);
    std::puts("Burning for 60 seconds.");
    for (int step = 1; step <= 20; ++step) {
        for (Gpu &gpu : gpus) {
            gpu.products = static_cast<unsigned long long>(step) * 10;
            gpu.gflops = 348748.4;
        }
        gpus[1].died = death != 0 && step >= death;
        std::fputs(write_progress(step * 5, gpus).c_str(), stdout);
    }
    std::fputs(write_verdicts(gpus).c_str(), stdout);
}
"#;

#[test]
fn the_parser_reads_the_lines_of_our_own_burn() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("main.cc"), dir.path().join("lines"));
    std::fs::write(&source, MAIN).unwrap();
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stacks/packages/gpu-burn");
    let compiled = Command::new("g++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(headers)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    for (death, errors, faulty, counted, deaths) in [
        ("0", "0", 0.0, 0.0, 0),
        ("0", "7", 1.0, 7.0, 0),
        // The parser reads numbers of 32 bits.
        ("0", "3000000000", 1.0, 2_147_483_647.0, 0),
        ("15", "0", 1.0, 0.0, 1),
        ("15", "7", 1.0, 7.0, 1),
    ] {
        let ended = Command::new(&program)
            .args([death, errors])
            .output()
            .unwrap();
        let text = String::from_utf8(ended.stdout).unwrap();
        let answer = Answer {
            exit: 0,
            text: &text,
            messages: "",
            serial: None,
        };
        let reading = parse("gpu-burn", &answer).unwrap_or_else(|why| panic!("{why}: {text}"));
        for (metric, entity, value) in [
            ("burn.gpus", "", Some(2.0)),
            ("burn.faulty", "", Some(faulty)),
            ("burn.errors", "GPU 0", Some(0.0)),
            ("burn.errors", "GPU 1", Some(counted)),
            ("burn.speed", "GPU 0", Some(348_748.0)),
            ("burn.temperature", "GPU 0", Some(57.0)),
            ("burn.temperature", "GPU 1", None),
        ] {
            let found = reading.number(metric, entity);
            assert_eq!(found, value, "{metric} {entity}, {death} {errors}: {text}");
        }
        let notes = vec!["the process on GPU 1 died"; deaths];
        assert_eq!(reading.notes, notes, "{death} {errors}");
    }
}
