//! A tuple of five packages with exact dependencies, by real apt and dpkg, against every change
//! from outside: a foreign repository with newer versions, unattended-upgrades, a power cut, a
//! foreign dpkg, a full disk, a person's hands.

use std::process::{Child, Command, Stdio};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::bundle::TUPLE;
use super::*;
use muster_core::wire::node::FailureCode;

fn setup(versions: &[&str]) -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    Some((tree, Bundle::tuple(versions)))
}

fn tuple(bundle: &Bundle, version: &str) -> ConvergePlan {
    let wanted: Vec<(&str, &str)> = TUPLE.iter().map(|(name, _)| (*name, version)).collect();
    bundle.plan(&wanted)
}

/// Returns the versions of the five packages in dpkg's database; an unfinished package shows its
/// state instead.
fn versions(machine: &Machine) -> Vec<String> {
    let database = dpkg::Database::read(machine).expect("a database");
    let version = |name: &str| match database.find(name, "amd64") {
        Some(found) if found.state == dpkg::State::Installed => found.version.clone(),
        Some(found) => format!("{:?}", found.state),
        None => "absent".into(),
    };
    TUPLE.iter().map(|(name, _)| version(name)).collect()
}

fn whole(version: &str) -> Vec<String> {
    vec![version.to_owned(); TUPLE.len()]
}

/// Adds a foreign repository with newer versions to the image's own apt.
fn add_foreign(tree: &Tree, foreign: &Bundle) {
    tree.write("/etc/apt/sources.list.d/foreign.list", &foreign.source());
    let said = tree.output(&["apt-get", "update"]);
    let offered = tree.output(&["apt-cache", "madison", "drv-meta"]);
    assert!(
        offered.contains("3.0"),
        "the foreign version is on offer, or nothing was tried: {said}{offered}"
    );
}

#[test]
fn five_packages_go_up_and_back_as_one_beside_a_newer_repository() {
    let Some((tree, bundle)) = setup(&["1.0", "2.0"]) else {
        return;
    };
    let (machine, foreign) = (tree.machine(), Bundle::tuple(&["3.0"]));
    run_on(&machine, &tuple(&bundle, "1.0"), &cx()).expect("installed");
    assert_eq!(versions(&machine), whole("1.0"));
    add_foreign(&tree, &foreign);
    for version in ["2.0", "1.0"] {
        let report = run_on(&machine, &tuple(&bundle, version), &cx()).expect("moved");
        let moved = outcomes(&report, ItemOutcome::Changed)
            .iter()
            .filter(|item| item.starts_with("package "))
            .count();
        assert_eq!((moved, versions(&machine)), (5, whole(version)));
        // Commands of a person, a cron job or a configuration tool.
        let apt = |arguments: &[&str]| {
            let argv: Vec<&str> = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y"]
                .iter()
                .chain(arguments)
                .copied()
                .collect();
            tree.output(&argv)
        };
        for moving in [
            &["upgrade"][..],
            &["dist-upgrade"],
            &["install", "drv-fabric"],
            &["install", "--only-upgrade", "drv-meta"],
        ] {
            let said = apt(moving);
            assert_eq!(versions(&machine), whole(version), "{moving:?}: {said}");
        }
    }
}

#[test]
fn unattended_upgrades_moves_no_pin() {
    let Some(tree) = Tree::unpack_with("unattended-upgrades") else {
        return;
    };
    let (machine, bundle, foreign) = (
        tree.machine(),
        Bundle::tuple(&["1.0"]),
        Bundle::tuple(&["3.0"]),
    );
    let unpinned = bundle.plan(&[("drv-kmod", "1.0")]);
    run_on(&machine, &unpinned, &cx()).expect("installed");
    add_foreign(&tree, &foreign);
    // Allows every newer version from every source.
    tree.write(
        "/etc/apt/apt.conf.d/99all",
        "Unattended-Upgrade::Origins-Pattern { \"site=*\"; };\nUnattended-Upgrade::Origins-Pattern { \"origin=*\"; };\n",
    );
    let upgrade = || tree.output(&["unattended-upgrade", "-v", "--no-minimal-upgrade-steps"]);
    let version = || {
        dpkg::Database::read(&machine)
            .expect("a database")
            .find("drv-kmod", "amd64")
            .map(|found| found.version.clone())
    };
    let said = upgrade();
    assert_eq!(version().as_deref(), Some("1.0"), "{said}");
    // Without the pins the same program upgrades the package.
    tree.remove("/etc/apt/preferences.d/muster");
    let said = upgrade();
    assert_eq!(
        version().as_deref(),
        Some("3.0"),
        "what is tried must be able to happen: {said}"
    );
    // A stack listing the program as absent removes the program.
    let mut without = bundle.plan(&[("drv-kmod", "1.0")]);
    without.absent = vec!["unattended-upgrades".into()];
    run_on(&machine, &without, &cx()).expect("pinned again");
    assert_eq!(version().as_deref(), Some("1.0"), "and the pin is back");
    assert!(!machine.path("/usr/bin/unattended-upgrade").exists());
}

#[test]
fn a_tuple_cut_in_the_middle_is_whole_after_the_next_run() {
    let Some((tree, bundle)) = setup(&["1.0", "2.0"]) else {
        return;
    };
    let machine = tree.machine();
    run_on(&machine, &tuple(&bundle, "1.0"), &cx()).expect("installed");
    // apt unpacks the top of a tuple first, so the second cut hits a package not reached by the
    // first cut.
    for package in ["drv-fabric", "drv-kmod"] {
        cut_in(&tree, &tuple(&bundle, "2.0"), package);
    }
    assert_ne!(
        versions(&machine),
        whole("1.0"),
        "the cut left something half done"
    );
    assert_ne!(
        versions(&machine),
        whole("2.0"),
        "the cut left something half done"
    );
    run_on(&machine, &tuple(&bundle, "2.0"), &cx()).expect("the run after the cuts");
    assert_eq!(versions(&machine), whole("2.0"));
    assert!(
        run_on(&machine, &tuple(&bundle, "2.0"), &cx())
            .expect("and again")
            .clean()
    );
    // A half-finished upgrade can also be rolled back.
    run_on(&machine, &tuple(&bundle, "1.0"), &cx()).expect("rolled back");
    assert_eq!(versions(&machine), whole("1.0"));
}

/// Simulates a power cut while the package's preinst runs.
fn cut_in(tree: &Tree, plan: &ConvergePlan, package: &str) {
    tree.write(&format!("/run/{package}"), "");
    let (inside, ended) = std::thread::scope(|scope| {
        let machine = tree.machine();
        let converging = scope.spawn(move || run_on(&machine, plan, &cx()));
        while !converging.is_finished() && !tree.path(&format!("/run/in-{package}")).exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        (tree.kill_everything(), converging.join().expect("no panic"))
    });
    assert!(
        inside > 0,
        "it ended before it was cut in {package}: {ended:?}"
    );
    assert!(failure(ended).retryable, "{package}");
    tree.remove(&format!("/run/{package}"));
    tree.remove(&format!("/run/in-{package}"));
    let database = dpkg::Database::read(&tree.machine()).expect("a database");
    assert!(
        database.cut_in_unpacking().any(|name| name == package),
        "{package} was cut elsewhere"
    );
}

#[test]
fn a_lock_without_what_another_one_was_cut_in_is_converged_to() {
    let Some((tree, bundle)) = setup(&["1.0", "2.0"]) else {
        return;
    };
    let (machine, without) = (tree.machine(), Bundle::of(&[("other", "1.0", "", &[])]));
    // Installed as on the image.
    tree.write("/etc/apt/sources.list.d/other.list", &bundle.source());
    let said = tree.output(&["apt-get", "update"])
        + &tree.output(&["apt-get", "-y", "install", "drv-kmod=1.0"]);
    tree.remove("/etc/apt/sources.list.d/other.list");
    assert_eq!(versions(&machine)[0], "1.0", "{said}");
    let back = without.plan(&[("other", "1.0")]);
    // Packages new with the other lock leave, and packages depending on these too, whether or not
    // dpkg has reached the package.
    let brings = bundle.plan(&[("drv-lib", "1.0"), ("drv-tools", "1.0")]);
    cut_in(&tree, &brings, "drv-lib");
    run_on(&machine, &back, &cx()).expect("back to a lock without it");
    assert_eq!(
        versions(&machine),
        ["1.0", "absent", "absent", "absent", "absent"]
    );
    assert!(run_on(&machine, &back, &cx()).expect("and again").clean());
    // Packages of the image stay, at the version of the interrupted upgrade.
    cut_in(&tree, &bundle.plan(&[("drv-kmod", "2.0")]), "drv-kmod");
    run_on(&machine, &back, &cx()).expect("back to a lock without its upgrade");
    assert_eq!(
        versions(&machine),
        ["2.0", "absent", "absent", "absent", "absent"]
    );
    assert!(run_on(&machine, &back, &cx()).expect("and again").clean());
    // Without its archive, only a lock containing the package can finish the package.
    cut_in(&tree, &bundle.plan(&[("drv-kmod", "1.0")]), "drv-kmod");
    tree.remove("/var/lib/muster/apt/archives/drv-kmod_1.0_amd64.deb");
    let failed = failure(run_on(&machine, &back, &cx()));
    assert_eq!(
        (failed.code.as_str(), failed.retryable),
        ("package_half_installed", false),
        "{failed:?}"
    );
    assert!(failed.message.starts_with("drv-kmod "), "{failed:?}");
    run_on(&machine, &bundle.plan(&[("drv-kmod", "1.0")]), &cx()).expect("by such a lock");
    run_on(&machine, &back, &cx()).expect("and then back");
}

#[test]
fn an_upgrade_that_failed_half_way_goes_back_at_once() {
    let Some(tree) = Tree::unpack() else { return };
    let machine = tree.machine();
    let fails = [("postinst", "#!/bin/sh\nexit 1\n")];
    let bundle = Bundle::of(&[
        ("half-lib", "1.0", "", &[]),
        ("half-lib", "2.0", "", &[]),
        ("half-top", "1.0", "Depends: half-lib (= 1.0)\n", &[]),
        ("half-top", "2.0", "Depends: half-lib (= 2.0)\n", &fails),
    ]);
    let plan = |version| bundle.plan(&[("half-lib", version), ("half-top", version)]);
    run_on(&machine, &plan("1.0"), &cx()).expect("installed");
    let failed = failure(run_on(&machine, &plan("2.0"), &cx()));
    assert_eq!(failed.code, FailureCode::PackagesFailed, "{failed:?}");
    assert!(
        tree.path("/var/lib/muster/apt/archives/half-top_2.0_amd64.deb")
            .exists(),
        "or nothing was tried"
    );
    // The archives of the upgrade are not part of this plan.
    run_on(&machine, &plan("1.0"), &cx()).expect("rolled back by the first run");
    let database = dpkg::Database::read(&machine).expect("a database");
    let version = |name: &str| {
        database
            .find(name, "amd64")
            .map(|found| found.version.clone())
    };
    assert_eq!(
        (
            version("half-lib").as_deref(),
            version("half-top").as_deref()
        ),
        (Some("1.0"), Some("1.0"))
    );
    assert!(!database.interrupted);
}

/// A foreign dpkg holding the lock while /run/hold exists. The process runs in the tree and ends
/// with the tree.
fn hold_lock(tree: &Tree) -> Child {
    const HOLD: &str = r#"use Fcntl; open(F, ">>", "/var/lib/dpkg/lock-frontend") or die;
        my $lock = pack("ssx4qqix4", F_WRLCK, 0, 0, 0, 0); fcntl(F, F_SETLK, $lock) or die; open(R, ">", "/run/held"); close R;
        select(undef, undef, undef, 0.05) while -e "/run/hold";"#;
    tree.write("/run/hold", "");
    let holder = Command::new("chroot")
        .arg(tree.path("/"))
        .args(["perl", "-e", HOLD])
        .stdin(Stdio::null())
        .spawn();
    let holder = holder.expect("perl");
    tree.wait_for("/run/held");
    holder
}

#[test]
fn a_lock_of_somebody_else_is_waited_for_and_then_reported() {
    let Some((tree, bundle)) = setup(&["1.0"]) else {
        return;
    };
    let machine = tree.machine();
    let mut holder = hold_lock(&tree);
    let mut impatient = machine.clone();
    impatient.lock_wait = Duration::from_millis(600);
    let held = failure(run_on(&impatient, &tuple(&bundle, "1.0"), &cx()));
    assert_eq!(
        (held.code.as_str(), held.retryable),
        ("package_lock_held", true),
        "{held:?}"
    );
    let who = format!(
        "/var/lib/dpkg/lock-frontend has been held by process {} (perl)",
        holder.id()
    );
    assert!(held.message.starts_with(&who), "{held:?}");
    assert_eq!(versions(&machine), whole("absent"), "nothing was touched");

    tree.remove("/var/lib/muster/converge.json");
    let report = std::thread::scope(|scope| {
        let converging = scope.spawn(|| run_on(&machine, &tuple(&bundle, "1.0"), &cx()));
        // The pending work is stored: converge is about to change packages, and waits.
        tree.wait_for("/var/lib/muster/converge.json");
        assert!(
            !machine.path("/usr/sbin/policy-rc.d").exists(),
            "it has begun under somebody else's lock"
        );
        tree.remove("/run/hold");
        converging.join().expect("no panic")
    });
    report.expect("it waited, and went on");
    assert_eq!(versions(&machine), whole("1.0"));
    assert!(holder.wait().expect("a holder").success());
}

/// A small separate file system, visible to this test and its children only, and removed with the
/// test.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(tree: &Tree, path: &str, options: &str) -> Self {
        let at = tree.path(path);
        std::fs::create_dir_all(&at).expect("a folder");
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace of our own");
        mount(
            None::<&str>,
            "/",
            None::<&str>,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            None::<&str>,
        )
        .expect("private");
        mount(
            Some("small"),
            &at,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options),
        )
        .expect("a tmpfs");
        Self(at)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).expect("unmounted");
    }
}

#[test]
fn a_full_disk_is_refused_before_anything_is_half_configured() {
    let Some((tree, bundle)) = setup(&["1.0"]) else {
        return;
    };
    let machine = tree.machine();
    let small = Small::mount(&tree, "/opt", "size=2m");
    let mut wanted: Vec<(&str, &str)> = TUPLE.iter().map(|(name, _)| (*name, "1.0")).collect();
    wanted.push(("big", "1.0"));
    let plan = bundle.plan(&wanted);
    let full = failure(run_on(&machine, &plan, &cx()));
    assert_eq!(full.code, FailureCode::DiskFull, "{full:?}");
    assert!(
        full.message.contains("free on /opt"),
        "it says where: {full:?}"
    );
    assert_eq!(
        versions(&machine),
        whole("absent"),
        "of six packages not one was begun"
    );
    let database = dpkg::Database::read(&machine).expect("a database");
    assert!(!database.interrupted && !database.has("big"));
    drop(small);
    run_on(&machine, &plan, &cx()).expect("with room");
    assert_eq!(versions(&machine), whole("1.0"));
}

#[test]
fn too_many_files_are_refused_before_the_configuration() {
    let Some(tree) = Tree::unpack() else { return };
    let names: Vec<String> = (0..400).map(|n| format!("opt/many/{n}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let (machine, bundle) = (tree.machine(), Bundle::of(&[("many", "1.0", "", &files)]));
    let small = Small::mount(&tree, "/opt", "size=8m,nr_inodes=350");
    let full = failure(run_on(&machine, &bundle.plan(&[("many", "1.0")]), &cx()));
    let database = dpkg::Database::read(&machine).expect("a database");
    assert!(!database.interrupted && !database.has("many"), "{full:?}");
    assert!(
        full.code == FailureCode::DiskFull && full.message.contains("inodes are free on /opt"),
        "{full:?}"
    );
    drop(small);
    run_on(&machine, &bundle.plan(&[("many", "1.0")]), &cx()).expect("with room");
}

#[test]
fn an_initramfs_that_its_kernel_will_write_is_counted_before() {
    let Some(tree) = Tree::unpack() else { return };
    let writes = "#!/bin/sh\nset -e\nhead -c 5M /dev/zero >/boot/initrd.img-6.1.0-40-amd64\n";
    let kernel = ("linux-image-6.1.0-40-amd64", "6.1.2-1");
    let (machine, bundle) = (
        tree.machine(),
        Bundle::of(&[(kernel.0, kernel.1, "", &[("postinst", writes)])]),
    );
    let small = Small::mount(&tree, "/boot", "size=8m");
    tree.write("/boot/initrd.img-6.1.0-9-amd64", &"x".repeat(4 << 20));
    let full = failure(run_on(&machine, &bundle.plan(&[kernel]), &cx()));
    let database = dpkg::Database::read(&machine).expect("a database");
    assert!(!database.interrupted && !database.has(kernel.0), "{full:?}");
    assert!(
        full.code == FailureCode::DiskFull && full.message.contains("free on /boot"),
        "{full:?}"
    );
    drop(small);
    run_on(&machine, &bundle.plan(&[kernel]), &cx()).expect("with room");
}

#[test]
fn what_hands_changed_is_found_and_named() {
    let Some((tree, bundle)) = setup(&["1.0", "2.0"]) else {
        return;
    };
    let (machine, mut plan) = (tree.machine(), tuple(&bundle, "2.0"));
    plan.files = vec![
        file("/etc/nccl.conf", "NCCL_DEBUG=WARN\n", "root", false),
        file("/etc/key", "hunter2", "root", true),
    ];
    plan.sysctl.insert("vm.swappiness".into(), "10".into());
    plan.absent = vec!["big".into()];
    plan.services = vec![ServiceItem {
        name: "drv-fabric".into(),
        enabled: true,
        running: true,
        restart_on: vec![],
    }];
    run_on(&machine, &plan, &cx()).expect("installed");
    plan.dry_run = true;
    let look = || run_on(&machine, &plan, &cx()).expect("a look");
    assert!(look().clean(), "{:#?}", look());

    tree.write("/etc/apt/sources.list.d/other.list", &bundle.source());
    let down = [
        "drv-fabric=1.0",
        "drv-lib=1.0",
        "drv-kmod=1.0",
        "drv-tools=1.0",
        "drv-meta=1.0",
        "big=1.0",
    ];
    let by_hand: Vec<&str> = ["apt-get", "-y", "--allow-downgrades", "install"]
        .iter()
        .chain(&down[..])
        .copied()
        .collect();
    let said = tree.output(&["apt-get", "update"]) + &tree.output(&by_hand);
    tree.write("/etc/nccl.conf", "NCCL_DEBUG=INFO\n");
    std::fs::set_permissions(
        tree.path("/etc/key"),
        std::fs::Permissions::from_mode(0o644),
    )
    .expect("a mode");
    tree.write("/proc/sys/vm/swappiness", "60\n");
    tree.remove("/etc/apt/preferences.d/muster");
    tree.output(&["systemctl", "stop", "drv-fabric.service"]);

    let found = look();
    let mut named = outcomes(&found, ItemOutcome::Differs);
    named.sort_unstable();
    let wanted = [
        "file /etc/apt/preferences.d/muster",
        "file /etc/key",
        "file /etc/nccl.conf",
        "package big",
        "package drv-fabric",
        "package drv-kmod",
        "package drv-lib",
        "package drv-meta",
        "package drv-tools",
        "service drv-fabric",
        "sysctl vm.swappiness",
    ];
    assert_eq!(named, wanted, "{said}");
    let package = found
        .items
        .iter()
        .find(|item| item.item == "package drv-fabric")
        .expect("the package");
    assert_eq!(
        (package.before.as_deref(), package.after.as_deref()),
        (Some("1.0"), Some("2.0")),
        "what is, and what should be"
    );
    assert_eq!(versions(&machine), whole("1.0"), "a look mends nothing");
    let told = serde_json::to_string(&found).expect("a report");
    assert!(!told.contains("hunter2"));
    plan.dry_run = false;
    run_on(&machine, &plan, &cx()).expect("mended");
    assert_eq!(versions(&machine), whole("2.0"));
}
