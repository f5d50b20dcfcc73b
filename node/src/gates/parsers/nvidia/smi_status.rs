//! The end of nvidia-smi, the same for all formats. nvidia-smi ends with the return value of NVML,
//! and some of these values are faults of a GPU. Other values say that nvidia-smi was not allowed
//! to ask, or found no driver or library: no answer about the hardware.
//!
//! Sources: nvidia-smi(1), RETURN VALUE, and `nvmlReturn_t` of nvml.h for values that
//! the page leaves out.

use crate::gates::parsers::{Answer, Reading, scan};

/// Return values that are faults, with their meaning.
const FAULTS: [(i32, &str); 8] = [
    (6, "no device was found"),
    (8, "external power cables are not attached"),
    // 10 in the page, and 11 in nvml.h.
    (10, "the driver detected an interrupt issue"),
    (11, "the driver detected an interrupt issue"),
    (14, "the infoROM is corrupted"),
    (15, "a GPU fell off the bus or became inaccessible"),
    (16, "a GPU requires a reset"),
    (
        18,
        "the versions of the kernel module and of the library differ",
    ),
];
/// The begin of a line about a GPU that NVML cannot open. nvidia-smi prints such a line for each
/// GPU, with any status: 15 for a lost GPU, 255 for an unknown error, or 0 beside other GPUs.
const NO_HANDLE: &str = "Unable to determine the device handle for GPU";
/// The reason of a line that is no fault of the GPU: the caller lacks a right.
const NOT_ALLOWED: &str = "Insufficient Permissions";
const FAULTS_MAX: usize = 8;

/// Returns the reading or the reason of a run that ended without a usable answer. `None`: the
/// answer can be parsed.
pub(super) fn read_end(answer: &Answer<'_>) -> Option<Result<Reading, String>> {
    let lost: Vec<String> = lines_beside(answer)
        .filter(|line| is_lost_gpu(line))
        .take(FAULTS_MAX)
        .map(scan::word)
        .collect();
    if !lost.is_empty() {
        return Some(Ok(Reading::of_faults(lost)));
    }
    if answer.exit == 0 {
        return None;
    }
    let Some((status, meaning)) = FAULTS.iter().find(|(status, _)| *status == answer.exit) else {
        return Some(Err(format!("nvidia-smi failed: {}", answer.reason())));
    };
    let sentence = lines_beside(answer)
        .map(scan::word)
        .find(|line| !line.is_empty());
    let sentence = sentence
        .map(|sentence| format!(": {sentence}"))
        .unwrap_or_default();
    let fault = format!("nvidia-smi ended with {status}, {meaning}{sentence}");
    Some(Ok(Reading::of_faults(vec![fault])))
}

/// The lines of both streams beside the document. A user chooses the names of processes in a
/// document, and could write such a line there.
fn lines_beside<'a>(answer: &Answer<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    let [before, after] = cut_document(answer.text);
    [before, after, answer.messages]
        .into_iter()
        .flat_map(str::lines)
}

/// The texts before and after a document: XML, or the long format, which ends with the output.
fn cut_document(text: &str) -> [&str; 2] {
    let Some(start) = text.find(['<', '=']) else {
        return [text, ""];
    };
    let (before, document) = text.split_at(start);
    let after = match document.starts_with('<') {
        true => document.rsplit_once('>').map_or("", |(_, after)| after),
        false => "",
    };
    [before, after]
}

/// Whether a line says that a GPU cannot be opened: ` 0000:1B:00.0: GPU is lost.`,
/// `0000:0A:00.0: Unknown Error` or `1: 0000:34:00.0: Unknown Error` after the begin.
fn is_lost_gpu(line: &str) -> bool {
    let Some(rest) = line.trim().strip_prefix(NO_HANDLE) else {
        return false;
    };
    let names_gpu = |word: &str| scan::pci_address(word).is_some() || scan::index(word).is_some();
    rest.split(": ").any(|word| names_gpu(word.trim())) && !rest.contains(NOT_ALLOWED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit: i32, text: &str, messages: &str) -> Option<Result<Reading, String>> {
        read_end(&Answer {
            exit,
            text,
            messages,
            serial: None,
        })
    }

    fn faults(exit: i32, text: &str, messages: &str) -> Vec<String> {
        ended(exit, text, messages)
            .and_then(Result::ok)
            .map(|reading| reading.faults)
            .unwrap_or_default()
    }

    #[test]
    fn each_status_is_a_fault_or_no_answer_by_its_meaning() {
        for status in [6, 8, 10, 11, 14, 15, 16, 18] {
            let found = faults(status, "a sentence\n", "");
            assert_eq!(found.len(), 1, "{status}");
            assert!(found[0].starts_with(&format!("nvidia-smi ended with {status}, ")));
            assert!(found[0].ends_with(": a sentence"), "{found:?}");
        }
        // Usage, rights, no driver, no library, an unknown error.
        for status in [1, 2, 3, 4, 5, 7, 9, 12, 13, 17, 19, 20, 255] {
            let why = ended(status, "a sentence\n", "").expect("an end");
            let why = why.expect_err("no answer");
            assert_eq!(why, "nvidia-smi failed: a sentence", "{status}");
        }
        assert!(ended(0, "a sentence\n", "").is_none());
    }

    #[test]
    fn a_gpu_without_a_handle_is_a_fault_on_either_stream_and_with_any_status() {
        for rest in [
            " 0000:1B:00.0: GPU is lost.  Reboot the system to recover this GPU",
            "0000:0A:00.0: Unknown Error",
            "1: 0000:34:00.0: Unknown Error",
            "1: Unknown Error",
            " 00000000:CB:00.0: Unknown Error",
        ] {
            let line = format!("{NO_HANDLE}{rest}");
            for status in [0, 15, 255] {
                assert_eq!(faults(status, &format!("{line}\n"), ""), [&*line]);
                assert_eq!(faults(status, "", &format!("{line}\n")), [&*line]);
            }
            let beside = format!("{line}\n<?xml version=\"1.0\" ?>\n<a></a>\n");
            assert_eq!(faults(0, &beside, ""), [&*line]);
        }
    }

    #[test]
    fn a_line_of_a_process_or_of_a_missing_right_is_no_fault() {
        let line = format!("{NO_HANDLE} 0000:1B:00.0: GPU is lost.");
        for text in [
            format!("<?xml version=\"1.0\" ?>\n<a>\n{line}\n</a>\n"),
            format!("\n==============NVSMI LOG==============\nName : a>\n{line}\n"),
            format!("it said: {line}\n"),
            format!("{NO_HANDLE}: Unknown Error\n"),
            format!("{NO_HANDLE} 0000:1B:00.0: {NOT_ALLOWED}\n"),
        ] {
            assert!(ended(0, &text, "").is_none(), "{text}");
            assert!(
                ended(255, &text, "").is_some_and(|end| end.is_err()),
                "{text}"
            );
        }
    }
}
