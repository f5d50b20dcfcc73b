//! The program of a gate's tool, with the sandbox: in a folder of the system, or in the folder with
//! the programs of the image. A PATH of the caller decides for gates from before the rule of
//! programs alone; such gates have no sandbox.

use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use muster_core::gates::{Gate, PROGRAMS_FOLDER, Sandbox};
use muster_core::wire::node::GatePlan;

use crate::machine::Machine;
use crate::tool::ToolError;

/// Folders of the system with programs, in the order of a search.
const SYSTEM: [&str; 7] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    // Packages of AMD.
    "/opt/rocm/bin",
];
/// The folders above a program of the image. Each must be a real folder of root.
const FOLDERS: [&str; 3] = ["/usr/libexec", "/usr/libexec/muster", PROGRAMS_FOLDER];
/// Permission to write for the group and for others.
const WRITABLE: u32 = 0o022;

/// A program to start.
pub(super) struct Program {
    /// The name for a search, or the path of a program of the image.
    pub(super) file: String,
    /// The folders of the search, for the tool as well; `None`: by the caller's PATH.
    pub(super) path: Option<String>,
    /// The sandbox of the program; `None` for a gate from before the rule of programs.
    pub(super) sandbox: Option<Sandbox>,
}

/// Finds the program of a call of a gate.
///
/// # Errors
/// [`ToolError::Missing`], and [`ToolError::Io`] for a program that another user could change.
pub(super) fn find_program(
    name: &str,
    gate: &Gate,
    plan: &GatePlan,
    machine: &Machine,
) -> Result<Program, ToolError> {
    if plan.is_former(&gate.id) {
        return Ok(Program {
            file: name.to_owned(),
            path: None,
            sandbox: None,
        });
    }
    let is_own = Path::new(name).parent() == Some(Path::new(PROGRAMS_FOLDER));
    let file = match is_own {
        true => check_own(name, machine)?,
        false => name.to_owned(),
    };
    Ok(Program {
        file,
        path: Some(search_path(machine)),
        sandbox: Some(Sandbox::of(gate)),
    })
}

/// The folders of the system for a search. In a test, the folders of the machine come first.
fn search_path(machine: &Machine) -> String {
    let own = SYSTEM.map(|folder| machine.path(folder).to_string_lossy().into_owned());
    let plain = SYSTEM.map(str::to_owned);
    match own == plain {
        true => plain.join(":"),
        false => [own, plain].concat().join(":"),
    }
}

/// Returns the path of a program of the image. No other user than root, or than the user of
/// muster-node, may be able to change the program.
fn check_own(name: &str, machine: &Machine) -> Result<String, ToolError> {
    let wrong = |why: String| ToolError::Io(name.to_owned(), Error::other(why));
    for folder in FOLDERS {
        if !check_owner(name, &machine.path(folder))?.is_dir() {
            return Err(wrong(format!("{folder} is no folder")));
        }
    }
    let path = machine.path(name);
    if !check_owner(name, &path)?.is_file() {
        return Err(wrong("the program is no regular file".to_owned()));
    }
    Ok(path.to_string_lossy().into_owned())
}

/// Returns the metadata of a file or folder, without following a link.
fn check_owner(name: &str, path: &Path) -> Result<std::fs::Metadata, ToolError> {
    let found = path
        .symlink_metadata()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => ToolError::Missing(name.to_owned()),
            _ => ToolError::Io(name.to_owned(), error),
        })?;
    let place = path.display();
    let wrong = |why: String| Err(ToolError::Io(name.to_owned(), Error::other(why)));
    let own = nix::unistd::geteuid().as_raw();
    if ![0, own].contains(&found.uid()) {
        return wrong(format!(
            "{place} belongs to user {}, not to root",
            found.uid()
        ));
    }
    if !found.is_symlink() && found.mode() & WRITABLE != 0 {
        return wrong(format!("{place} can be written by other users than root"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::gates::tests::bench::{gate, plan};

    const NAME: &str = "/usr/libexec/muster/gates/fans";

    /// A machine with a program of the image.
    fn machine(root: &Path) -> Machine {
        let machine = Machine::at(root);
        let folder = machine.path(PROGRAMS_FOLDER);
        std::fs::create_dir_all(&folder).expect("a folder");
        for folder in FOLDERS {
            set_mode(&machine.path(folder), 0o755);
        }
        std::fs::write(machine.path(NAME), "#!/bin/sh\n").expect("a program");
        set_mode(&machine.path(NAME), 0o755);
        machine
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }

    fn found(name: &str, machine: &Machine) -> Result<Program, ToolError> {
        let gate =
            gate("id = \"a\"\nstage = \"node\"\nparser = \"fio\"\ntimeout_s = 5\ncriteria = []\n");
        find_program(name, &gate, &plan(vec![gate.clone()]), machine)
    }

    fn refusal(machine: &Machine) -> String {
        match found(NAME, machine) {
            Err(ToolError::Io(_, error)) => error.to_string(),
            Err(error) => panic!("{error:?}"),
            Ok(program) => panic!("{} is allowed", program.file),
        }
    }

    #[test]
    fn a_program_of_the_image_is_started_where_root_alone_can_change_it() {
        let root = tempfile::tempdir().expect("a folder");
        let machine = machine(root.path());
        let program = found(NAME, &machine).expect("a program");
        assert_eq!(program.file, machine.path(NAME).to_string_lossy());
        // Writable by others: the program, or a folder above.
        for path in [NAME, PROGRAMS_FOLDER, "/usr/libexec/muster", "/usr/libexec"] {
            set_mode(&machine.path(path), 0o777);
            let why = refusal(&machine);
            assert!(
                why.contains("can be written by other users"),
                "{path}: {why}"
            );
            set_mode(&machine.path(path), 0o755);
        }
        // A link out of the folder.
        std::fs::remove_file(machine.path(NAME)).expect("removed");
        symlink("/bin/sh", machine.path(NAME)).expect("a link");
        assert!(refusal(&machine).contains("no regular file"));
        std::fs::remove_file(machine.path(NAME)).expect("removed");
        let missing = found(NAME, &machine);
        assert!(matches!(missing, Err(ToolError::Missing(name)) if name == NAME));
        // The folder itself is a link.
        let (own, other) = (machine.path(PROGRAMS_FOLDER), root.path().join("other"));
        std::fs::rename(&own, &other).expect("moved");
        symlink(&other, &own).expect("a link");
        assert!(refusal(&machine).contains("is no folder"));
    }

    #[test]
    fn a_bare_name_is_searched_in_the_folders_of_the_system_alone() {
        let program = found("fio", &Machine::at("/")).expect("a name");
        assert_eq!(program.file, "fio");
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin";
        assert_eq!(program.path.as_deref(), Some(path));
        assert!(program.sandbox.is_some());
    }

    #[test]
    fn a_gate_from_before_the_rule_is_started_as_before() {
        let gate =
            gate("id = \"a\"\nstage = \"node\"\nparser = \"fio\"\ntimeout_s = 5\ncriteria = []\n");
        let mut plan = plan(vec![gate.clone()]);
        plan.set_former_gates(&["a"]);
        let program = find_program("setsid", &gate, &plan, &Machine::at("/")).expect("a name");
        assert_eq!((program.file.as_str(), program.path), ("setsid", None));
        assert_eq!(program.sandbox, None);
    }
}
