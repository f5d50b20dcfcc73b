//! A tuple of five packages with exact dependencies, by real apt and dpkg, against everybody who would move a part of it: a foreign repository with
//! something newer, unattended-upgrades, a power cut, a foreign dpkg, a full disk, a person's hands.

use std::process::{Child, Command, Stdio};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::bundle::TUPLE;
use super::*;

fn setup(versions: &[&str]) -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    Some((tree, Bundle::tuple(versions)))
}

fn tuple(bundle: &Bundle, version: &str) -> ConvergePlan {
    let wanted: Vec<(&str, &str)> = TUPLE.iter().map(|(name, _)| (*name, version)).collect();
    bundle.plan(&wanted)
}

/// The versions of the five, as dpkg has them whole; what is not whole is no version.
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

/// Somebody else's repository with something newer, over the image's own apt.
fn add_foreign(tree: &Tree, foreign: &Bundle) {
    tree.write("/etc/apt/sources.list.d/foreign.list", &foreign.source());
    let said = tree.output(&["apt-get", "update"]);
    let offered = tree.output(&["apt-cache", "madison", "drv-meta"]);
    assert!(offered.contains("3.0"), "the foreign version is on offer, or nothing was tried: {said}{offered}");
}

#[test]
fn five_packages_go_up_and_back_as_one_beside_a_newer_repository() {
    let Some((tree, bundle)) = setup(&["1.0", "2.0"]) else { return };
    let (machine, foreign) = (tree.machine(), Bundle::tuple(&["3.0"]));
    run_on(&machine, &tuple(&bundle, "1.0"), &cx()).expect("installed");
    assert_eq!(versions(&machine), whole("1.0"));
    add_foreign(&tree, &foreign);
    for version in ["2.0", "1.0"] {
        let report = run_on(&machine, &tuple(&bundle, version), &cx()).expect("moved");
        let moved = outcomes(&report, ItemOutcome::Changed).iter().filter(|item| item.starts_with("package ")).count();
        assert_eq!((moved, versions(&machine)), (5, whole(version)));
        // What a person, a cron job or a configuration tool types.
        let apt = |arguments: &[&str]| {
            let argv: Vec<&str> =
                ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y"].iter().chain(arguments).copied().collect();
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
    let Some(tree) = Tree::unpack_with("unattended-upgrades") else { return };
    let (machine, bundle, foreign) = (tree.machine(), Bundle::tuple(&["1.0"]), Bundle::tuple(&["3.0"]));
    let unpinned = bundle.plan(&[("drv-kmod", "1.0")]);
    run_on(&machine, &unpinned, &cx()).expect("installed");
    add_foreign(&tree, &foreign);
    // Whatever is newer, from wherever.
    tree.write(
        "/etc/apt/apt.conf.d/99all",
        "Unattended-Upgrade::Origins-Pattern { \"site=*\"; };\nUnattended-Upgrade::Origins-Pattern { \"origin=*\"; };\n",
    );
    let upgrade = || tree.output(&["unattended-upgrade", "-v", "--no-minimal-upgrade-steps"]);
    let version = || {
        dpkg::Database::read(&machine).expect("a database").find("drv-kmod", "amd64").map(|found| found.version.clone())
    };
    let said = upgrade();
    assert_eq!(version().as_deref(), Some("1.0"), "{said}");
    // The same program, without the pins: it would have.
    tree.remove("/etc/apt/preferences.d/muster");
    let said = upgrade();
    assert_eq!(version().as_deref(), Some("3.0"), "what is tried must be able to happen: {said}");
    // And a stack that does not want it has it removed.
    let mut without = bundle.plan(&[("drv-kmod", "1.0")]);
    without.absent = vec!["unattended-upgrades".into()];
    run_on(&machine, &without, &cx()).expect("pinned again");
    assert_eq!(version().as_deref(), Some("1.0"), "and the pin is back");
    assert!(!machine.path("/usr/bin/unattended-upgrade").exists());
}

#[test]
fn a_tuple_cut_in_the_middle_is_whole_after_the_next_run() {
    let Some((tree, bundle)) = setup(&["1.0", "2.0"]) else { return };
    let machine = tree.machine();
    run_on(&machine, &tuple(&bundle, "1.0"), &cx()).expect("installed");
    // apt unpacks the top of a tuple first: the second cut is where the first one has not been.
    for cut_in in ["drv-fabric", "drv-kmod"] {
        tree.write(&format!("/run/{cut_in}"), "");
        let ended = std::thread::scope(|scope| {
            let converging = scope.spawn(|| run_on(&machine, &tuple(&bundle, "2.0"), &cx()));
            while !converging.is_finished() && !machine.path(&format!("/run/in-{cut_in}")).exists() {
                std::thread::sleep(Duration::from_millis(20));
            }
            let inside = tree.kill_everything();
            (inside, converging.join().expect("no panic"))
        });
        let (inside, ended) = ended;
        assert!(inside > 0, "it ended before it was cut in {cut_in}: {ended:?}");
        assert!(failure(ended).retryable, "{cut_in}");
        tree.remove(&format!("/run/{cut_in}"));
        tree.remove(&format!("/run/in-{cut_in}"));
    }
    assert_ne!(versions(&machine), whole("1.0"), "the cut left something half done");
    assert_ne!(versions(&machine), whole("2.0"), "the cut left something half done");
    run_on(&machine, &tuple(&bundle, "2.0"), &cx()).expect("the run after the cuts");
    assert_eq!(versions(&machine), whole("2.0"));
    assert!(run_on(&machine, &tuple(&bundle, "2.0"), &cx()).expect("and again").clean());
    // From such a half, back as well.
    run_on(&machine, &tuple(&bundle, "1.0"), &cx()).expect("rolled back");
    assert_eq!(versions(&machine), whole("1.0"));
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
    assert_eq!(failed.code, "packages_failed", "{failed:?}");
    assert!(tree.path("/var/lib/muster/apt/archives/half-top_2.0_amd64.deb").exists(), "or nothing was tried");
    // The archives of the upgrade are no part of this plan.
    run_on(&machine, &plan("1.0"), &cx()).expect("rolled back by the first run");
    let database = dpkg::Database::read(&machine).expect("a database");
    let version = |name: &str| database.find(name, "amd64").map(|found| found.version.clone());
    assert_eq!((version("half-lib").as_deref(), version("half-top").as_deref()), (Some("1.0"), Some("1.0")));
    assert!(!database.interrupted);
}

/// Somebody else's dpkg: holds the lock while /run/hold is there. In the tree, so that the tree's end ends it.
fn hold_lock(tree: &Tree) -> Child {
    const HOLD: &str = r#"use Fcntl; open(F, ">>", "/var/lib/dpkg/lock-frontend") or die;
        my $lock = pack("ssx4qqix4", F_WRLCK, 0, 0, 0, 0); fcntl(F, F_SETLK, $lock) or die; open(R, ">", "/run/held"); close R;
        select(undef, undef, undef, 0.05) while -e "/run/hold";"#;
    tree.write("/run/hold", "");
    let holder = Command::new("chroot").arg(tree.path("/")).args(["perl", "-e", HOLD]).stdin(Stdio::null()).spawn();
    let holder = holder.expect("perl");
    tree.wait_for("/run/held");
    holder
}

#[test]
fn a_lock_of_somebody_else_is_waited_for_and_then_reported() {
    let Some((tree, bundle)) = setup(&["1.0"]) else { return };
    let machine = tree.machine();
    let mut holder = hold_lock(&tree);
    let mut impatient = machine.clone();
    impatient.lock_wait = Duration::from_millis(600);
    let held = failure(run_on(&impatient, &tuple(&bundle, "1.0"), &cx()));
    assert_eq!((held.code.as_str(), held.retryable), ("package_lock_held", true), "{held:?}");
    let who = format!("/var/lib/dpkg/lock-frontend has been held by process {} (perl)", holder.id());
    assert!(held.message.starts_with(&who), "{held:?}");
    assert_eq!(versions(&machine), whole("absent"), "nothing was touched");

    tree.remove("/var/lib/muster/converge.json");
    let report = std::thread::scope(|scope| {
        let converging = scope.spawn(|| run_on(&machine, &tuple(&bundle, "1.0"), &cx()));
        // Its debts are noted: it is about to change packages, and waits.
        tree.wait_for("/var/lib/muster/converge.json");
        assert!(!machine.path("/usr/sbin/policy-rc.d").exists(), "it has begun under somebody else's lock");
        tree.remove("/run/hold");
        converging.join().expect("no panic")
    });
    report.expect("it waited, and went on");
    assert_eq!(versions(&machine), whole("1.0"));
    assert!(holder.wait().expect("a holder").success());
}

/// A small file system of its own, seen by this test and what it starts, gone with it.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(tree: &Tree, path: &str, size: &str) -> Self {
        let at = tree.path(path);
        std::fs::create_dir_all(&at).expect("a folder");
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace of our own");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).expect("private");
        let options = format!("size={size}");
        mount(Some("small"), &at, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).expect("a tmpfs");
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
    let Some((tree, bundle)) = setup(&["1.0"]) else { return };
    let machine = tree.machine();
    let small = Small::mount(&tree, "/opt", "2m");
    let mut wanted: Vec<(&str, &str)> = TUPLE.iter().map(|(name, _)| (*name, "1.0")).collect();
    wanted.push(("big", "1.0"));
    let plan = bundle.plan(&wanted);
    let full = failure(run_on(&machine, &plan, &cx()));
    assert_eq!(full.code, "disk_full", "{full:?}");
    assert!(full.message.contains("free on /opt"), "it says where: {full:?}");
    assert_eq!(versions(&machine), whole("absent"), "of six packages not one was begun");
    let database = dpkg::Database::read(&machine).expect("a database");
    assert!(!database.interrupted && !database.has("big"));
    drop(small);
    run_on(&machine, &plan, &cx()).expect("with room");
    assert_eq!(versions(&machine), whole("1.0"));
}

#[test]
fn what_hands_changed_is_found_and_named() {
    let Some((tree, bundle)) = setup(&["1.0", "2.0"]) else { return };
    let (machine, mut plan) = (tree.machine(), tuple(&bundle, "2.0"));
    plan.files =
        vec![file("/etc/nccl.conf", "NCCL_DEBUG=WARN\n", "root", false), file("/etc/key", "hunter2", "root", true)];
    plan.sysctl.insert("vm.swappiness".into(), "10".into());
    plan.absent = vec!["big".into()];
    plan.services = vec![ServiceItem { name: "drv-fabric".into(), enabled: true, running: true, restart_on: vec![] }];
    run_on(&machine, &plan, &cx()).expect("installed");
    plan.dry_run = true;
    let look = || run_on(&machine, &plan, &cx()).expect("a look");
    assert!(look().clean(), "{:#?}", look());

    tree.write("/etc/apt/sources.list.d/other.list", &bundle.source());
    let down = ["drv-fabric=1.0", "drv-lib=1.0", "drv-kmod=1.0", "drv-tools=1.0", "drv-meta=1.0", "big=1.0"];
    let by_hand: Vec<&str> =
        ["apt-get", "-y", "--allow-downgrades", "install"].iter().chain(&down[..]).copied().collect();
    let said = tree.output(&["apt-get", "update"]) + &tree.output(&by_hand);
    tree.write("/etc/nccl.conf", "NCCL_DEBUG=INFO\n");
    std::fs::set_permissions(tree.path("/etc/key"), std::fs::Permissions::from_mode(0o644)).expect("a mode");
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
    let package = found.items.iter().find(|item| item.item == "package drv-fabric").expect("the package");
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
