//! Answers made to hurt: deep, long, repeated. Each is read, or refused, in a time that grows with its length alone; none is waited for by the clock: a parser
//! that looks again and again at what it has seen does not come back from it within any test's patience.

use muster_core::gates::Parser;

use crate::gates::parsers::{Answer, parse};

/// A quarter of what the runner takes; what is quadratic in this does not come back either.
const LENGTH: usize = 1 << 18;

fn answers() -> Vec<String> {
    let fill = |piece: &str| piece.repeat(LENGTH / piece.len());
    let xml = "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n<nvidia_smi_log>";
    let attributes: String = (0..20_000)
        .map(|number| format!(" a{number}=\"\""))
        .collect();
    vec![
        fill("["),
        fill("{\"a\":"),
        fill("{\"DCGM Diagnostic\":{\"test_categories\":["),
        fill("- "),
        format!("{xml}{}", fill("<a>")),
        format!("{xml}<gpu id=\"00000000:01:00.0\"{attributes}></gpu></nvidia_smi_log>"),
        format!("{xml}{}</nvidia_smi_log>", fill("<gpu id=\"00000000:01:00.0\"></gpu>")),
        "<?xml version=\"1.0\"?><!DOCTYPE nvidia_smi_log [<!ENTITY a \"b\"><!ENTITY c \"&a;&a;&a;&a;\">]><nvidia_smi_log>&c;</nvidia_smi_log>".into(),
        format!("a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [{}]\n...\n", fill("*c,").trim_end_matches(',')),
        format!("==============NVSMI LOG==============\nAttached GPUs : 1\nGPU 00000000:01:00.0\n{}", fill("    A : 1\n")),
        format!("==============NVSMI LOG==============\n{}", fill("GPU 00000000:01:00.0\n")),
        format!("{}\n", fill("pci.bus_id,")),
        format!("pci.bus_id\n{}", fill("00000000:01:00.0\n")),
        format!("GPU 0: A (UUID: GPU-a)\n{}", fill("\t Link 0: 25 GB/s\n")),
        fill("[    1.000000] NVRM: Xid (PCI:0000:9b:00): 79, x\n"),
        fill("CA 'a'\n"),
        format!("CA 'a'\n\tNumber of ports: 1\n{}", fill("\tPort 1:\n")),
        fill("# Port counters: Lid 1 port 1\n"),
        format!("Tested 1 GPUs:\n{}", fill("\tGPU 0: OK\n")),
        format!("{}\nTested 1 GPUs:\n\tGPU 0: OK\n", fill("\r1.0%  proc'd: 1 (1 Gflop/s)   errors: 0   temps: 1 C")),
        format!("#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n{}", fill("1 1 1 1 1\n")),
        format!("#\n#  Rank  0 x\n{}", fill("1 1 f s -1 1 1 1 0 1 1 1 0\n")),
        format!("{{\"id\":\"a\",\"class\":\"system\",\"children\":[{}]}}", fill("{\"id\":\"cpu\",\"class\":\"processor\"},").trim_end_matches(',')),
        fill("\n"),
        fill(" "),
        fill("\u{1F4A9}"),
        fill("9"),
    ]
}

#[test]
fn no_parser_hangs_or_panics_on_long_answers_of_anything() {
    let answers = answers();
    for parser in Parser::all().filter(|parser| !parser.builtin) {
        for text in &answers {
            for exit in [0, 1] {
                let read = parse(
                    parser.name,
                    &Answer {
                        exit,
                        text,
                        messages: text,
                        serial: None,
                    },
                );
                // Nothing in them is a whole answer, but for logs full of faults.
                assert!(
                    read.is_err() || parser.name == "kernel-log",
                    "{}: {:?}",
                    parser.name,
                    &text[..40.min(text.len())]
                );
            }
        }
    }
}
