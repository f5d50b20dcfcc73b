//! Prebuilt modules of several branches of a driver, with the relations that `stacks/modules/pack`
//! writes.

use super::*;

const RELEASE: &str = "6.1.0-40-amd64";
const OLDER: (&str, &str) = ("linux-modules-nvidia-550-6.1.0-40-amd64", "550.1");
const NEWER: (&str, &str) = ("linux-modules-nvidia-580-6.1.0-40-amd64", "580.1");
const TESLA: (&str, &str) = ("linux-modules-nvidia-535-6.1.0-40-amd64", "535.1");
/// Packed without relations to other branches.
const PLAIN: (&str, &str) = ("linux-modules-nvidia-540-6.1.0-40-amd64", "540.1");
/// Depends on one version of the user space.
const TIED: (&str, &str) = ("linux-modules-nvidia-570-6.1.0-40-amd64", "570.1");
/// Builds the modules of [`OLDER`] on the node.
const DKMS: (&str, &str) = ("nvidia-kernel-dkms", "550.1");
/// Build the modules of other drivers on the node.
const OPEN_DKMS: (&str, &str) = ("nvidia-open-kernel-dkms", "550.1");
const TESLA_DKMS: (&str, &str) = ("nvidia-tesla-535-kernel-dkms", "535.1");
const SUPPORT: &str = "nvidia-kernel-support";
const MODULE: &str = "usr/lib/modules/6.1.0-40-amd64/updates/nvidia/nvidia-current.ko.xz";
const TESLA_MODULE: &str = "usr/lib/modules/6.1.0-40-amd64/updates/nvidia/nvidia-tesla-535.ko.xz";
/// Fails while a file exists.
const PREINST: &str = "#!/bin/sh\n[ ! -e /run/broken ]\n";

/// The relations of a package with modules of these names.
fn relate(stem: &str, version: &str) -> String {
    let modules = format!("{stem}-modules-{RELEASE}");
    let sources = [DKMS.0, OPEN_DKMS.0, TESLA_DKMS.0].join(", ");
    format!(
        "Provides: {modules} (= {version})\nConflicts: {sources}, {modules}\nReplaces: {modules}\n"
    )
}

/// Makes packages with modules of branches. Three branches have the same file.
fn setup() -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    let older = relate("nvidia-current", OLDER.1);
    let newer = relate("nvidia-current", NEWER.1);
    let tesla = relate("nvidia-tesla-535", TESLA.1);
    let tied = format!("Depends: {SUPPORT} (= 570.1)\n");
    let files = [(MODULE, "580\n"), ("preinst", PREINST)];
    let bundle = Bundle::of(&[
        (OLDER.0, OLDER.1, older.as_str(), &[(MODULE, "550\n")]),
        (NEWER.0, NEWER.1, newer.as_str(), &files),
        (TESLA.0, TESLA.1, tesla.as_str(), &[(TESLA_MODULE, "535\n")]),
        (PLAIN.0, PLAIN.1, "", &[(MODULE, "540\n")]),
        (TIED.0, TIED.1, tied.as_str(), &[]),
        (SUPPORT, "570.1", "", &[]),
        (SUPPORT, "570.2", "", &[]),
        (DKMS.0, DKMS.1, "", &[]),
        (OPEN_DKMS.0, OPEN_DKMS.1, "", &[]),
        (TESLA_DKMS.0, TESLA_DKMS.1, "", &[]),
    ]);
    tree.write("/proc/sys/kernel/osrelease", &format!("{RELEASE}\n"));
    Some((tree, bundle))
}

/// Returns the installed packages of the bundle.
fn installed(machine: &Machine) -> Vec<&'static str> {
    let database = dpkg::Database::read(machine).expect("a database");
    let mut names = vec![OLDER.0, NEWER.0, TESLA.0, PLAIN.0, TIED.0];
    names.extend([DKMS.0, OPEN_DKMS.0, TESLA_DKMS.0]);
    names.retain(|name| database.has(name));
    names
}

/// Converges to the packages, and returns the number of apt's transactions.
fn converge_to(tree: &Tree, bundle: &Bundle, packages: &[(&str, &str)]) -> usize {
    let count = || {
        let history = tree.text("/var/log/apt/history.log");
        history.matches("Start-Date: ").count()
    };
    let before = count();
    let plan = bundle.plan(packages);
    run_on(&tree.machine(), &plan, &cx()).expect("the packages");
    // As a boot does.
    let _ = std::fs::remove_file(tree.path("/run/muster/reboot.json"));
    count() - before
}

#[test]
fn a_branch_with_the_same_files_is_replaced_in_one_transaction() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    for (branch, content) in [
        (OLDER, "550\n"),
        (NEWER, "580\n"),
        (OLDER, "550\n"),
        (PLAIN, "540\n"),
        (NEWER, "580\n"),
    ] {
        let name = branch.0;
        assert_eq!(converge_to(&tree, &bundle, &[branch]), 1, "{name}");
        assert_eq!(installed(&tree.machine()), [name]);
        assert_eq!(tree.text(&format!("/{MODULE}")), content);
    }
}

#[test]
fn an_interrupted_move_goes_on_or_back() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    for next in [NEWER, OLDER] {
        converge_to(&tree, &bundle, &[OLDER]);
        tree.write("/run/broken", "");
        let failed = failure(run_on(&machine, &bundle.plan(&[NEWER]), &cx()));
        assert_eq!(failed.code.as_str(), "packages_failed", "{failed:?}");
        assert_eq!(installed(&machine), Vec::<&str>::new(), "between the two");
        tree.remove("/run/broken");
        converge_to(&tree, &bundle, &[next]);
        assert_eq!(installed(&machine), [next.0]);
    }
}

#[test]
fn modules_of_the_running_kernel_do_not_leave_without_a_successor() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    converge_to(&tree, &bundle, &[TIED, (SUPPORT, "570.1")]);
    let plan = bundle.plan(&[(SUPPORT, "570.2")]);
    let failed = failure(run_on(&tree.machine(), &plan, &cx()));
    assert_eq!(failed.code.as_str(), "unplanned_change", "{failed:?}");
    assert!(failed.message.contains(TIED.0), "{failed:?}");
    assert_eq!(installed(&tree.machine()), [TIED.0]);
}

#[test]
fn a_branch_with_other_files_may_be_beside_and_leaves_with_its_lock() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    converge_to(&tree, &bundle, &[OLDER, TESLA]);
    assert_eq!(installed(&tree.machine()), [OLDER.0, TESLA.0]);
    assert_eq!(converge_to(&tree, &bundle, &[TESLA]), 1);
    assert_eq!(installed(&tree.machine()), [TESLA.0]);
    // Without modules of another driver, those of the running kernel stay until the next boot.
    converge_to(&tree, &bundle, &[]);
    assert_eq!(installed(&tree.machine()), [TESLA.0]);
}

#[test]
fn modules_of_the_running_kernel_yield_to_the_source_of_any_driver() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    for package in [OLDER, DKMS, OLDER, OPEN_DKMS, OLDER, TESLA_DKMS, OLDER] {
        assert_eq!(converge_to(&tree, &bundle, &[package]), 1, "{}", package.0);
        assert_eq!(installed(&tree.machine()), [package.0]);
    }
}
