//! Services that packages start, by real dpkg and deb-systemd-invoke.

use super::*;

/// Starts two units, as the script of a package with several units does.
const START: &str = "#!/bin/sh\nset -e\ndeb-systemd-invoke start first.service svc.service\n";
/// The log of changes of units.
const CHANGES: &str = "/var/log/units";
/// The list of postponed starts.
const LIST: &str = "/run/muster/postponed-starts";

fn setup(postinst: &'static str) -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    let kernel = "linux-image-6.1.0-40-amd64";
    let modules = [("lib/modules/6.1.0-40-amd64/modules.dep", "\n")];
    let bundle = Bundle::of(&[
        ("svc", "1.0", "", &[("postinst", postinst)]),
        (kernel, "6.1.153-1", "", &modules),
    ]);
    tree.write("/var/lib/units/svc.service.enabled", "");
    Some((tree, bundle))
}

#[test]
fn services_of_packages_start_after_the_files_of_the_stack() {
    let Some((tree, bundle)) = setup(START) else {
        return;
    };
    let machine = tree.machine();
    let mut plan = bundle.plan(&[("svc", "1.0")]);
    plan.files = vec![file("/etc/svc.conf", "ready\n", "root", false)];
    tree.write("/var/lib/units/svc.service.needs", "/etc/svc.conf");
    run_on(&machine, &plan, &cx()).expect("the first run");
    assert_eq!(tree.text(CHANGES), "start svc.service\n");
    assert!(tree.path("/var/lib/units/svc.service.active").exists());
    assert!(!tree.path("/usr/sbin/policy-rc.d").exists() && !tree.path(LIST).exists());
    assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());
    assert_eq!(tree.text(CHANGES), "start svc.service\n");
}

#[test]
fn an_upgrade_starts_an_enabled_service_that_does_not_run() {
    let restart = "#!/bin/sh\nset -e\ndeb-systemd-invoke restart svc.service\n";
    let Some((tree, bundle)) = setup(restart) else {
        return;
    };
    let plan = bundle.plan(&[("svc", "1.0")]);
    run_on(&tree.machine(), &plan, &cx()).expect("a run");
    assert_eq!(tree.text(CHANGES), "start svc.service\n");
}

#[test]
fn a_refused_start_of_an_unnamed_service_fails_no_run() {
    let Some((tree, bundle)) = setup(START) else {
        return;
    };
    tree.write("/var/lib/units/svc.service.broken", "");
    let plan = bundle.plan(&[("svc", "1.0")]);
    run_on(&tree.machine(), &plan, &cx()).expect("a run");
    assert_eq!(tree.text(CHANGES), "start svc.service\n");
    assert!(!tree.path(LIST).exists());
}

#[test]
fn a_service_stays_off_where_disabled_masked_running_or_named_by_the_stack() {
    for case in ["disabled", "masked", "running", "named", "alias"] {
        let Some((tree, bundle)) = setup(START) else {
            return;
        };
        let mut plan = bundle.plan(&[("svc", "1.0")]);
        let named = match case {
            "disabled" => {
                tree.remove("/var/lib/units/svc.service.enabled");
                None
            }
            "masked" => {
                tree.write("/var/lib/units/svc.service.masked", "");
                None
            }
            "running" => {
                tree.write("/var/lib/units/svc.service.active", "");
                None
            }
            "named" => Some("svc"),
            _ => {
                tree.write("/var/lib/units/svc.service.alias", "real.service");
                tree.write("/lib/systemd/system/real.service", "[Service]\n");
                Some("real")
            }
        };
        plan.services = named
            .map(|name| ServiceItem {
                name: name.into(),
                enabled: false,
                running: false,
                restart_on: Vec::new(),
            })
            .into_iter()
            .collect();
        run_on(&tree.machine(), &plan, &cx()).expect("a run");
        let log = tree.text(CHANGES);
        assert!(!log.contains("start"), "{case}: {log}");
    }
}

#[test]
fn a_due_reboot_leaves_the_starts_to_the_boot() {
    let Some((tree, bundle)) = setup(START) else {
        return;
    };
    let machine = tree.machine();
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
    let plan = bundle.plan(&[("svc", "1.0"), ("linux-image-6.1.0-40-amd64", "6.1.153-1")]);
    let report = run_on(&machine, &plan, &cx()).expect("a run");
    assert!(
        report.reboot_for.contains(&"running kernel".to_owned()),
        "{report:#?}"
    );
    assert_eq!(tree.text(CHANGES), "");
    let noted = tree.text(LIST);
    assert_eq!(noted, "package svc\nunit first.service\n");
}

#[test]
fn starts_noted_by_a_killed_run_are_made_by_the_next() {
    let Some((tree, bundle)) = setup(START) else {
        return;
    };
    let plan = bundle.plan(&[("svc", "1.0")]);
    tree.write(LIST, "unit other@.service\nunit -x\nunit late\npackage\n");
    tree.write("/lib/systemd/system/late.service", "[Service]\n");
    tree.write("/var/lib/units/late.service.enabled", "");
    run_on(&tree.machine(), &plan, &cx()).expect("a run");
    assert_eq!(
        tree.text(CHANGES),
        "start late.service\nstart svc.service\n"
    );
}

#[test]
fn a_unit_without_an_answer_is_asked_again_by_the_next_run() {
    let Some((tree, bundle)) = setup(START) else {
        return;
    };
    let mut plan = bundle.plan(&[("svc", "1.0")]);
    tree.write("/var/lib/units/svc.service.unanswered", "");
    run_on(&tree.machine(), &plan, &cx()).expect("a run");
    assert_eq!(tree.text(CHANGES), "");
    tree.remove("/var/lib/units/svc.service.unanswered");
    plan.files = vec![file("/etc/svc.conf", "ready\n", "root", false)];
    run_on(&tree.machine(), &plan, &cx()).expect("the next run");
    assert_eq!(tree.text(CHANGES), "start svc.service\n");
    assert!(!tree.path(LIST).exists());
}
