//! The kernel's answer to NVIDIA's module, by `modprobe nvidia`. Without a GPU, an accepted module
//! starts and ends with ENODEV: the kernel accepted release, symbols and signature.
//!
//! modprobe gives no code for the kernel's answer, only the text of the error (`insmod_insert` in
//! kmod's tools/modprobe.c). An install command adds lines for the outer modules, with another
//! error. Only the line of the inserted file's module counts.
//!
//! modprobe also ends with 0 for a module that is loaded already. So a loaded module counts only
//! with the version of the file on the disk.

use std::time::Duration;

use muster_core::wire::node::Failure;

use super::kernel_errors::{KernelError, Meaning, NOT_PERMITTED};
use super::module::{self, Found, MODULE};
use crate::converge::kernel_facts::{is_loaded, module_of, underscored};
use crate::gates::parsers::{Bench, Reading, scan};
use crate::tool::Call;

const LOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// The version of the loaded module, of the open and of the proprietary driver.
const LOADED_VERSION: &str = "/sys/module/nvidia/version";
/// Longest file in sysfs, in bytes.
const SYSFS_MAX: u64 = 4096;
/// The vendor of NVIDIA's PCI functions.
const NVIDIA: &str = "10de";
/// ENODEV in the C locale.
const NO_DEVICE: &str = "No such device";

/// The kernel's answer.
#[derive(Debug, PartialEq, Eq)]
enum Insertion {
    Loaded,
    /// The kernel started the module, and the module found no GPU.
    WithoutGpu,
    Refused(&'static KernelError),
}

pub(in crate::gates::parsers) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let file = match module::find_file(bench)? {
        Found::File(file) => file,
        Found::Missing(why) => return Err(format!("{MODULE} has no file: {}", scan::word(&why))),
    };
    let module = module_of(&file).map(|module| scan::word(&module));
    let module = module.ok_or_else(|| format!("{} is no file of a module", scan::word(&file)))?;
    let call = Call {
        argv: &["modprobe", "--", MODULE],
        timeout: Some(LOAD_TIMEOUT),
        ..Call::default()
    };
    let done = bench.machine.run(bench.cx, &call);
    let done = done.map_err(|error| scan::word(&Failure::from(error).message))?;
    let messages = String::from_utf8_lossy(&done.stderr);
    let answer = read(done.status.code(), &messages, &module)?;
    if let Insertion::Refused(error) = &answer
        && error.text == NOT_PERMITTED
        && !nix::unistd::geteuid().is_root()
    {
        return Err("only root can insert a module".into());
    }
    if answer == Insertion::Loaded {
        check_version(bench, &file)?;
    }
    let gpus = bench.facts.gpus.iter().filter(|gpu| gpu.vendor == NVIDIA);
    Ok(describe(&module, &answer, gpus.count()))
}

/// Compares the version of the loaded module with the version of the file on the disk.
///
/// # Errors
/// The reason, for a module that is not loaded, and for a different or unknown version.
fn check_version(bench: &Bench<'_>, file: &str) -> Result<(), String> {
    if !is_loaded(&bench.machine, MODULE) {
        return Err(format!("modprobe ended with 0, and {MODULE} is not loaded"));
    }
    let loaded = bench.machine.read(LOADED_VERSION, SYSFS_MAX);
    let loaded = loaded.map_err(|failure| scan::word(&failure.message))?;
    let loaded = scan::word(&String::from_utf8_lossy(&loaded.unwrap_or_default()));
    if loaded.is_empty() {
        return Err(format!(
            "{MODULE} is loaded, and {LOADED_VERSION} has no version: the loaded version is unknown"
        ));
    }
    let on_disk = module::version(bench, file)?;
    let on_disk = on_disk.ok_or_else(|| {
        let file = scan::word(file);
        format!("{file} has no version to compare with the loaded version {loaded}")
    })?;
    match loaded == on_disk {
        true => Ok(()),
        false => Err(format!(
            "version {loaded} is loaded, and {on_disk} is on the disk: reboot"
        )),
    }
}

/// Returns the samples of an answer, on a node with a number of NVIDIA GPUs on the PCI bus.
fn describe(module: &str, answer: &Insertion, gpus: usize) -> Reading {
    let mut reading = Reading::default();
    let (word, unbound) = match answer {
        Insertion::Loaded => ("loaded", 0),
        Insertion::WithoutGpu => ("accepted by the kernel, no GPU", gpus),
        Insertion::Refused(error) => {
            reading
                .notes
                .push(format!("{module}: {}", error.describe()));
            ("refused", 0)
        }
    };
    reading.add_word("driver.answer", "", word);
    reading.count("driver.unbound", unbound);
    if unbound > 0 {
        reading.notes.push(format!(
            "the PCI bus lists {unbound} NVIDIA GPUs, and the module takes none"
        ));
    }
    reading
}

/// Reads the exit status and the messages of modprobe for the module of the inserted file.
fn read(exit: Option<i32>, messages: &str, module: &str) -> Result<Insertion, String> {
    match exit {
        Some(0) => return Ok(Insertion::Loaded),
        Some(1) => {}
        Some(_) | None => {
            let exit = exit.map_or("a signal".to_owned(), |exit| exit.to_string());
            let said = scan::word(messages);
            return Err(format!("modprobe ended with {exit}: {said}"));
        }
    }
    let lines: Vec<&str> = messages.lines().collect();
    // The kernel's answer to the module comes before the failure of an install command.
    let at = lines
        .iter()
        .position(|line| failed_command(line, module).is_some());
    let inner = &lines[..at.unwrap_or(lines.len())];
    let mut errors = inner.iter().filter_map(|line| error_of(line));
    let Some(error) = errors.find(|error| underscored(error.module) == module) else {
        let command = at.and_then(|at| failed_command(lines[at], module));
        let said = scan::word(command.unwrap_or(messages));
        return Err(match command {
            Some(_) => format!("an install command of modprobe refuses {module}: {said}"),
            None => format!("modprobe names no error of {module}: {said}"),
        });
    };
    if error.text == NO_DEVICE {
        return Ok(Insertion::WithoutGpu);
    }
    match KernelError::find(error.text) {
        Some(error) => match error.meaning {
            Meaning::Refused => Ok(Insertion::Refused(error)),
            Meaning::Unknown => Err(format!("{module}: {}", error.describe())),
        },
        None => Err(format!(
            "modprobe's error for {module} is not known: {}; read dmesg",
            scan::word(error.text)
        )),
    }
}

/// A line of modprobe about an insertion.
struct InsertionError<'a> {
    module: &'a str,
    text: &'a str,
}

/// Parses `modprobe: ERROR: could not insert 'nvidia_current': No such device`.
fn error_of(line: &str) -> Option<InsertionError<'_>> {
    let (_, rest) = line.split_once("could not insert '")?;
    let (module, text) = rest.split_once("': ")?;
    let text = text.trim();
    Some(InsertionError { module, text })
}

/// Parses `modprobe: ERROR: Error running install command '/bin/false' for module nvidia: retcode 1`
/// into the command, for the given module.
fn failed_command<'a>(line: &'a str, module: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once("running install command '")?;
    let (command, rest) = rest.rsplit_once("' for module ")?;
    let (name, _) = rest.split_once(':')?;
    (underscored(name) == module).then_some(command)
}

#[cfg(test)]
mod tests {
    use muster_core::gates::Limit;

    use super::*;
    use crate::gates::parsers::driver::kernel_errors::KERNEL_ERRORS;

    const DEBIAN_12: &str = include_str!("../../../../fixtures/modprobe-535.309.01-no-gpu.txt");
    const DEBIAN_13: &str = include_str!("../../../../fixtures/modprobe-550.163.01-no-gpu.txt");

    /// The messages of a call in the recording of Debian 13.
    fn called(command: &str) -> &'static str {
        let (_, rest) = DEBIAN_13.split_once(command).expect(command);
        rest.split_once("exit: 1").expect("its end").0
    }

    /// A refusal with a known text.
    fn known(text: &str) -> Insertion {
        Insertion::Refused(KernelError::find(text).expect(text))
    }

    fn inner(text: &str) -> String {
        format!(
            "modprobe: ERROR: could not insert 'nvidia_current': {text}\n\
             modprobe: ERROR: Error running install command 'modprobe -i nvidia-current ' for module nvidia: retcode 1\n\
             modprobe: ERROR: could not insert 'nvidia': Invalid argument\n"
        )
    }

    #[test]
    fn every_recorded_driver_without_a_gpu_is_accepted() {
        let (debian_12, _) = DEBIAN_12.split_once("exit 1").expect("the first call");
        for (messages, module) in [
            (debian_12, "nvidia_current"),
            (called("$ modprobe nvidia "), "nvidia_current"),
            (
                called("modprobe -i nvidia-current; dmesg"),
                "nvidia_current",
            ),
            (
                called("modprobe -i nvidia-current-open;"),
                "nvidia_current_open",
            ),
            (called("modprobe -i nvidia-tesla-535;"), "nvidia_tesla_535"),
        ] {
            let answer = read(Some(1), messages, module);
            assert_eq!(answer, Ok(Insertion::WithoutGpu), "{module}");
        }
    }

    /// The recordings have only ENODEV.
    #[test]
    fn every_other_error_of_the_inserted_module_refuses_or_is_unknown() {
        for error in &KERNEL_ERRORS {
            let answer = read(Some(1), &inner(error.text), "nvidia_current");
            let wanted = match error.meaning {
                Meaning::Refused => Ok(Insertion::Refused(error)),
                Meaning::Unknown => Err(format!("nvidia_current: {}", error.describe())),
            };
            assert_eq!(answer, wanted, "{}", error.text);
        }
        for text in ["", "No such device or address", "No such file or directory"] {
            let why = read(Some(1), &inner(text), "nvidia_current").expect_err(text);
            assert!(why.contains("is not known"), "{text}: {why}");
        }
    }

    /// Debian's modprobe prints the texts of glibc.
    #[cfg(target_env = "gnu")]
    #[test]
    fn the_texts_of_the_errors_are_those_of_the_c_library() {
        use nix::errno::Errno;

        let strerror = |errno: Errno| {
            let text = std::io::Error::from(errno).to_string();
            let (text, _) = text.split_once(" (os error").expect("a number");
            text.to_owned()
        };
        for (errno, refuses, words) in [
            (Errno::ENOEXEC, true, "built for another kernel"),
            (Errno::EINVAL, true, "another version"),
            (Errno::EKEYREJECTED, true, "Secure Boot"),
            (Errno::ENOKEY, true, "does not know the key"),
            (Errno::EKEYEXPIRED, true, "expired"),
            (Errno::EKEYREVOKED, true, "revoked"),
            (Errno::EBADMSG, true, "damaged"),
            (Errno::EPERM, true, "locked down"),
            (Errno::ENOMEM, false, "no memory"),
            (Errno::EBUSY, false, "entering or leaving"),
        ] {
            let text = strerror(errno);
            let error = KernelError::find(&text).expect("a known error");
            assert_eq!(error.meaning == Meaning::Refused, refuses, "{text}");
            assert!(error.describe().contains(words), "{text}");
        }
        assert_eq!(strerror(Errno::ENODEV), NO_DEVICE);
    }

    #[test]
    fn a_refusal_is_described_by_its_cause_and_the_next_step() {
        let refused = known("Key was rejected by service");
        let notes = describe("nvidia_current", &refused, 0).notes;
        let wanted = "nvidia_current: Key was rejected by service: the module has no good signature by \
                      a known key, as Secure Boot wants; install signed modules, and enrol their \
                      certificate on the machine";
        assert_eq!(notes, [wanted]);
    }

    #[test]
    fn an_outer_line_is_no_answer_of_the_kernel() {
        let outer = "modprobe: ERROR: could not insert 'nvidia': No such device\n";
        let why = read(Some(1), outer, "nvidia_current").expect_err("the inner line is missing");
        assert!(why.contains("names no error of nvidia_current"), "{why}");
        // A module without an install command has a single line.
        assert_eq!(read(Some(1), outer, "nvidia"), Ok(Insertion::WithoutGpu));
        let alone = "modprobe: ERROR: could not insert 'nvidia': Invalid argument\n";
        let refused = known("Invalid argument");
        assert_eq!(read(Some(1), alone, "nvidia"), Ok(refused));
        for exit in [Some(127), None] {
            assert!(read(exit, &inner(NO_DEVICE), "nvidia_current").is_err());
        }
        assert_eq!(read(Some(0), "", "nvidia_current"), Ok(Insertion::Loaded));
    }

    #[test]
    fn the_failure_of_an_install_command_is_no_answer_of_the_kernel() {
        let failed = |command: &str| {
            format!(
                "modprobe: ERROR: ../libkmod/libkmod-module.c:1047 command_do() Error running install \
                 command '{command}' for module nvidia: retcode 1\n\
                 modprobe: ERROR: could not insert 'nvidia': Invalid argument\n"
            )
        };
        let refusal = "an install command of modprobe refuses nvidia: /bin/false";
        let answer = read(Some(1), &failed("/bin/false"), "nvidia");
        assert_eq!(answer, Err(refusal.to_owned()));
        let command = failed("modprobe -i nvidia ");
        let no_device = "modprobe: ERROR: could not insert 'nvidia': No such device\n";
        let answer = read(Some(1), &format!("{no_device}{command}"), "nvidia");
        assert_eq!(answer, Ok(Insertion::WithoutGpu));
    }

    #[test]
    fn gpus_on_the_bus_that_the_module_does_not_take_are_counted() {
        let told = |answer: &Insertion, gpus: usize| {
            let reading = describe("nvidia_current", answer, gpus);
            let word = reading.samples[0].value.clone();
            (word, reading.number("driver.unbound", ""))
        };
        let word = |text: &str| Limit::Text(text.into());
        let accepted = word("accepted by the kernel, no GPU");
        let answer = Insertion::WithoutGpu;
        assert_eq!(told(&answer, 0), (accepted.clone(), Some(0.0)));
        assert_eq!(told(&answer, 8), (accepted, Some(8.0)));
        assert_eq!(told(&Insertion::Loaded, 8), (word("loaded"), Some(0.0)));
        let refused = known("Exec format error");
        assert_eq!(told(&refused, 8), (word("refused"), Some(0.0)));
    }
}
