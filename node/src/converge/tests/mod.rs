//! Converges a real Debian: a minimal tree entered by chroot, real apt and dpkg, a real bundle over
//! HTTP, packages built here. A chroot lacks systemd; a small program keeping unit states in files
//! replaces systemctl.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

mod branches; // Prebuilt modules of two branches of a driver
mod bundle; // A flat repository of tiny packages, served over HTTP
mod cdi; // The specification of the GPUs for container runtimes
mod driver; // Gates of the driver's software, on a machine without a GPU
mod hands; // Changes of the driver by hand
mod modules; // Modules built on the node
mod pins; // A five-package tuple against every other package manager
mod reboots; // Drivers and kernels replaced while in use
mod sets; // Packages and files leaving with their lock
mod starts; // Services that packages start
mod tree; // The minimal Debian, unpacked per test

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_core::stacks::{ConvergePlan, ItemOutcome, PlannedFile, ServiceItem};
use muster_core::wire::node::{Failure, FailureCode};

use self::bundle::Bundle;
use self::tree::Tree;
use sha2::Digest as _;

use super::*;

fn cx() -> JobContext {
    JobContext::foreground(Duration::from_secs(120))
}

/// Returns a tree with a bundle; `None` on a machine that cannot build a tree.
fn setup() -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    Some((tree, Bundle::start()))
}

fn file(path: &str, content: &str, owner: &str, secret: bool) -> PlannedFile {
    let mode = if secret { "0600" } else { "0644" };
    let (owner, group) = (owner.to_owned(), "root".to_owned());
    PlannedFile {
        path: path.into(),
        mode: mode.into(),
        owner,
        group,
        content: STANDARD.encode(content),
        secret,
    }
}

fn outcomes(report: &ConvergeReport, outcome: ItemOutcome) -> Vec<&str> {
    report
        .items
        .iter()
        .filter(|item| item.outcome == outcome)
        .map(|item| item.item.as_str())
        .collect()
}

fn failure(ended: Result<ConvergeReport, Failure>) -> Failure {
    ended.expect_err("it must fail")
}

/// Returns a plan with every kind of item.
fn full_plan(bundle: &Bundle) -> ConvergePlan {
    let mut plan = bundle.plan(&[
        ("tuple-kmod", "1.0"),
        ("tuple-top", "1.0"),
        ("daemon", "1:2.0"),
    ]);
    plan.files = vec![
        file(
            "/etc/daemon/deep/daemon.conf",
            "listen\n",
            "daemon-user",
            false,
        ),
        file("/etc/daemon.key", "hunter2", "daemon-user", true),
    ];
    plan.sysctl.insert("vm.swappiness".into(), "10".into());
    plan.modules_blacklist = vec!["nouveau".into()];
    plan.kernel_args = vec!["iommu=pt".into()];
    let restart_on = vec!["/etc/daemon/deep/daemon.conf".into()];
    plan.services = vec![ServiceItem {
        name: "daemon".into(),
        enabled: true,
        running: true,
        restart_on,
    }];
    plan
}

#[test]
fn a_node_becomes_its_plan_once_and_stays_it() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let (machine, mut plan) = (tree.machine(), full_plan(&bundle));

    plan.dry_run = true;
    let forecast = run_on(&machine, &plan, &cx()).expect("a dry run");
    assert!(outcomes(&forecast, ItemOutcome::Differs).contains(&"package tuple-top"));
    assert!(
        !machine.path("/etc/daemon.key").exists() && !machine.path("/var/lib/muster").exists(),
        "nothing was touched"
    );

    plan.dry_run = false;
    let report = run_on(&machine, &plan, &cx()).expect("the first run");
    for item in [
        "package tuple-top",
        "file /etc/daemon.key",
        "sysctl vm.swappiness",
        "service daemon",
    ] {
        assert!(
            outcomes(&report, ItemOutcome::Changed).contains(&item),
            "{item}: {report:#?}"
        );
    }
    assert_eq!(report.reboot_for, ["kernel argument iommu=pt"]);
    let key = machine.path("/etc/daemon.key").metadata().expect("the key");
    assert_eq!(
        Some(key.uid()),
        machine
            .account_id("/etc/passwd", "daemon-user")
            .expect("passwd")
    );
    assert_eq!(key.permissions().mode() & 0o7777, 0o600);
    let told = serde_json::to_string(&report).expect("a report");
    assert!(
        !told.contains("hunter2") && !told.contains(&hex::encode(sha2::Sha256::digest("hunter2"))),
        "{told}"
    );
    assert_eq!(
        tree.text("/var/log/units"),
        "daemon-reload\nenable daemon.service\nstart daemon.service\n",
        "policy-rc.d kept the package from a start"
    );
    assert!(!machine.path("/usr/sbin/policy-rc.d").exists());
    assert_eq!(tree.text("/var/log/grub"), "grub-mkconfig\n");

    let again = run_on(&machine, &plan, &cx()).expect("the second run");
    assert_eq!(outcomes(&again, ItemOutcome::Changed), Vec::<&str>::new());
    assert_eq!(
        outcomes(&again, ItemOutcome::Differs),
        ["kernel argument iommu=pt"],
        "it waits for the reboot"
    );
    tree.write("/proc/cmdline", "quiet iommu=pt\n");
    assert!(
        run_on(&machine, &plan, &cx())
            .expect("after the reboot")
            .clean()
    );

    plan.files[0].content = STANDARD.encode("listen more\n");
    let changed = run_on(&machine, &plan, &cx()).expect("a changed file");
    assert_eq!(
        outcomes(&changed, ItemOutcome::Changed),
        ["file /etc/daemon/deep/daemon.conf"]
    );
    assert!(
        tree.text("/var/log/units")
            .ends_with("restart daemon.service\n"),
        "{}",
        tree.text("/var/log/units")
    );
}

#[test]
fn a_tuple_moves_up_and_down_as_one_and_pins_hold() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let tuple = |version| bundle.plan(&[("tuple-kmod", version), ("tuple-top", version)]);
    tree.write("/etc/apt/sources.list.d/muster.list", &bundle.source());
    for version in ["1.0", "2.0", "1.0"] {
        let report = run_on(&machine, &tuple(version), &cx())
            .unwrap_or_else(|error| panic!("{version}: {error:?}"));
        assert!(outcomes(&report, ItemOutcome::Changed).contains(&"package tuple-top"));
    }
    assert!(
        !tree.path("/etc/apt/sources.list.d/muster.list").exists(),
        "nobody else's apt meets what nobody signed"
    );
    // By hand, with the same packages, including 2.0.
    tree.write("/etc/apt/sources.list.d/other.list", &bundle.source());
    let by_hand = [
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-y",
        "dist-upgrade",
    ];
    let said = tree.output(&["apt-get", "update"]) + &tree.output(&by_hand);
    let database = dpkg::Database::read(&machine).expect("a database");
    assert_eq!(
        database
            .find("tuple-top", "amd64")
            .map(|package| package.version.as_str()),
        Some("1.0"),
        "{said}"
    );

    // Removed again, and no other package with tuple-top.
    let mut without = bundle.plan(&[("tuple-kmod", "1.0")]);
    without.absent = vec!["tuple-top".into(), "never-seen".into()];
    run_on(&machine, &without, &cx()).expect("tuple-top leaves");
    assert!(
        !dpkg::Database::read(&machine)
            .expect("a database")
            .has("tuple-top")
    );
}

#[test]
fn what_the_lock_does_not_name_is_refused_before_anything_is_touched() {
    let Some((tree, mut bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    run_on(
        &machine,
        &bundle.plan(&[("tuple-kmod", "1.0"), ("tuple-top", "1.0")]),
        &cx(),
    )
    .expect("the start");

    // As on an image containing the packages: converge removes packages of the image only when the
    // plan says so.
    tree.remove("/var/lib/muster/record.json");
    let mut breaking = bundle.plan(&[]);
    breaking.absent = vec!["tuple-kmod".into()];
    let refused = failure(run_on(&machine, &breaking, &cx()));
    assert_eq!(
        (
            refused.code.as_str(),
            refused.message.contains("remove tuple-top")
        ),
        ("unplanned_change", true),
        "{refused:?}"
    );

    let missing = failure(run_on(
        &machine,
        &bundle.plan(&[("tuple-top", "2.0")]),
        &cx(),
    ));
    assert!(
        ["packages_unresolvable", "unplanned_change"].contains(&missing.code.as_str()),
        "{missing:?}"
    );

    let upgrade = bundle.plan(&[("tuple-kmod", "2.0"), ("tuple-top", "2.0")]);
    bundle.tamper("tuple-kmod", "2.0");
    let tampered = failure(run_on(&machine, &upgrade, &cx()));
    assert_eq!(tampered.code, FailureCode::DigestMismatch, "{tampered:?}");

    let mut huge = bundle.plan(&[("daemon", "1:2.0")]);
    huge.packages[0].size = 1 << 50;
    let full = failure(run_on(&machine, &huge, &cx()));
    assert_eq!(
        (full.code.as_str(), full.retryable),
        ("disk_full", false),
        "{full:?}"
    );
    let database = dpkg::Database::read(&machine).expect("a database");
    assert_eq!(
        database
            .find("tuple-top", "amd64")
            .map(|package| package.version.as_str()),
        Some("1.0")
    );

    drop(bundle);
    let alone = failure(run_on(&machine, &upgrade, &cx()));
    assert_eq!(
        (alone.code.as_str(), alone.retryable),
        ("bundle_unreachable", true),
        "{alone:?}"
    );
}

#[test]
fn a_killed_transaction_is_finished_by_the_next_run() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    run_on(&machine, &bundle.plan(&[("slow", "1.0")]), &cx()).expect("version 1");
    let plan = bundle.plan(&[("slow", "2.0"), ("tuple-kmod", "1.0"), ("tuple-top", "1.0")]);

    // Killed in a maintainer script: unpacking has begun, configuration has not.
    for script in ["preinst", "postinst"] {
        tree.write(&format!("/run/slow-{script}"), "");
        let ended = std::thread::scope(|scope| {
            let converging = scope.spawn(|| run_on(&machine, &plan, &cx()));
            tree.wait_for(&format!("/run/in-{script}"));

            let mut impatient = machine.clone();
            impatient.lock_wait = Duration::from_millis(600);
            let held = failure(run_on(&impatient, &plan, &cx()));
            assert_eq!(held.code, FailureCode::PackageLockHeld, "{held:?}");
            assert!(held.message.contains("held by process"), "{held:?}");

            assert!(tree.kill_everything() > 0);
            converging.join().expect("no panic")
        });
        let killed = failure(ended);
        assert!(
            killed.retryable && killed.code == FailureCode::PackagesFailed,
            "{killed:?}"
        );
        assert!(
            dpkg::Database::read(&machine)
                .expect("a database")
                .interrupted,
            "{script}"
        );
        tree.remove(&format!("/run/slow-{script}"));
        tree.remove(&format!("/run/in-{script}"));
    }
    let report = run_on(&machine, &plan, &cx()).expect("the run after the kills");
    assert!(
        outcomes(&report, ItemOutcome::Changed).contains(&"package slow"),
        "{report:#?}"
    );
    assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());
    assert!(
        !machine.path("/usr/sbin/policy-rc.d").exists()
            && !machine.path("/var/lib/muster/converge.json").exists()
    );
}

#[test]
fn a_restart_that_was_owed_is_made_by_the_next_run() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let (machine, mut plan) = (tree.machine(), full_plan(&bundle));
    plan.kernel_args.clear();
    run_on(&machine, &plan, &cx()).expect("the start");
    // As after a kill between the file and the restart: the pending restart is stored, the file is
    // written.
    let paths = std::iter::once("/etc/daemon/deep/daemon.conf".to_owned()).collect();
    Pending {
        paths,
        ..Pending::default()
    }
    .store(&machine)
    .expect("a debt");
    let before = tree.text("/var/log/units").len();
    assert!(
        run_on(&machine, &plan, &cx())
            .expect("the next run")
            .clean()
    );
    assert_eq!(
        &tree.text("/var/log/units")[before..],
        "restart daemon.service\n"
    );

    tree.write("/var/lib/units/daemon.service.broken", "");
    tree.write("/etc/daemon/deep/daemon.conf", "drifted\n");
    let failed = failure(run_on(&machine, &plan, &cx()));
    assert_eq!(failed.code, FailureCode::ServiceFailed);
    assert!(
        failed.message.contains("it is broken"),
        "the unit's own log: {failed:?}"
    );
    tree.remove("/var/lib/units/daemon.service.broken");
    run_on(&machine, &plan, &cx()).expect("mended");
    assert!(
        tree.text("/var/log/units")
            .ends_with("start daemon.service\n"),
        "{}",
        tree.text("/var/log/units")
    );
}

#[test]
fn a_masked_unit_that_is_wanted_is_unmasked() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let (machine, mut plan) = (tree.machine(), full_plan(&bundle));
    plan.kernel_args.clear();
    tree.write("/var/lib/units/daemon.service.masked", "");
    run_on(&machine, &plan, &cx()).expect("converged");
    let units =
        "daemon-reload\nunmask daemon.service\nenable daemon.service\nstart daemon.service\n";
    assert_eq!(tree.text("/var/log/units"), units);
    // A unit neither enabled nor running may stay masked.
    tree.write("/var/lib/units/daemon.service.masked", "");
    let _ = std::fs::remove_file(tree.path("/var/lib/units/daemon.service.active"));
    (plan.services[0].enabled, plan.services[0].running) = (false, false);
    assert!(
        run_on(&machine, &plan, &cx())
            .expect("nothing to do")
            .clean()
    );
}

#[test]
fn a_unit_is_restarted_for_its_package_drop_in_and_environment() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let plan = |version: &str, files: &[(&str, &str)]| {
        let mut plan = bundle.plan(&[("slow", version)]);
        plan.files = files
            .iter()
            .map(|(path, text)| file(path, text, "root", false))
            .collect();
        plan.services = vec![ServiceItem {
            name: "slow".into(),
            enabled: true,
            running: true,
            restart_on: vec![],
        }];
        plan
    };
    run_on(&machine, &plan("1.0", &[]), &cx()).expect("the start");
    tree.write(
        "/var/lib/units/slow.service.environment",
        "/etc/default/slow\n",
    );
    let steps: [(&str, &[(&str, &str)]); 3] = [
        ("2.0", &[]),
        (
            "2.0",
            &[(
                "/etc/systemd/system/slow.service.d/10-site.conf",
                "[Service]\nNice=5\n",
            )],
        ),
        (
            "2.0",
            &[
                ("/etc/default/slow", "OPTIONS=-v\n"),
                (
                    "/etc/systemd/system/slow.service.d/10-site.conf",
                    "[Service]\nNice=5\n",
                ),
            ],
        ),
    ];
    for (version, files) in steps {
        let before = tree.text("/var/log/units").len();
        run_on(&machine, &plan(version, files), &cx()).expect("changed");
        let done = tree.text("/var/log/units")[before..].to_owned();
        assert!(
            done.ends_with("restart slow.service\n"),
            "{version} {files:?}: {done}"
        );
        assert!(
            run_on(&machine, &plan(version, files), &cx())
                .expect("and again")
                .clean()
        );
    }
}

#[test]
fn a_unit_that_starts_for_longer_than_a_run_is_waited_for_by_the_next() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let (machine, mut plan) = (tree.machine(), full_plan(&bundle));
    plan.kernel_args.clear();
    run_on(&machine, &plan, &cx()).expect("the start");
    tree.write("/var/lib/units/daemon.service.slow", "");
    plan.files[0].content = STANDARD.encode("listen more\n");
    let late = failure(run_on(
        &machine,
        &plan,
        &JobContext::foreground(Duration::from_secs(10)),
    ));
    assert!(
        late.code == FailureCode::ToolTimeout && late.message.starts_with("daemon.service: "),
        "it names the unit: {late:?}"
    );
    let before = tree.text("/var/log/units").len();
    tree.remove("/var/lib/units/daemon.service.slow");
    run_on(&machine, &plan, &cx()).expect("the next run");
    assert_eq!(
        &tree.text("/var/log/units")[before..],
        "start daemon.service\n"
    );
}

#[test]
fn an_aliased_unit_is_restarted_for_its_package_and_drop_in() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    tree.write("/var/lib/units/slowd.service.alias", "slow.service");
    let plan = |version: &str, files: Vec<PlannedFile>| {
        let services = vec![ServiceItem {
            name: "slowd".into(),
            enabled: true,
            running: true,
            restart_on: vec![],
        }];
        ConvergePlan {
            services,
            files,
            ..bundle.plan(&[("slow", version)])
        }
    };
    run_on(&machine, &plan("1.0", vec![]), &cx()).expect("the start");
    let drop_in = file(
        "/etc/systemd/system/slow.service.d/10-site.conf",
        "[Service]\nNice=5\n",
        "root",
        false,
    );
    for files in [vec![], vec![drop_in]] {
        let before = tree.text("/var/log/units").len();
        run_on(&machine, &plan("2.0", files), &cx()).expect("changed");
        let done = tree.text("/var/log/units")[before..].to_owned();
        assert!(done.ends_with("restart slowd.service\n"), "{done}");
    }
}
