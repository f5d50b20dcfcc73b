//! The file that modprobe would insert for a module. Debian's module `nvidia` has the file
//! `nvidia-current.ko.xz`: an install command of modprobe.d names the file's module.

use std::time::Duration;

use muster_core::wire::node::{Failure, FailureCode};

use super::kernel_facts::{module_of, underscored};
use crate::job::JobContext;
use crate::machine::Machine;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest chain of install commands, in calls of modprobe.
const DEPTH_MAX: usize = 3;

/// The place of a module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The path of the module's file.
    File(String),
    /// The module is a part of the kernel.
    BuiltIn,
    /// Neither modprobe nor modinfo finds a file, with modprobe's reason: the next boot cannot load
    /// the module from the disk.
    Missing(String),
    /// modprobe knows the module without naming its file, and modinfo finds no file of the module's
    /// own name, with the reason. The next boot may load the module.
    Unknown(String),
}

/// A line of `modprobe --show-depends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Insertion<'a> {
    /// The path of a module's file.
    File(&'a str),
    /// An install command; `None` for a command of unknown form.
    Command(Option<Next<'a>>),
    /// The name of a module that is a part of the kernel.
    BuiltIn(&'a str),
}

/// The last module inserted by an install command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Next<'a> {
    module: &'a str,
    /// Whether the command ignores the module's own install command, as `modprobe -i` does.
    ignoring: bool,
}

/// Returns the place of a module.
///
/// # Errors
/// The failure of a program without an answer, such as `tool_timeout`.
pub(crate) fn find(machine: &Machine, name: &str, cx: &JobContext) -> Result<Place, Failure> {
    let (mut asked, mut ignoring) = (name.to_owned(), false);
    for _ in 0..DEPTH_MAX {
        let said = match ask(machine, &asked, ignoring, cx) {
            Ok(said) => said,
            Err(failure) if failure.code == FailureCode::ModuleUnknown => {
                let found = ask_modinfo(machine, &asked, cx)?;
                return Ok(found.unwrap_or(Place::Missing(failure.message)));
            }
            Err(failure) => return Err(failure),
        };
        let said = String::from_utf8_lossy(&said);
        match read(&said, &asked) {
            Some(Insertion::File(path)) => return Ok(Place::File(path.to_owned())),
            Some(Insertion::BuiltIn(_)) => return Ok(Place::BuiltIn),
            Some(Insertion::Command(Some(next))) => {
                ignoring = next.ignoring;
                asked = next.module.to_owned();
            }
            Some(Insertion::Command(None)) | None => break,
        }
    }
    // An install command of unknown form, or only the lines of other modules.
    let found = ask_modinfo(machine, name, cx)?;
    Ok(found.unwrap_or_else(|| {
        Place::Unknown(format!(
            "`modprobe --show-depends` names no file of module {asked}, and modinfo finds no module {name}"
        ))
    }))
}

/// Returns a field of a module's file, such as `version` or `vermagic`; empty when the file has no
/// such field.
///
/// # Errors
/// `module_unknown` when modinfo cannot read the file.
pub(crate) fn field(
    machine: &Machine,
    file: &str,
    name: &str,
    cx: &JobContext,
) -> Result<String, Failure> {
    let argv = ["modinfo", "-F", name, "--", file];
    let said = machine.output(cx, FailureCode::ModuleUnknown, &argv, TIMEOUT)?;
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}

/// Runs `modprobe --show-depends`, which also shows loaded modules: a dry run (`-n -v`) skips them.
/// `ignoring`: as the `modprobe -i` of an install command.
fn ask(machine: &Machine, name: &str, ignoring: bool, cx: &JobContext) -> Result<Vec<u8>, Failure> {
    let mut argv = vec!["modprobe", "--show-depends"];
    if ignoring {
        argv.push("--ignore-install");
    }
    argv.extend(["--", name]);
    machine.output(cx, FailureCode::ModuleUnknown, &argv, TIMEOUT)
}

/// Asks modinfo for the module's file; `None` when modinfo finds no file of the name.
fn ask_modinfo(machine: &Machine, name: &str, cx: &JobContext) -> Result<Option<Place>, Failure> {
    let argv = ["modinfo", "-F", "filename", "--", name];
    let said = match machine.output(cx, FailureCode::ModuleUnknown, &argv, TIMEOUT) {
        Ok(said) => said,
        Err(failure) if failure.code == FailureCode::ModuleUnknown => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let said = String::from_utf8_lossy(&said);
    let is_of_the_name = |path: &&str| module_of(path) == Some(underscored(name));
    if let Some(path) = said.lines().map(str::trim).find(is_of_the_name) {
        return Ok(Some(Place::File(path.to_owned())));
    }
    Ok((said.trim() == "(builtin)").then_some(Place::BuiltIn))
}

/// Returns the insertion of the named module. Dependencies come before the module, and soft
/// dependencies may follow; an install command has no name, and counts only alone.
fn read<'a>(said: &'a str, name: &str) -> Option<Insertion<'a>> {
    let name = underscored(name);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    if let [line] = lines.as_slice()
        && let Some(command @ Insertion::Command(_)) = read_line(line)
    {
        return Some(command);
    }
    let mut insertions = lines.into_iter().filter_map(read_line);
    insertions.find(|insertion| match insertion {
        Insertion::File(path) => module_of(path).is_some_and(|module| module == name),
        Insertion::BuiltIn(module) => underscored(module) == name,
        Insertion::Command(_) => false,
    })
}

fn read_line(line: &str) -> Option<Insertion<'_>> {
    let mut words = line.split_whitespace();
    match words.next()? {
        "insmod" => words.next().map(Insertion::File),
        "install" => Some(Insertion::Command(inserted_by(&words.collect::<Vec<_>>()))),
        "builtin" => words.next().map(Insertion::BuiltIn),
        _ => None,
    }
}

/// Returns the last module of an install command, such as `modprobe nvidia ; modprobe -i
/// nvidia-current-uvm $CMDLINE_OPTS`.
fn inserted_by<'a>(command: &[&'a str]) -> Option<Next<'a>> {
    let is_modprobe = |word: &&str| *word == "modprobe" || word.ends_with("/modprobe");
    let at = command.iter().rposition(is_modprobe)?;
    let arguments = command.get(at + 1..)?;
    let is_option = |word: &&str| word.starts_with(['-', '$']);
    let end = arguments.iter().position(|word| !is_option(word))?;
    let module = arguments.get(end)?.trim_end_matches(';');
    let is_name = !module.is_empty()
        && module
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    is_name.then(|| Next {
        module,
        ignoring: arguments[..end].iter().any(|word| ignores(word)),
    })
}

/// Whether an option of modprobe ignores install commands: `-i`, also among other letters.
fn ignores(option: &str) -> bool {
    let letters = option
        .strip_prefix('-')
        .filter(|rest| !rest.starts_with('-'));
    option == "--ignore-install" || letters.is_some_and(|letters| letters.contains('i'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = include_str!("../../fixtures/modprobe-550.163.01-no-gpu.txt");

    /// A command that inserts a module by `modprobe -i`.
    fn ignoring(module: &str) -> Option<Insertion<'_>> {
        let ignoring = true;
        Some(Insertion::Command(Some(Next { module, ignoring })))
    }

    #[test]
    fn an_install_command_names_the_module_of_the_file() {
        let line = RECORDED
            .lines()
            .find(|line| line.starts_with("install "))
            .expect("the line of Debian's driver");
        assert_eq!(read(line, "nvidia"), ignoring("nvidia-current"));
        for command in [
            "modprobe nvidia ; modprobe -i nvidia-current-uvm $CMDLINE_OPTS ",
            "modprobe -i -q nvidia-current-uvm",
            "/sbin/modprobe -qi $CMDLINE_OPTS nvidia-current-uvm; true",
            "modprobe --ignore-install nvidia-current-uvm",
        ] {
            let said = format!("install {command}\n");
            let next = ignoring("nvidia-current-uvm");
            assert_eq!(read(&said, "nvidia_uvm"), next, "{command}");
        }
        let (module, ignoring) = ("nvidia-current", false);
        let next = Insertion::Command(Some(Next { module, ignoring }));
        let said = "install /sbin/modprobe --quiet nvidia-current\n";
        assert_eq!(read(said, "nvidia"), Some(next));
        for line in [
            "install /bin/false \n",
            "install modprobe -i\n",
            "install modprobe -i $CMDLINE_OPTS ; true\n",
        ] {
            assert_eq!(read(line, "nvidia"), Some(Insertion::Command(None)));
        }
    }

    #[test]
    fn the_file_of_the_module_is_found_among_its_dependencies() {
        let folder = "/lib/modules/6.12.118+deb13-amd64/updates/dkms";
        let path = format!("{folder}/nvidia-current.ko.xz");
        let said = format!(
            "insmod /lib/modules/6.12.118+deb13-amd64/kernel/drivers/i2c/i2c-core.ko.xz \n\
             insmod {path} NVreg_EnableGpuFirmware=0 \n\
             insmod {folder}/nvidia-current-uvm.ko.xz \n"
        );
        assert_eq!(
            read(&said, "nvidia-current"),
            Some(Insertion::File(path.as_str())),
            "a soft dependency follows the module"
        );
        assert_eq!(read(&said, "nvidia"), None, "no file of the name");
        let softdep = "insmod /lib/modules/6.12/a.ko \ninstall modprobe -i b \n";
        assert_eq!(read(softdep, "nvidia"), None, "the command of a module");
        assert_eq!(read("", "nvidia"), None);
    }

    #[test]
    fn a_part_of_the_kernel_has_no_file() {
        let said = "builtin snd-hda \ninsmod /lib/modules/6.12/amdgpu.ko \n";
        assert_eq!(read(said, "snd_hda"), Some(Insertion::BuiltIn("snd-hda")));
        let file = Insertion::File("/lib/modules/6.12/amdgpu.ko");
        assert_eq!(read(said, "amdgpu"), Some(file));
        assert_eq!(read(said, "other"), None);
    }
}
