//! The file that modprobe inserts for NVIDIA's module: the kernel that the file is built for, the
//! driver's version, and the signer.

use crate::converge::kernel_facts::running_release;
use crate::converge::module_file::{self, Place};
use crate::gates::parsers::{Bench, Reading, scan};

/// The module of the driver. Debian's file has another name.
pub(super) const MODULE: &str = "nvidia";
/// The signer of a file without a signature.
const UNSIGNED: &str = "unsigned";
/// The signer of a file with a signature that names no signer.
const UNKNOWN: &str = "unknown";

/// The file of the module.
pub(super) enum Found {
    /// The path of the file.
    File(String),
    /// modprobe finds no file, with the reason.
    Missing(String),
}

/// Fields of the module's file.
struct Fields {
    vermagic: String,
    version: String,
    signer: String,
    /// The kind of the signature; empty without a signature.
    signature: String,
}

pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let file = match find_file(bench)? {
        Found::File(file) => file,
        Found::Missing(why) => return Ok(missing(&why)),
    };
    let running = running_release(&bench.machine);
    let running = running.map_err(|failure| scan::word(&failure.message))?;
    let running = running.ok_or("there is no /proc/sys/kernel/osrelease")?;
    let fields = Fields {
        vermagic: field(bench, &file, "vermagic")?,
        version: field(bench, &file, "version")?,
        signer: field(bench, &file, "signer")?,
        signature: field(bench, &file, "sig_id")?,
    };
    read(&file, &fields, &running)
}

/// Returns the file that modprobe inserts for the module.
///
/// # Errors
/// The reason, where the file is unknown.
pub(super) fn find_file(bench: &Bench<'_>) -> Result<Found, String> {
    let place = module_file::find(&bench.machine, MODULE, bench.cx);
    match place.map_err(|failure| scan::word(&failure.message))? {
        Place::File(file) => Ok(Found::File(file)),
        Place::Missing(why) => Ok(Found::Missing(why)),
        Place::Unknown(why) => Err(scan::word(&why)),
        Place::BuiltIn => Err(format!("the kernel has {MODULE} built in, without a file")),
    }
}

/// Returns the version of the module's file; `None` for a file without a version.
///
/// # Errors
/// The reason, where modinfo cannot read the file.
pub(super) fn version(bench: &Bench<'_>, file: &str) -> Result<Option<String>, String> {
    let version = scan::word(&field(bench, file, "version")?);
    Ok((!version.is_empty()).then_some(version))
}

fn field(bench: &Bench<'_>, file: &str, name: &str) -> Result<String, String> {
    let said = module_file::field(&bench.machine, file, name, bench.cx);
    said.map_err(|failure| scan::word(&failure.message))
}

fn missing(why: &str) -> Reading {
    let mut reading = Reading::default();
    reading.count("module.missing", 1);
    reading.notes.push(scan::word(why));
    reading
}

/// Compares the fields of the file with the running kernel.
fn read(file: &str, fields: &Fields, running: &str) -> Result<Reading, String> {
    let file = scan::word(file);
    let kernel = fields.vermagic.split_whitespace().next();
    let kernel = kernel.ok_or_else(|| format!("{file} names no kernel (vermagic)"))?;
    let signer = match (fields.signer.trim(), fields.signature.trim()) {
        ("", "") => UNSIGNED,
        ("", _) => UNKNOWN,
        (signer, _) => signer,
    };
    let mut reading = Reading::default();
    reading.count("module.missing", 0);
    reading.count("module.other_kernel", usize::from(kernel != running));
    reading.add_word("module.kernel", "", kernel);
    if !fields.version.is_empty() {
        reading.add_word("module.version", "", &fields.version);
    }
    reading.add_word("module.signer", "", signer);
    let [kernel, running, signer] = [kernel, running, signer].map(scan::word);
    reading.notes.push(format!(
        "{file} is built for kernel {kernel}, and kernel {running} runs; signer: {signer}"
    ));
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use muster_core::gates::Limit;

    use super::*;

    const FILE: &str = "/lib/modules/6.12.118+deb13-amd64/updates/dkms/nvidia-current.ko.xz";
    const RUNNING: &str = "6.1.0-56-amd64";
    /// modinfo of Debian 12's driver, in a line for each field.
    const RECORDED: &str = include_str!("../../../../fixtures/modprobe-535.309.01-no-gpu.txt");

    fn recorded(name: &str) -> String {
        let value = RECORDED
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        value.expect("a field of modinfo").trim().to_owned()
    }

    fn fields() -> Fields {
        Fields {
            vermagic: recorded("vermagic"),
            version: recorded("version"),
            signer: recorded("signer"),
            signature: "PKCS#7".into(),
        }
    }

    fn word(reading: &Reading, metric: &str) -> Option<String> {
        let sample = reading.samples.iter().find(|one| one.metric == metric)?;
        match &sample.value {
            Limit::Text(text) => Some(text.clone()),
            Limit::Number(_) => None,
        }
    }

    #[test]
    fn the_file_of_debian_12_reads_as_recorded() {
        let reading = read(FILE, &fields(), RUNNING).expect("a reading");
        assert_eq!(reading.number("module.missing", ""), Some(0.0));
        assert_eq!(reading.number("module.other_kernel", ""), Some(0.0));
        for (metric, wanted) in [
            ("module.kernel", RUNNING),
            ("module.version", "535.309.01"),
            ("module.signer", "DKMS module signing key"),
        ] {
            assert_eq!(word(&reading, metric).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn a_file_of_another_kernel_and_a_file_without_a_signature_are_told() {
        let reading = read(FILE, &fields(), "6.1.0-57-amd64").expect("a reading");
        assert_eq!(reading.number("module.other_kernel", ""), Some(1.0));
        for (signature, wanted) in [("", "unsigned"), ("PKCS#7", "unknown")] {
            let bare = Fields {
                signer: String::new(),
                signature: signature.into(),
                ..fields()
            };
            let reading = read(FILE, &bare, RUNNING).expect("a reading");
            assert_eq!(word(&reading, "module.signer").as_deref(), Some(wanted));
        }
        let no_module = Fields {
            vermagic: " ".into(),
            ..fields()
        };
        let why = read(FILE, &no_module, RUNNING).expect_err("no kernel");
        assert!(why.contains("names no kernel"), "{why}");
    }

    #[test]
    fn the_release_of_the_kernel_is_cleaned_in_the_note() {
        let reading = read(FILE, &fields(), "6.1.0\u{1b}[31m").expect("a reading");
        let note = "and kernel 6.1.0[31m runs";
        assert!(reading.notes[0].contains(note), "{:?}", reading.notes);
    }

    #[test]
    fn a_missing_file_has_no_kernel_and_no_signer() {
        let reading = missing("modprobe: FATAL: Module nvidia not found");
        assert_eq!(reading.number("module.missing", ""), Some(1.0));
        assert_eq!(reading.samples.len(), 1);
    }
}
