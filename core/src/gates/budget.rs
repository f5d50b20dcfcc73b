//! The size of a run. A tenant's root writes the output of the tools on an installed system, so the
//! evidence of a run is bounded. The verdicts are older than the cut: a cut changes no verdict.

use super::result::{Evidence, GateResult};

/// Maximum size of the result of a job in bytes, as JSON: facts, reports, results of gates.
pub const RESULT_BYTES: usize = 4 << 20;
/// Maximum size of the results of a run in bytes, as JSON. The result of a job has 4 KiB more.
pub const RUN_BYTES: usize = RESULT_BYTES - (4 << 10);

/// The limits for each text of the evidence, tried in order until the run fits.
const TEXT_BYTES: [usize; 5] = [32 << 10, 8 << 10, 2 << 10, 256, 0];

/// The begin of a text that was cut.
const CUT: &str = "… cut here: the results of a run have at most 4 MiB\n";

/// Cuts the evidence of a run that is larger than `most` bytes. Each cut text begins with a mark
/// and keeps its end. Evidence with a cut text loses its digest, because the digest is of the whole
/// text. Verdicts, reasons and values stay, so the results can still be too large.
pub fn cut_evidence(results: &mut [GateResult], most: usize) {
    for limit in TEXT_BYTES {
        if measure(results) <= most {
            return;
        }
        for result in results.iter_mut() {
            cut(&mut result.evidence, limit);
        }
    }
}

fn measure(results: &[GateResult]) -> usize {
    serde_json::to_vec(results).map_or(usize::MAX, |document| document.len())
}

fn cut(evidence: &mut Evidence, limit: usize) {
    let Evidence {
        stdout,
        stderr,
        kernel_log,
        files,
        digest,
        ..
    } = evidence;
    let texts = [stdout, stderr, kernel_log]
        .into_iter()
        .chain(files.values_mut());
    for text in texts {
        if text.len() > limit + CUT.len() {
            let from = text.ceil_char_boundary(text.len() - limit);
            *text = format!("{CUT}{}", &text[from..]);
            *digest = None;
        }
    }
}
