//! Kernel modules built on the node by dkms: the answer of `dkms status`, the modules missing for
//! the next boot, and the compiler's errors of a failed build.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::{dpkg, kernel_facts};
use crate::failure::fatal;
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::{self, Call};

/// Folder of dkms with a subfolder for each module, and in the subfolder a folder for each version.
pub(crate) const TREE: &str = "/var/lib/dkms";
/// Folder with the sources of the modules, as `NAME-VERSION`.
const SOURCES: &str = "/usr/src";
const STATUS_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest build and installation of a module.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Exit status of dkms for a kernel excluded by the module's own settings.
const EXCLUDED: i32 = 77;
/// Longest end of dkms's output in a failure without errors of the compiler, in bytes.
const OUTPUT_MAX: usize = 600;
/// Longest part read of a build's log, in bytes.
const LOG_MAX: u64 = 16 << 20;
/// Number of the compiler's errors in a failure.
const ERRORS_MAX: usize = 3;
/// Longest error in a failure, in characters.
const ERROR_MAX: usize = 300;

/// State of a module's version, from a line of `dkms status`.
pub(crate) struct Line<'a> {
    pub(crate) module: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kernel: Option<&'a str>,
    pub(crate) state: &'a str,
    /// Text in parentheses after the state.
    pub(crate) beside: &'a str,
}

/// Returns the output of `dkms status`.
///
/// # Errors
/// `dkms_unreadable` when dkms fails.
pub(crate) fn status(machine: &Machine, cx: &JobContext) -> Result<Vec<u8>, Failure> {
    let argv = ["dkms", "status"];
    machine.output(cx, FailureCode::DkmsUnreadable, &argv, STATUS_TIMEOUT)
}

/// Parses `demo/1.0, 6.1.0-40-amd64, x86_64: installed (…)`, or `demo/1.0: added`. dkms 2 writes
/// `demo, 1.0, …`.
pub(crate) fn parse_line(text: &str) -> Option<Line<'_>> {
    let (head, said) = text.split_once(": ")?;
    let (state, beside) = said.split_once(' ').unwrap_or((said, ""));
    if !["added", "broken", "built", "installed", "installed-weak"].contains(&state) {
        return None;
    }
    let parts: Vec<&str> = head.split(", ").collect();
    let (first, rest) = parts.split_first()?;
    let (module, version, rest) = match first.split_once('/') {
        Some((module, version)) => (module, version, rest),
        None => {
            let (version, rest) = rest.split_first()?;
            (*first, *version, rest)
        }
    };
    let kernel = match rest {
        [] => None,
        [kernel, _arch] => Some(*kernel),
        _ => return None,
    };
    // The line of a built or installed module names a kernel. The line of a module only added, or
    // without its sources (`broken`), names none.
    let has_no_kernel = ["added", "broken"].contains(&state);
    (!module.is_empty() && (kernel.is_some() || has_no_kernel)).then_some(Line {
        module,
        version,
        kernel,
        state,
        beside,
    })
}

/// A version of a module in dkms's tree.
struct Module {
    name: String,
    version: String,
}

/// The end of an attempt to install a module.
enum Attempt {
    /// The kernel has no headers, and dkms was not started.
    NoHeaders,
    /// The module's `BUILD_EXCLUSIVE_` settings exclude the kernel.
    Excluded,
    /// dkms ended, with its status and its reasons.
    Ended(String),
}

/// Checks that every module of the plan's packages is installed for the kernel of the next boot, and
/// installs a missing module. Without the kernel's headers dkms skips the build, and dpkg configures
/// the package all the same.
///
/// # Errors
/// `packages_failed` for a module that is still not installed, `dkms_unreadable`, `tool_timeout`, or
/// `io`.
pub(super) fn check(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<(), Failure> {
    let modules = planned(machine, plan);
    if modules.is_empty() {
        return Ok(());
    }
    let release = kernel_facts::next_release(machine, plan)?;
    let said = String::from_utf8_lossy(&status(machine, cx)?).into_owned();
    let mut attempts = Vec::new();
    for module in &modules {
        if !is_installed(state_of(&said, module, &release)) {
            cx.check()?;
            attempts.push((module, install(machine, module, &release, cx)?));
        }
    }
    if attempts.is_empty() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&status(machine, cx)?).into_owned();
    for (module, attempt) in attempts {
        let state = state_of(&said, module, &release);
        accept(module, state, &release, attempt, cx)?;
    }
    Ok(())
}

/// Whether a state of `dkms status` has the module in the kernel's folder.
fn is_installed(state: &str) -> bool {
    state.starts_with("installed")
}

/// Whether the kernel's link `build` leads to the folder of the headers. The link may be left after
/// the removal of the headers.
fn has_headers(machine: &Machine, release: &str) -> bool {
    let link = format!("{}{release}/build", kernel_facts::MODULES);
    let headers = machine.resolve(&link);
    headers.is_some_and(|headers| machine.path(&headers).is_dir())
}

/// Installs a module for a kernel with headers.
fn install(
    machine: &Machine,
    module: &Module,
    release: &str,
    cx: &JobContext,
) -> Result<Attempt, Failure> {
    if !has_headers(machine, release) {
        return Ok(Attempt::NoHeaders);
    }
    let name = format!("{}/{}", module.name, module.version);
    let message = format!("building the module {name} for kernel {release}");
    cx.progress(&message, None, None, None);
    let argv = ["dkms", "install", &name, "-k", release];
    let call = Call {
        argv: &argv,
        timeout: Some(INSTALL_TIMEOUT),
        ..Call::default()
    };
    // A cancelled job must not leave a part of the module in the kernel's folder.
    let done = cx.uncut(|| machine.run(cx, &call))?;
    if done.status.code() == Some(EXCLUDED) {
        return Ok(Attempt::Excluded);
    }
    let output = [done.stdout, done.stderr].concat();
    let mut reasons = build_errors(machine, &String::from_utf8_lossy(&output));
    if reasons.is_empty() {
        reasons.push(tool::tail(&output, OUTPUT_MAX));
    }
    Ok(Attempt::Ended(format!(
        "`{}` ended with {}: {}",
        argv.join(" "),
        done.status,
        reasons.join(" | ")
    )))
}

/// Judges a module by its state after the attempt.
fn accept(
    module: &Module,
    state: &str,
    release: &str,
    attempt: Attempt,
    cx: &JobContext,
) -> Result<(), Failure> {
    let name = format!("{}/{}", module.name, module.version);
    if is_installed(state) {
        cx.log(&format!(
            "dkms installed the module {name} for kernel {release}"
        ));
        return Ok(());
    }
    let why = match attempt {
        Attempt::NoHeaders => {
            format!("the kernel has no headers, add linux-headers-{release} to the stack")
        }
        Attempt::Excluded => {
            cx.log(&format!(
                "the module {name} is not for kernel {release}: its BUILD_EXCLUSIVE settings exclude the kernel"
            ));
            return Ok(());
        }
        Attempt::Ended(why) => why,
    };
    Err(fatal(
        FailureCode::PackagesFailed,
        format!("dkms module {name} is {state} for kernel {release}, not installed: {why}"),
    ))
}

/// Returns the modules whose sources belong to a package of the plan.
fn planned(machine: &Machine, plan: &ConvergePlan) -> Vec<Module> {
    let is_planned = |module: &Module| {
        let sources = format!("{SOURCES}/{}-{}", module.name, module.version);
        dpkg::owner(machine, &sources)
            .is_some_and(|owner| plan.packages.iter().any(|package| package.name == owner))
    };
    let mut modules = Vec::new();
    for name in folders(machine, TREE) {
        let versions = folders(machine, &format!("{TREE}/{name}"));
        let found = versions.into_iter().map(|version| Module {
            name: name.clone(),
            version,
        });
        modules.extend(found.filter(is_planned));
    }
    modules
}

/// Returns the names of the folders in a folder, sorted. Links are left out.
fn folders(machine: &Machine, path: &str) -> Vec<String> {
    let entries = std::fs::read_dir(machine.path(path))
        .into_iter()
        .flatten()
        .flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> = folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Returns the state of a module for a kernel: `broken` for a module without its sources, and
/// `added` when dkms names no state for the kernel.
fn state_of<'a>(said: &'a str, module: &Module, release: &str) -> &'a str {
    let lines = || {
        let lines = said.lines().filter_map(parse_line);
        lines.filter(|line| line.module == module.name && line.version == module.version)
    };
    let broken = lines().find(|line| line.state == "broken");
    let line = broken.or_else(|| lines().find(|line| line.kernel == Some(release)));
    line.map_or("added", |line| line.state)
}

/// Returns the first errors in the build logs named by the output of a failed program.
pub(super) fn build_errors(machine: &Machine, said: &str) -> Vec<String> {
    let is_log = |word: &&str| {
        let below = word.strip_prefix(TREE);
        below.is_some_and(|path| path.starts_with('/') && path.ends_with("/make.log"))
    };
    let mut logs: Vec<&str> = said.split_whitespace().filter(is_log).collect();
    logs.dedup();
    let errors = logs.into_iter().flat_map(|log| errors_in(machine, log));
    errors.take(ERRORS_MAX).collect()
}

/// Returns the first errors in a build's log; empty when the log cannot be read.
fn errors_in(machine: &Machine, log: &str) -> Vec<String> {
    let Some(file) = open_log(machine, log) else {
        return Vec::new();
    };
    let lines = BufReader::new(file.take(LOG_MAX)).split(b'\n');
    let lines = lines
        .map_while(Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned());
    lines
        // The linker's step writes `ERROR: modpost: …`.
        .filter(|line| line.to_ascii_lowercase().contains("error:"))
        .map(|line| {
            let plain = line.chars().filter(|c| !c.is_control());
            plain.take(ERROR_MAX).collect::<String>()
        })
        .take(ERRORS_MAX)
        .collect()
}

/// Opens a log in dkms's tree. A link out of the tree is refused.
fn open_log(machine: &Machine, log: &str) -> Option<File> {
    let tree = machine.path(TREE).canonicalize().ok()?;
    let path = machine.path(log).canonicalize().ok()?;
    let is_inside = path.starts_with(&tree) && path.is_file();
    is_inside.then(|| File::open(&path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const STATUS: &str = include_str!("../../fixtures/dkms-3.2.2-status.txt");
    const FAILED: &str = include_str!("../../fixtures/dkms-3.2.2-build-failed.txt");
    const LOG: &str = "var/lib/dkms/nvidia-current-open/550.163.01/build/make.log";
    const TOO_FEW: &str = "nv-pci.c:237:9: error: too few arguments to function";

    fn state(said: &str, name: &str, version: &str, release: &str) -> String {
        let (name, version) = (name.to_owned(), version.to_owned());
        state_of(said, &Module { name, version }, release).to_owned()
    }

    #[test]
    fn only_an_installed_module_of_the_version_and_kernel_counts() {
        let (name, version, release) = ("nvidia-current", "550.163.01", "6.12.118+deb13-amd64");
        assert_eq!(state(STATUS, name, version, release), "installed");
        assert_eq!(state(STATUS, name, "535.274.02", release), "added");
        assert_eq!(
            state(STATUS, name, version, "6.12.117+deb13-amd64"),
            "added"
        );
        assert_eq!(
            state(STATUS, "nvidia-current-open", version, release),
            "added"
        );
        for other in ["built", "installed-weak"] {
            let said = STATUS.replace("installed", other);
            assert_eq!(state(&said, name, version, release), other);
        }
        assert!(is_installed("installed-weak") && !is_installed("built"));
        let broken = format!("{STATUS}{name}/{version}: broken\n");
        assert_eq!(state(&broken, name, version, release), "broken");
        assert_eq!(
            state(&broken, "nvidia-tesla-535", "535.274.02", release),
            "installed",
            "another module"
        );
    }

    #[test]
    fn only_a_line_without_a_state_for_a_kernel_names_no_kernel() {
        let line = |text| parse_line(text).map(|line| (line.kernel, line.state));
        assert_eq!(line("demo/1.0: added"), Some((None, "added")));
        assert_eq!(line("demo/1.0: broken"), Some((None, "broken")));
        let weak = "demo/1.0, 6.1.0-40-amd64, x86_64: installed-weak from 6.1.0-39-amd64";
        assert_eq!(line(weak), Some((Some("6.1.0-40-amd64"), "installed-weak")));
        for text in ["demo/1.0: built", "demo/1.0: installed-weak"] {
            assert_eq!(line(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_errors_of_the_named_log_are_told() {
        let root = tempfile::tempdir().expect("a folder");
        let machine = Machine::at(root.path());
        assert_eq!(
            build_errors(&machine, FAILED),
            Vec::<String>::new(),
            "a log that is gone"
        );
        let path = root.path().join(LOG);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let noise = "  CC [M]  nv-pci.o\n".repeat(100_000);
        let log = format!(
            "{noise}{TOO_FEW}\nmake: Error 2\n\u{1b}[31ma.c:1: error: two\nerror: three\nerror: four\n"
        );
        std::fs::write(&path, log).expect("a log");
        let errors = [TOO_FEW, "[31ma.c:1: error: two", "error: three"];
        assert_eq!(build_errors(&machine, FAILED), errors);
        std::fs::write(&path, "ERROR: modpost: \"x\" undefined!\n").expect("a log");
        let errors = ["ERROR: modpost: \"x\" undefined!"];
        assert_eq!(build_errors(&machine, FAILED), errors);
        std::fs::write(&path, format!("error: {}\n", "x".repeat(1000))).expect("a log");
        assert_eq!(build_errors(&machine, FAILED)[0].len(), ERROR_MAX);
    }

    #[test]
    fn a_log_outside_of_the_tree_is_not_read() {
        let root = tempfile::tempdir().expect("a folder");
        let machine = Machine::at(root.path());
        let (inside, outside) = (root.path().join(LOG), root.path().join("etc/make.log"));
        for path in [&inside, &outside] {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        }
        std::fs::write(&outside, "secret error: x\n").expect("a file");
        for named in ["/etc/make.log", "/var/lib/dkms/../../../etc/make.log"] {
            assert_eq!(
                build_errors(&machine, named),
                Vec::<String>::new(),
                "{named}"
            );
        }
        symlink(&outside, &inside).expect("a link");
        assert_eq!(build_errors(&machine, FAILED), Vec::<String>::new());
        std::fs::remove_file(&inside).expect("the link");
        std::fs::write(&inside, "error: x\n").expect("a log");
        assert_eq!(build_errors(&machine, FAILED), ["error: x"]);
    }
}
