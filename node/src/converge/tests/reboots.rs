//! A driver or a kernel replaced while in use: new parts wait for the boot, and the run after the
//! boot does the rest.

use super::*;
use muster_core::wire::node::FailureCode;

const UNIT: &str = "nvidia-fabricmanager";
const SLOW: &str = "#!/bin/sh\n[ ! -e /run/slow ] || { touch /run/in-postinst; sleep 60; }\n";

/// Builds a driver as a package with a version, and replaces modprobe and modinfo by scripts
/// reading the version. A loaded module is a folder below /sys.
fn setup() -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    let (old, new) = (
        [("usr/share/nvidia/version", "570.1\n")],
        [("usr/share/nvidia/version", "580.1\n")],
    );
    let bundle = Bundle::of(&[
        ("nvidia-open", "570.1", "", &old),
        ("nvidia-open", "580.1", "", &new),
        (UNIT, "570.1", "Depends: nvidia-open (= 570.1)\n", &[]),
        (UNIT, "580.1", "Depends: nvidia-open (= 580.1)\n", &[]),
        (
            "linux-image-6.1.0-40-amd64",
            "6.1.153-1",
            "",
            &[("boot/vmlinuz-6.1.0-40-amd64", "40\n")],
        ),
        (
            "linux-image-6.1.0-41-amd64",
            "6.1.155-1",
            "",
            &[("boot/vmlinuz-6.1.0-41-amd64", "41\n")],
        ),
        ("mlnx-ofed-kernel-dkms", "24.10", "", &[("postinst", SLOW)]),
    ]);
    tree.program(
        "/usr/sbin/modinfo",
        "#!/bin/sh\n[ $2 = version ] && cat /usr/share/nvidia/version\n",
    );
    let modprobe = "#!/bin/sh\n[ $1 != --show-depends ] || { echo insmod /lib/modules/6.1/nvidia.ko; exit; }\n\
                    [ ! -e /run/old-kernel ] || exit 1\nmkdir -p /sys/module/$2\ncp /usr/share/nvidia/version /sys/module/$2/version\n";
    tree.program("/usr/sbin/modprobe", modprobe);
    Some((tree, bundle))
}

fn driver(bundle: &Bundle, version: &str) -> ConvergePlan {
    let mut plan = bundle.plan(&[("nvidia-open", version), (UNIT, version)]);
    plan.modules_load = vec!["nvidia".into()];
    plan.services = vec![ServiceItem {
        name: UNIT.into(),
        enabled: true,
        running: true,
        restart_on: vec![],
    }];
    plan
}

/// Simulates a boot: memory is lost, the disk stays.
fn boot(tree: &Tree) {
    for path in [
        "/run/muster/reboot.json",
        "/sys/module/nvidia/version",
        "/var/lib/units/nvidia-fabricmanager.service.active",
    ] {
        let _ = std::fs::remove_file(tree.path(path));
    }
    let _ = std::fs::remove_dir(tree.path("/sys/module/nvidia"));
}

#[test]
fn a_changed_driver_waits_for_the_boot_and_is_loaded_after_it() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let first = run_on(&machine, &driver(&bundle, "570.1"), &cx()).expect("the first driver");
    assert_eq!(
        first.reboot_for,
        Vec::<String>::new(),
        "no other driver was loaded"
    );

    // Upgrade and rollback.
    for version in ["580.1", "570.1"] {
        let mut plan = driver(&bundle, version);
        plan.dry_run = true;
        let forecast = run_on(&machine, &plan, &cx()).expect("a look");
        assert_eq!(
            forecast.reboot_for,
            ["package nvidia-open"],
            "a plan says it before"
        );
        plan.dry_run = false;
        let units = tree.text("/var/log/units").len();
        let moved = run_on(&machine, &plan, &cx()).expect("another driver");
        assert_eq!(
            moved.reboot_for,
            ["reboot for package nvidia-open", "loaded module nvidia"]
        );
        let later = &tree.text("/var/log/units")[units..];
        assert!(
            !later.contains("start"),
            "nothing was started against the old module: {later}"
        );
        // A kill may lose the note; the loaded module still shows the difference.
        tree.remove("/run/muster/reboot.json");
        let again = run_on(&machine, &plan, &cx()).expect("once more");
        assert_eq!(again.reboot_for, ["loaded module nvidia"]);

        boot(&tree);
        let booted = run_on(&machine, &plan, &cx()).expect("after the boot");
        assert_eq!(booted.reboot_for, Vec::<String>::new());
        let changed = outcomes(&booted, ItemOutcome::Changed);
        assert_eq!(changed, ["module nvidia", "service nvidia-fabricmanager"]);
        assert_eq!(
            tree.text("/sys/module/nvidia/version"),
            format!("{version}\n")
        );
        assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());
    }
}

/// Returns a tree with a loaded module of version 550.1, without a bundle to install.
fn loaded(module: &str) -> Option<(Tree, ConvergePlan)> {
    let tree = Tree::unpack()?;
    tree.write(&format!("/sys/module/{module}/version"), "550.1\n");
    let mut plan = Bundle::of(&[]).plan(&[]);
    plan.dry_run = true;
    Some((tree, plan))
}

/// As modprobe and modinfo answer for Debian's driver: only the file of another name exists.
const OF_DEBIAN: [(&str, &str); 2] = [
    (
        "/usr/sbin/modprobe",
        "#!/bin/sh\ncase \"$*\" in\n\
         '--show-depends -- nvidia') echo 'install modprobe -i nvidia-current $CMDLINE_OPTS ' ;;\n\
         '--show-depends --ignore-install -- nvidia-current') cat /run/insertion ;;\n\
         *) exit 1 ;;\nesac\n",
    ),
    (
        "/usr/sbin/modinfo",
        "#!/bin/sh\n[ \"$*\" = '-F version -- /lib/modules/6.12/nvidia-current.ko.xz' ] && cat /run/version\n",
    ),
];
const INSERTION: &str = "insmod /lib/modules/6.12/nvidia-current.ko.xz NVreg_X=0 \n";

#[test]
fn a_driver_is_compared_with_the_file_that_modprobe_would_insert() {
    let Some((tree, plan)) = loaded("nvidia") else {
        return;
    };
    for (path, text) in OF_DEBIAN {
        tree.program(path, text);
    }
    tree.write("/run/insertion", INSERTION);
    tree.write("/run/version", "580.1\n");
    let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
    assert_eq!(report.reboot_for, ["loaded module nvidia"]);
    let item = report
        .items
        .iter()
        .find(|item| item.item == "loaded module nvidia")
        .expect("the module");
    assert_eq!(
        (item.before.as_deref(), item.after.as_deref()),
        (Some("550.1"), Some("580.1"))
    );
    tree.write("/run/version", "550.1\n");
    let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
    assert_eq!(report.reboot_for, Vec::<String>::new());
}

#[test]
fn a_loaded_driver_without_a_file_is_unknown_and_asks_for_a_boot() {
    let Some((tree, plan)) = loaded("nvidia") else {
        return;
    };
    let missing = "#!/bin/sh\necho 'modprobe: FATAL: Module nvidia not found' >&2\nexit 1\n";
    tree.program("/usr/sbin/modprobe", missing);
    let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
    assert_eq!(report.reboot_for, ["loaded module nvidia"]);
    let reason = report.items.iter().find_map(|item| {
        item.before
            .as_deref()
            .filter(|text| text.contains("550.1; "))
    });
    assert!(
        reason.is_some_and(|text| text.contains("Module nvidia not found")),
        "{report:#?}"
    );
    // A file that modinfo cannot read.
    for (path, text) in OF_DEBIAN {
        tree.program(path, text);
    }
    tree.write("/run/insertion", INSERTION);
    let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
    assert_eq!(report.reboot_for, ["loaded module nvidia"]);
    // A module of the kernel itself has no file.
    tree.write("/run/insertion", "builtin nvidia_current\n");
    let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
    assert_eq!(report.reboot_for, Vec::<String>::new());
}

#[test]
fn a_loaded_module_of_the_stack_without_a_file_waits_for_no_boot() {
    let Some((tree, mut plan)) = loaded("ib_umad") else {
        return;
    };
    plan.modules_load = vec!["ib_umad".into()];
    tree.program("/usr/sbin/modprobe", "#!/bin/sh\nexit 1\n");
    let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
    assert_eq!(report.reboot_for, Vec::<String>::new());
    tree.program(
        "/usr/sbin/modprobe",
        "#!/bin/sh\necho insmod /lib/modules/6.12/ib_umad.ko\n",
    );
    tree.program("/usr/sbin/modinfo", "#!/bin/sh\necho 580.1\n");
    let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
    assert_eq!(report.reboot_for, ["loaded module ib_umad"]);
}

#[test]
fn a_program_without_an_answer_is_a_failure_and_no_difference() {
    let Some((tree, plan)) = loaded("nvidia") else {
        return;
    };
    tree.program("/usr/sbin/modprobe", "#!/bin/sh\nsleep 60\n");
    let cx = JobContext::foreground(Duration::ZERO);
    let failed = failure(run_on(&tree.machine(), &plan, &cx));
    assert_eq!(failed.code, FailureCode::ToolTimeout, "{failed:?}");

    // modprobe answers, and modinfo does not. On a slow machine neither answers in time.
    let modprobe = "#!/bin/sh\necho insmod /lib/modules/6.12/nvidia.ko\n";
    tree.program("/usr/sbin/modprobe", modprobe);
    tree.program("/usr/sbin/modinfo", "#!/bin/sh\nsleep 60\n");
    let cx = JobContext::foreground(Duration::from_secs(2));
    let failed = failure(run_on(&tree.machine(), &plan, &cx));
    assert_eq!(failed.code, FailureCode::ToolTimeout, "{failed:?}");
}

#[test]
fn a_value_of_a_loaded_driver_is_compared_although_the_file_has_none() {
    let Some((tree, plan)) = loaded("nvidia") else {
        return;
    };
    tree.write("/sys/module/nvidia/srcversion", "AAAA\n");
    let modprobe = "#!/bin/sh\necho insmod /lib/modules/6.12/nvidia.ko\n";
    tree.program("/usr/sbin/modprobe", modprobe);
    let modinfo = "#!/bin/sh\n[ ! -e /run/$2 ] || cat /run/$2\n";
    tree.program("/usr/sbin/modinfo", modinfo);
    let difference = || {
        let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
        let mut items = report.items.into_iter();
        let item = items.find(|item| item.item == "loaded module nvidia");
        item.map(|item| (item.before, item.after))
    };
    let pair = |before: &str, after: &str| Some((Some(before.to_owned()), Some(after.to_owned())));
    tree.write("/run/srcversion", "BBBB\n");
    assert_eq!(difference(), pair("550.1", "none"));
    tree.write("/run/version", "550.1\n");
    assert_eq!(difference(), pair("AAAA", "BBBB"));
    // A driver without a version, loaded and on disk.
    tree.remove("/sys/module/nvidia/version");
    tree.remove("/run/version");
    assert_eq!(difference(), pair("AAAA", "BBBB"));
    tree.write("/run/srcversion", "AAAA\n");
    assert_eq!(difference(), None);
}

#[test]
fn a_driver_of_an_unknown_install_command_is_compared_by_its_own_name() {
    let Some((tree, plan)) = loaded("nvidia") else {
        return;
    };
    let modprobe = "#!/bin/sh\necho install /bin/true\n";
    tree.program("/usr/sbin/modprobe", modprobe);
    let reboot_for = || {
        let report = run_on(&tree.machine(), &plan, &cx()).expect("a look");
        report.reboot_for
    };
    let none = Vec::<String>::new();
    assert_eq!(reboot_for(), none, "without an answer no boot is asked for");
    let modinfo = "#!/bin/sh\ncase \"$*\" in\n\
                   '-F filename -- nvidia') echo /lib/modules/6.12/nvidia.ko ;;\n\
                   '-F version -- /lib/modules/6.12/nvidia.ko') cat /run/version ;;\n\
                   *) exit 1 ;;\nesac\n";
    tree.program("/usr/sbin/modinfo", modinfo);
    tree.write("/run/version", "580.1\n");
    assert_eq!(reboot_for(), ["loaded module nvidia"]);
    tree.write("/run/version", "550.1\n");
    assert_eq!(reboot_for(), none);
}

#[test]
fn modules_and_services_of_another_kernel_wait_for_it() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let mut plan = driver(&bundle, "570.1");
    plan.packages.extend(
        bundle
            .plan(&[("linux-image-6.1.0-40-amd64", "6.1.153-1")])
            .packages,
    );
    plan.sysctl.insert("dev.nvidia.example".into(), "1".into());
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
    // As modprobe fails for modules built for another kernel.
    tree.write("/run/old-kernel", "");
    let report = run_on(&machine, &plan, &cx()).expect("the run succeeds");
    for item in [
        "running kernel",
        "module nvidia",
        "sysctl dev.nvidia.example",
        "service nvidia-fabricmanager",
    ] {
        assert!(
            report.reboot_for.iter().any(|waits| waits == item),
            "{item}: {report:#?}"
        );
    }
    assert_eq!(
        tree.text("/var/log/units"),
        "daemon-reload\nenable nvidia-fabricmanager.service\n"
    );

    boot(&tree);
    tree.remove("/run/old-kernel");
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    tree.write("/proc/sys/dev/nvidia/example", "0\n");
    let booted = run_on(&machine, &plan, &cx()).expect("after the boot");
    assert_eq!(booted.reboot_for, Vec::<String>::new());
    assert!(
        outcomes(&booted, ItemOutcome::Changed).contains(&"service nvidia-fabricmanager"),
        "{booted:#?}"
    );
}

#[test]
fn a_loaded_blacklisted_module_delays_the_replacing_driver() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let mut plan = driver(&bundle, "570.1");
    plan.modules_blacklist = vec!["nouveau".into()];
    tree.write("/sys/module/nouveau/refcnt", "1\n");
    let report = run_on(&machine, &plan, &cx()).expect("the run succeeds");
    let waits = [
        "blacklisted module nouveau",
        "module nvidia",
        "service nvidia-fabricmanager",
    ];
    assert_eq!(report.reboot_for, waits);
}

#[test]
fn modprobe_options_reach_every_initramfs_and_loaded_modules_by_a_boot() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    tree.program(
        "/usr/sbin/update-initramfs",
        "#!/bin/sh\necho \"$@\" >>/var/log/initramfs\n",
    );
    tree.program("/usr/bin/lsinitramfs", "#!/bin/sh\ncat $1\n");
    // Only the older kernel, not running, holds nouveau; the third kernel has no modules left.
    for (release, holds) in [
        (
            "6.1.0-9-amd64",
            "usr/lib/modules/6.1.0-9-amd64/kernel/nouveau.ko\n",
        ),
        ("6.1.0-40-amd64", ""),
    ] {
        tree.write(&format!("/boot/initrd.img-{release}"), holds);
        std::fs::create_dir_all(tree.path(&format!("/usr/lib/modules/{release}")))
            .expect("a folder");
    }
    tree.write("/boot/initrd.img-5.10.0-1-amd64", "");
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    let mut plan = driver(&bundle, "570.1");
    plan.modules_blacklist = vec!["nouveau".into()];
    run_on(&machine, &plan, &cx()).expect("the start");
    assert_eq!(tree.text("/var/log/initramfs"), "-u -k 6.1.0-9-amd64\n");

    let path = "/etc/modprobe.d/nvidia.conf";
    plan.files = vec![file(
        path,
        "options nvidia NVreg_EnableGpuFirmware=1\n",
        "root",
        false,
    )];
    let look = run_on(
        &machine,
        &ConvergePlan {
            dry_run: true,
            ..plan.clone()
        },
        &cx(),
    )
    .expect("a look");
    assert_eq!(
        look.reboot_for,
        [format!("file {path}")],
        "the module is loaded with the former options"
    );
    tree.write("/var/log/initramfs", "");
    tree.write(
        "/boot/initrd.img-6.1.0-40-amd64",
        "usr/lib/modules/6.1.0-40-amd64/updates/dkms/nvidia.ko.xz\n",
    );
    let told = run_on(&machine, &plan, &cx()).expect("options");
    assert_eq!(told.reboot_for, [format!("reboot for file {path}")]);
    assert_eq!(
        tree.text("/var/log/initramfs"),
        "-u -k 6.1.0-40-amd64\n",
        "where the module is"
    );
    // An initramfs with the former options is rewritten too, even for a file without options now.
    tree.write("/var/log/initramfs", "");
    tree.write(
        "/boot/initrd.img-6.1.0-9-amd64",
        "etc/modprobe.d/nvidia.conf\n",
    );
    plan.files = vec![file(path, "# none\n", "root", false)];
    run_on(&machine, &plan, &cx()).expect("no options");
    assert_eq!(tree.text("/var/log/initramfs"), "-u -k 6.1.0-9-amd64\n");
    boot(&tree);
    assert_eq!(
        run_on(&machine, &plan, &cx())
            .expect("after the boot")
            .reboot_for,
        Vec::<String>::new()
    );
}

#[test]
fn a_module_that_was_configured_after_a_power_cut_asks_for_a_boot() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let plan = bundle.plan(&[("mlnx-ofed-kernel-dkms", "24.10")]);
    tree.write("/run/slow", "");
    let ended = std::thread::scope(|scope| {
        let converging = scope.spawn(|| run_on(&machine, &plan, &cx()));
        tree.wait_for("/run/in-postinst");
        assert!(tree.kill_everything() > 0);
        converging.join().expect("no panic")
    });
    failure(ended);
    tree.remove("/run/slow");
    boot(&tree);
    let mended = run_on(&machine, &plan, &cx()).expect("the run after the cut");
    assert_eq!(
        mended.reboot_for,
        ["reboot for package mlnx-ofed-kernel-dkms"]
    );
    boot(&tree);
    assert!(
        run_on(&machine, &plan, &cx())
            .expect("after the boot")
            .clean()
    );
}

#[test]
fn a_former_kernel_is_booted_although_a_newer_one_is_there() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let (menu, runs) = (
        "/etc/default/grub.d/50-muster.cfg",
        "/proc/sys/kernel/osrelease",
    );
    let item = format!("file {menu}");
    let kernel = |name, version| {
        let mut plan = bundle.plan(&[(name, version)]);
        plan.kernel_args = vec!["quiet".into()];
        plan
    };
    let (old, new) = (
        kernel("linux-image-6.1.0-40-amd64", "6.1.153-1"),
        kernel("linux-image-6.1.0-41-amd64", "6.1.155-1"),
    );
    tree.write(runs, "6.1.0-41-amd64\n");
    run_on(&machine, &new, &cx()).expect("the newer kernel");
    let by_itself = tree.text(menu);
    assert!(
        !by_itself.contains("GRUB_DEFAULT"),
        "the newest boots by itself"
    );
    boot(&tree);

    let look = run_on(
        &machine,
        &ConvergePlan {
            dry_run: true,
            ..old.clone()
        },
        &cx(),
    )
    .expect("a look");
    assert!(
        outcomes(&look, ItemOutcome::Differs).contains(&item.as_str()),
        "{look:#?}"
    );
    tree.write("/var/log/grub", "");
    let report = run_on(&machine, &old, &cx()).expect("the rollback");
    assert_eq!(
        report.reboot_for,
        [
            "running kernel",
            "reboot for package linux-image-6.1.0-40-amd64"
        ]
    );
    assert_eq!(tree.text("/var/log/grub"), "grub-mkconfig\n");
    // As read by grub-mkconfig, with the entry names of 10_linux.
    let read =
        format!("GRUB_DEVICE_UUID=0b5e-11; . {menu}; echo $GRUB_DEFAULT $GRUB_DISABLE_SUBMENU");
    assert_eq!(
        tree.output(&["sh", "-c", &read]),
        "gnulinux-6.1.0-40-amd64-advanced-0b5e-11 true\n"
    );
    assert!(
        tree.text(menu).starts_with(&by_itself),
        "the arguments stay"
    );
    let again = run_on(&machine, &old, &cx()).expect("and again");
    assert_eq!(outcomes(&again, ItemOutcome::Changed), Vec::<&str>::new());

    boot(&tree);
    tree.write(runs, "6.1.0-40-amd64\n");
    let booted = run_on(&machine, &old, &cx()).expect("after the boot");
    assert_eq!(booted.reboot_for, Vec::<String>::new());
    assert_eq!(
        outcomes(&booted, ItemOutcome::Changed),
        [item.as_str(), "package linux-image-6.1.0-41-amd64"]
    );
    assert_eq!(
        (tree.text(menu), tree.text("/var/log/grub")),
        (by_itself, "grub-mkconfig\ngrub-mkconfig\n".into())
    );
    assert!(run_on(&machine, &old, &cx()).expect("and again").clean());
}

#[test]
fn a_boot_menu_that_was_cut_in_writing_is_still_the_former_one() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let (machine, menu) = (tree.machine(), "/boot/grub/grub.cfg");
    let mut plan = bundle.plan(&[]);
    plan.kernel_args = vec!["iommu=pt".into()];
    tree.write(menu, "former\n");
    tree.write("/run/slow-grub", "");
    let ended = std::thread::scope(|scope| {
        let converging = scope.spawn(|| run_on(&machine, &plan, &cx()));
        tree.wait_for("/run/in-grub");
        assert!(tree.kill_everything() > 0);
        converging.join().expect("no panic")
    });
    assert_eq!(failure(ended).code, FailureCode::GrubFailed);
    assert_eq!(tree.text(menu), "former\n");
    tree.remove("/run/slow-grub");
    run_on(&machine, &plan, &cx()).expect("the run after the cut");
    assert_eq!(tree.text(menu), "menu\n");
}

#[test]
fn boot_files_missing_a_setting_are_rewritten_once_before_the_boot() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let mut plan = bundle.plan(&[]);
    plan.kernel_args = vec!["iommu=pt".into()];
    plan.modules_blacklist = vec!["nouveau".into()];
    run_on(&machine, &plan, &cx()).expect("configured");
    // The node booted with boot files restored from a copy.
    boot(&tree);
    tree.write("/var/log/grub", "");
    tree.write("/sys/module/nouveau/refcnt", "1\n");
    tree.program(
        "/usr/sbin/update-initramfs",
        "#!/bin/sh\necho \"$@\" >>/var/log/initramfs\n",
    );
    tree.program(
        "/usr/bin/lsinitramfs",
        "#!/bin/sh\necho usr/lib/modules/6.1.0-9-amd64/kernel/nouveau.ko\n",
    );
    tree.write("/boot/initrd.img-6.1.0-9-amd64", "");
    std::fs::create_dir_all(tree.path("/usr/lib/modules/6.1.0-9-amd64")).expect("a folder");
    for _ in 0..2 {
        let report = run_on(&machine, &plan, &cx()).expect("it waits for a boot");
        assert_eq!(
            report.reboot_for,
            ["blacklisted module nouveau", "kernel argument iommu=pt"]
        );
        assert_eq!(tree.text("/var/log/grub"), "grub-mkconfig\n");
        assert_eq!(tree.text("/var/log/initramfs"), "-u -k 6.1.0-9-amd64\n");
    }
    std::fs::remove_dir_all(tree.path("/sys/module/nouveau")).expect("a folder");
    tree.write("/proc/cmdline", "quiet iommu=pt\n");
    boot(&tree);
    assert!(
        run_on(&machine, &plan, &cx())
            .expect("after the boot")
            .clean()
    );
}
