//! Changes of the driver by hand, found by a look and repaired by a converge.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

const LIBRARY: &str = "/usr/lib/driver/libcuda.so.550";
const MODULE: &str = "/usr/lib/driver/nvidia-current.ko";
/// A file of the package with another content in the plan.
const SETTINGS: &str = "/usr/lib/driver/settings";
const VERSION: &str = "550.1-2";

#[test]
fn changed_and_removed_files_of_the_driver_are_found_and_repaired() {
    let Some(tree) = Tree::unpack() else {
        return;
    };
    let bundle = Bundle::of(&[
        (
            "libcuda1",
            VERSION,
            "",
            &[
                ("usr/lib/driver/libcuda.so.550", "library\n"),
                ("usr/lib/driver/settings", "of the package\n"),
                ("usr/share/doc/libcuda1/copyright", "text\n"),
            ],
        ),
        (
            "linux-modules-nvidia-550-6.1.0-9-amd64",
            VERSION,
            "",
            &[("usr/lib/driver/nvidia-current.ko", "module\n")],
        ),
        ("tool", "1.0", "", &[("usr/bin/tool", "tool\n")]),
    ]);
    let (machine, modules) = (tree.machine(), "linux-modules-nvidia-550-6.1.0-9-amd64");
    let mut plan = bundle.plan(&[("libcuda1", VERSION), (modules, VERSION), ("tool", "1.0")]);
    plan.files = vec![file(SETTINGS, "of the plan\n", "root", false)];
    run_on(&machine, &plan, &cx()).expect("the driver");
    tree.remove("/run/muster/reboot.json");
    assert!(run_on(&machine, &plan, &cx()).expect("a look").clean());

    tree.write(LIBRARY, "changed\n");
    tree.remove(MODULE);
    tree.remove("/usr/share/doc/libcuda1/copyright");
    tree.write("/usr/bin/tool", "of a person\n");
    let look = ConvergePlan {
        dry_run: true,
        ..plan.clone()
    };
    let drift = run_on(&machine, &look, &cx()).expect("a look");
    let modules_item = format!("package {modules}");
    let items = ["package libcuda1", modules_item.as_str()];
    assert_eq!(outcomes(&drift, ItemOutcome::Differs), items);
    let is_named = |path: &str| {
        let mut items = drift.items.iter();
        items.any(|item| item.before.as_ref().is_some_and(|was| was.contains(path)))
    };
    assert!(is_named(LIBRARY) && is_named(MODULE), "{drift:#?}");
    assert_eq!(tree.text(LIBRARY), "changed\n", "a look repairs nothing");

    let report = run_on(&machine, &plan, &cx()).expect("the repair");
    assert_eq!(outcomes(&report, ItemOutcome::Changed), items);
    assert_eq!(tree.text(LIBRARY), "library\n");
    assert_eq!(tree.text(MODULE), "module\n");
    assert_eq!(tree.text(SETTINGS), "of the plan\n");
    assert_eq!(
        tree.text("/usr/bin/tool"),
        "of a person\n",
        "other packages are not read"
    );
    assert!(
        report
            .reboot_for
            .iter()
            .any(|item| item.contains("libcuda1")),
        "{report:#?}"
    );
    tree.remove("/run/muster/reboot.json");
    assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());
}

/// Makes a thing at a path.
type Make = fn(&Path);

#[test]
fn a_thing_in_the_place_of_a_file_is_found_and_repaired() {
    let Some(tree) = Tree::unpack() else {
        return;
    };
    let files = [
        ("usr/lib/driver/libcuda.so.550", "library\n"),
        ("usr/lib/driver/libcuda.conf", "text\n"),
    ];
    let bundle = Bundle::of(&[("libcuda1", VERSION, "", &files)]);
    let (machine, plan) = (tree.machine(), bundle.plan(&[("libcuda1", VERSION)]));
    let look = ConvergePlan {
        dry_run: true,
        ..plan.clone()
    };
    // As a boot does.
    let boot = || {
        let _ = std::fs::remove_file(tree.path("/run/muster/reboot.json"));
    };
    run_on(&machine, &plan, &cx()).expect("the driver");
    let place = tree.path(LIBRARY);
    let kinds: [(&str, Make); 4] = [
        ("a folder", |path| {
            std::fs::create_dir(path).expect("a folder");
        }),
        ("a link", |path| {
            symlink("libcuda.conf", path).expect("a link");
        }),
        ("a FIFO", |path| {
            mkfifo(path, Mode::S_IRWXU).expect("a FIFO");
        }),
        ("a socket", |path| {
            UnixListener::bind(path).expect("a socket");
        }),
    ];
    for (kind, make) in kinds {
        tree.remove(LIBRARY);
        make(&place);
        boot();
        let drift = run_on(&machine, &look, &cx()).expect("a look");
        let item = ["package libcuda1"];
        assert_eq!(outcomes(&drift, ItemOutcome::Differs), item, "{kind}");
        let words = format!("{kind} is in the place of {LIBRARY}");
        let mut items = drift.items.iter();
        let is_told =
            items.any(|item| item.before.as_ref().is_some_and(|was| was.contains(&words)));
        assert!(is_told, "{words}: {drift:#?}");
        let report = run_on(&machine, &plan, &cx()).expect("the repair");
        assert_eq!(outcomes(&report, ItemOutcome::Changed), item, "{kind}");
        let found = place.symlink_metadata().expect("the library");
        assert!(found.is_file(), "{kind}");
        assert_eq!(tree.text(LIBRARY), "library\n");
    }
    boot();
    assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());
}

#[test]
fn a_folder_with_content_in_the_place_of_a_file_is_kept() {
    let Some(tree) = Tree::unpack() else {
        return;
    };
    let files = [("usr/lib/driver/libcuda.so.550", "library\n")];
    let bundle = Bundle::of(&[("libcuda1", VERSION, "", &files)]);
    let (machine, plan) = (tree.machine(), bundle.plan(&[("libcuda1", VERSION)]));
    run_on(&machine, &plan, &cx()).expect("the driver");
    tree.remove(LIBRARY);
    let notes = format!("{LIBRARY}/notes");
    tree.write(&notes, "of a person\n");
    let failed = failure(run_on(&machine, &plan, &cx()));
    assert_eq!(failed.code.as_str(), "packages_failed", "{failed:?}");
    for words in [
        format!("a folder is in the place of {LIBRARY}, a file of libcuda1"),
        "move the content to another path".to_owned(),
    ] {
        assert!(failed.message.contains(&words), "{failed:?}");
    }
    assert_eq!(tree.text(&notes), "of a person\n");
    std::fs::rename(tree.path(LIBRARY), tree.path("/root/library")).expect("moved");
    run_on(&machine, &plan, &cx()).expect("the repair");
    assert_eq!(tree.text(LIBRARY), "library\n");
    assert_eq!(tree.text("/root/library/notes"), "of a person\n");
}

#[test]
fn another_alternative_of_the_driver_is_found_and_set_back() {
    let Some(tree) = Tree::unpack() else {
        return;
    };
    let files = [("usr/lib/driver/libcuda.so.550", "library\n")];
    let bundle = Bundle::of(&[("libcuda1", VERSION, "", &files), ("tool", "1.0", "", &[])]);
    let machine = tree.machine();
    for (folder, priority) in [("nvidia", "100"), ("mesa-diverted", "5")] {
        let path = format!("/usr/lib/{folder}");
        tree.write(&format!("{path}/file"), "");
        let argv = ["update-alternatives", "--install", "/usr/lib/glx", "glx"];
        tree.output(&[&argv[..], &[path.as_str(), priority]].concat());
    }
    let switch = [
        "update-alternatives",
        "--set",
        "glx",
        "/usr/lib/mesa-diverted",
    ];
    let present = || std::fs::read_link(tree.path("/etc/alternatives/glx")).expect("a link");
    tree.output(&switch);
    run_on(&machine, &bundle.plan(&[("tool", "1.0")]), &cx()).expect("no driver");
    assert!(
        present().ends_with("mesa-diverted"),
        "not a part of the stack"
    );

    let plan = bundle.plan(&[("libcuda1", VERSION)]);
    run_on(&machine, &plan, &cx()).expect("the driver");
    assert!(present().ends_with("nvidia"), "{:?}", present());
    tree.output(&switch);
    let look = ConvergePlan {
        dry_run: true,
        ..plan.clone()
    };
    let drift = run_on(&machine, &look, &cx()).expect("a look");
    assert_eq!(outcomes(&drift, ItemOutcome::Differs), ["alternative glx"]);
    run_on(&machine, &plan, &cx()).expect("set back");
    assert!(present().ends_with("nvidia"), "{:?}", present());
    assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());
}
