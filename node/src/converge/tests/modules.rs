//! Modules built on the node by dkms: a failed build, and a build that dkms skipped.

use std::os::unix::fs::symlink;

use super::*;

const RELEASE: &str = "6.1.0-40-amd64";
/// As dkms's postinst: adds the module to the tree, and fails with the name of the build's log.
const POSTINST: &str = "#!/bin/sh\nmkdir -p /var/lib/dkms/demo/1.0/build\n[ ! -e /run/broken ] || {\n\
     cp /run/broken /var/lib/dkms/demo/1.0/build/make.log\n\
     echo 'Consult /var/lib/dkms/demo/1.0/build/make.log for more information.' >&2\nexit 10\n}\n";
const SOURCE: &str = "usr/src/demo-1.0/dkms.conf";

/// `dkms status` prints a file, and `dkms install` runs one.
const DKMS: &str = "#!/bin/sh\n[ \"$1\" = install ] || exec cat /run/dkms-status\n\
     echo \"$*\" >>/run/dkms-calls\n. /run/dkms-install\n";
const FAILS: &str = "echo 'ERROR: modpost: undefined!' >/var/lib/dkms/demo/1.0/build/make.log\n\
     echo 'Consult /var/lib/dkms/demo/1.0/build/make.log for more information.' >&2\nexit 10\n";

/// Builds a package with a module, and a kernel.
fn setup() -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    let files = [("postinst", POSTINST), (SOURCE, "PACKAGE_NAME=demo\n")];
    let bundle = Bundle::of(&[
        ("demo-dkms", "1.0", "", &files),
        (
            "linux-image-6.1.0-41-amd64",
            "6.1.155-1",
            "",
            &[("boot/vmlinuz-6.1.0-41-amd64", "41\n")],
        ),
    ]);
    tree.program("/usr/sbin/dkms", DKMS);
    tree.write("/proc/sys/kernel/osrelease", &format!("{RELEASE}\n"));
    Some((tree, bundle))
}

/// Writes the answer of `dkms status` for the module.
fn write_state(tree: &Tree, state: &str) {
    let line = match state {
        "added" => "demo/1.0: added\n".to_owned(),
        state => format!("demo/1.0, {RELEASE}, x86_64: {state}\n"),
    };
    tree.write("/run/dkms-status", &line);
}

#[test]
fn a_failed_build_is_told_by_the_compiler_and_finished_by_the_next_run() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let (machine, plan) = (tree.machine(), bundle.plan(&[("demo-dkms", "1.0")]));
    let log = "  CC nv.o\nnv-pci.c:237:9: error: too few arguments\nmake: *** Error 2\n";
    tree.write("/run/broken", log);
    let failed = failure(run_on(&machine, &plan, &cx()));
    assert_eq!(failed.code.as_str(), "packages_failed");
    assert!(
        failed
            .message
            .contains("nv-pci.c:237:9: error: too few arguments"),
        "{failed:?}"
    );
    assert!(!failed.message.contains("CC nv.o"), "{failed:?}");
    let database = || dpkg::Database::read(&machine).expect("a database");
    assert!(database().interrupted, "half-configured");

    tree.remove("/run/broken");
    write_state(&tree, "installed");
    run_on(&machine, &plan, &cx()).expect("the run after the mend");
    assert!(!database().interrupted);
    let found = database()
        .find("demo-dkms", "amd64")
        .map(|package| package.state);
    assert_eq!(found, Some(dpkg::State::Installed));
}

/// The compiler alone reports the full disk.
#[test]
fn a_build_on_a_full_disk_is_told_as_a_full_disk() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let log = "fatal error: error writing to /tmp/cc1.s: No space left on device\n";
    tree.write("/run/broken", log);
    let plan = bundle.plan(&[("demo-dkms", "1.0")]);
    let failed = failure(run_on(&tree.machine(), &plan, &cx()));
    assert_eq!(failed.code.as_str(), "disk_full", "{failed:?}");
}

#[test]
fn of_two_flavours_of_a_kernel_the_running_one_boots_next() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    for flavour in ["amd64", "cloud-amd64"] {
        tree.write(&format!("/boot/vmlinuz-6.1.0-40-{flavour}"), "");
    }
    write_state(&tree, "installed");
    let plan = bundle.plan(&[("demo-dkms", "1.0")]);
    run_on(&tree.machine(), &plan, &cx()).expect("the module is there");
}

#[test]
fn a_build_skipped_without_headers_fails_until_the_module_is_there() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let (machine, plan) = (tree.machine(), bundle.plan(&[("demo-dkms", "1.0")]));
    write_state(&tree, "added");
    let link = tree.path(&format!("/usr/lib/modules/{RELEASE}/build"));
    std::fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
    // The second run finds every package installed, and a link without its target.
    for dangles in [false, true] {
        if dangles {
            let headers = format!("/usr/src/linux-headers-{RELEASE}");
            symlink(headers, &link).expect("a link");
        }
        let failed = failure(run_on(&machine, &plan, &cx()));
        assert_eq!(
            (failed.code.as_str(), failed.retryable),
            ("packages_failed", false),
            "{failed:?}"
        );
        assert!(
            failed.message.contains("demo/1.0 is added")
                && failed.message.contains("add linux-headers-6.1.0-40-amd64"),
            "{failed:?}"
        );
    }
    assert_eq!(tree.text("/run/dkms-calls"), "", "dkms was not started");
    write_state(&tree, "installed");
    run_on(&machine, &plan, &cx()).expect("the module is there");
}

/// Writes the folder of the kernel's headers, and the script of `dkms install`.
fn allow_install(tree: &Tree, script: &str) {
    let headers = format!("/usr/lib/modules/{RELEASE}/build");
    std::fs::create_dir_all(tree.path(&headers)).expect("headers");
    tree.write("/run/dkms-install", script);
    tree.write("/run/dkms-calls", "");
}

#[test]
fn a_skipped_module_is_installed_by_converge_or_told_by_the_compiler() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let (machine, mut plan) = (tree.machine(), bundle.plan(&[("demo-dkms", "1.0")]));
    plan.files = vec![file("/etc/demo.conf", "x\n", "root", false)];
    plan.modules_load = vec!["demo".into()];
    let modprobe = "#!/bin/sh\necho \"$*\" >>/run/loaded\nmkdir -p /sys/module/demo\n";
    tree.program("/usr/sbin/modprobe", modprobe);
    write_state(&tree, "added");
    let call = "install demo/1.0 -k 6.1.0-40-amd64";
    let fails = |wanted: &str| {
        let failed = failure(run_on(&machine, &plan, &cx()));
        let kind = (failed.code.as_str(), failed.retryable);
        assert_eq!(kind, ("packages_failed", false), "{failed:?}");
        let state = format!("demo/1.0 is added for kernel {RELEASE}, not installed");
        let told = format!("{state}: `dkms {call}` ended with {wanted}");
        assert!(failed.message.contains(&told), "{failed:?}");
        assert_eq!(tree.text("/run/loaded"), "", "no module is loaded");
    };
    allow_install(&tree, FAILS);
    fails("exit status: 10: ERROR: modpost: undefined!");
    assert_eq!(tree.text("/etc/demo.conf"), "x\n", "it needs no module");
    // As a boot does: a due reboot alone keeps the module from being loaded.
    tree.remove("/run/muster/reboot.json");
    allow_install(&tree, "echo nothing to do\n");
    fails("exit status: 0: nothing to do");

    let line = format!("demo/1.0, {RELEASE}, x86_64: installed");
    allow_install(&tree, &format!("echo '{line}' >/run/dkms-status\n"));
    run_on(&machine, &plan, &cx()).expect("dkms installs the module");
    assert_eq!(tree.text("/run/dkms-calls"), format!("{call}\n"));
    assert_eq!(tree.text("/run/loaded"), "-- demo\n");
}

#[test]
fn a_kernel_excluded_by_the_module_needs_no_module() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    write_state(&tree, "added");
    allow_install(&tree, "exit 77\n");
    let plan = bundle.plan(&[("demo-dkms", "1.0")]);
    let report = run_on(&tree.machine(), &plan, &cx()).expect("no module is wanted");
    assert!(outcomes(&report, ItemOutcome::Changed).contains(&"package demo-dkms"));
    // As a boot does.
    tree.remove("/run/muster/reboot.json");
    assert!(
        run_on(&tree.machine(), &plan, &cx())
            .expect("again")
            .clean()
    );
}

#[test]
fn a_module_must_be_there_for_the_kernel_of_the_next_boot() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let plan = bundle.plan(&[
        ("demo-dkms", "1.0"),
        ("linux-image-6.1.0-41-amd64", "6.1.155-1"),
    ]);
    write_state(&tree, "installed");
    let failed = failure(run_on(&machine, &plan, &cx()));
    assert!(
        failed.message.contains("for kernel 6.1.0-41-amd64")
            && failed.message.contains("add linux-headers-6.1.0-41-amd64"),
        "{failed:?}"
    );
    let both = tree.text("/run/dkms-status").replace("-40-", "-41-");
    tree.write("/run/dkms-status", &both);
    run_on(&machine, &plan, &cx()).expect("the module is there");
}

#[test]
fn a_module_of_no_planned_package_is_left_alone() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    // Of a person, as by `dkms add`.
    tree.write("/var/lib/dkms/other/2.0/build/make.log", "");
    tree.write("/usr/src/other-2.0/dkms.conf", "");
    tree.write(
        "/run/dkms-status",
        &format!("other/2.0: added\ndemo/1.0, {RELEASE}, x86_64: installed\n"),
    );
    run_on(
        &tree.machine(),
        &bundle.plan(&[("demo-dkms", "1.0")]),
        &cx(),
    )
    .expect("the module of the plan is there");
}
