//! The kernel's own driver for NVIDIA GPUs, nouveau. A loaded nouveau holds the GPUs, and NVIDIA's
//! driver finds none.

use std::time::Duration;

use muster_core::wire::node::FailureCode;

use crate::converge::kernel_facts::{is_loaded, underscored};
use crate::converge::module_file::{self, Place};
use crate::gates::parsers::{Bench, Reading, scan};

const NOUVEAU: &str = "nouveau";
const TIMEOUT: Duration = Duration::from_secs(30);

pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let argv = ["modprobe", "--showconfig"];
    let said = bench
        .machine
        .output(bench.cx, FailureCode::ModuleUnknown, &argv, TIMEOUT);
    let said = said.map_err(|failure| scan::word(&failure.message))?;
    let loaded = is_loaded(&bench.machine, NOUVEAU);
    let blocked = is_blocked(&String::from_utf8_lossy(&said));
    let allowed = !blocked && is_installed(bench)?;
    let mut reading = Reading::default();
    reading.count("nouveau.loaded", usize::from(loaded));
    reading.count("nouveau.allowed", usize::from(allowed));
    if allowed {
        let note = "no configuration of modprobe blacklists nouveau";
        reading.notes.push(note.to_owned());
    }
    Ok(reading)
}

/// Whether the running kernel has the module, as a file or built in.
///
/// # Errors
/// The reason, where modprobe gives no answer, or names no file.
fn is_installed(bench: &Bench<'_>) -> Result<bool, String> {
    let place = module_file::find(&bench.machine, NOUVEAU, bench.cx);
    match place.map_err(|failure| scan::word(&failure.message))? {
        Place::File(_) | Place::BuiltIn => Ok(true),
        Place::Missing(_) => Ok(false),
        Place::Unknown(why) => Err(scan::word(&why)),
    }
}

/// Whether modprobe's configuration keeps nouveau from being loaded for a GPU: `blacklist nouveau`,
/// or `install nouveau /bin/false`. The configuration includes `modprobe.blacklist` of the kernel's
/// command line.
fn is_blocked(configuration: &str) -> bool {
    configuration.lines().any(|line| {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let is_nouveau = words
            .next()
            .is_some_and(|name| underscored(name) == NOUVEAU);
        let command = words.next().unwrap_or_default();
        let is_refusal = command.ends_with("/false") || command.ends_with("/true");
        is_nouveau && (verb == "blacklist" || verb == "install" && is_refusal)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blacklist_and_an_install_of_false_keep_nouveau_away() {
        for configuration in [
            "blacklist nouveau\n",
            "options x y=1\nblacklist pcspkr\nblacklist   nouveau\n",
            "install nouveau /bin/false\n",
            "install nouveau /usr/bin/true\n",
        ] {
            assert!(is_blocked(configuration), "{configuration}");
        }
        for configuration in [
            "",
            "# blacklist nouveau\n",
            "blacklist nouveau_x\n",
            "blacklist pcspkr\nalias pci:v000010DEd*bc03* nouveau\n",
            "install nouveau modprobe -i nouveau\n",
            "options nouveau modeset=0\n",
            "softdep nouveau pre: /bin/false\n",
        ] {
            assert!(!is_blocked(configuration), "{configuration}");
        }
    }
}
