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
fn an_upgrade_restarts_a_running_service_after_the_files_of_the_stack() {
    const SCRIPT: &str = "#!/bin/sh\nset -e\ndeb-systemd-invoke restart svc.service\n";
    const ALIAS: &str = "#!/bin/sh\nset -e\ndeb-systemd-invoke restart svc.service\n\
                         deb-systemd-invoke restart alias.service\n";
    const TRY: &str = "#!/bin/sh\nset -e\ndeb-systemd-invoke try-restart svc.service\n";
    const PAIR: &str = "#!/bin/sh\nset -e\ndeb-systemd-invoke stop svc.service\n\
                        deb-systemd-invoke start svc.service\n";
    for (postinst, state, enabled, log) in [
        (SCRIPT, "active", true, "restart svc.service\n"),
        (SCRIPT, "active", false, "restart svc.service\n"),
        (SCRIPT, "activating", true, "restart svc.service\n"),
        (SCRIPT, "failed", true, "restart svc.service\n"),
        (SCRIPT, "failed", false, ""),
        (ALIAS, "active", true, "restart alias.service\n"),
        (TRY, "active", true, "restart svc.service\n"),
        (TRY, "inactive", true, ""),
        (PAIR, "active", true, "restart svc.service\n"),
    ] {
        let Some((tree, bundle)) = setup(postinst) else {
            return;
        };
        tree.write(&format!("/var/lib/units/svc.service.{state}"), "");
        for unit in ["svc", "alias"] {
            let needs = format!("/var/lib/units/{unit}.service.needs");
            tree.write(&needs, "/etc/svc.conf");
        }
        if postinst == ALIAS {
            tree.write("/var/lib/units/alias.service.active", "");
            tree.write("/var/lib/units/alias.service.alias", "svc.service");
        }
        if !enabled {
            tree.remove("/var/lib/units/svc.service.enabled");
        }
        let mut plan = bundle.plan(&[("svc", "1.0")]);
        plan.files = vec![file("/etc/svc.conf", "ready\n", "root", false)];
        run_on(&tree.machine(), &plan, &cx()).expect("a run");
        assert_eq!(tree.text(CHANGES), log, "{state}, {enabled}: {postinst}");
        let active = tree.path("/var/lib/units/svc.service.active");
        assert!(log.is_empty() || active.exists(), "the restart succeeded");
        assert!(!tree.path(LIST).exists());
    }
}

#[test]
fn a_service_named_by_the_stack_restarts_once() {
    let restart = "#!/bin/sh\nset -e\ndeb-systemd-invoke restart svc.service\n";
    let Some((tree, bundle)) = setup(restart) else {
        return;
    };
    tree.write("/var/lib/units/svc.service.active", "");
    let mut plan = bundle.plan(&[("svc", "1.0")]);
    plan.services = vec![ServiceItem {
        name: "svc".into(),
        enabled: true,
        running: true,
        restart_on: Vec::new(),
    }];
    run_on(&tree.machine(), &plan, &cx()).expect("a run");
    assert_eq!(tree.text(CHANGES), "daemon-reload\nrestart svc.service\n");
}

#[test]
fn a_leaving_package_stops_its_service_and_an_upgrade_stops_none() {
    let Some(tree) = Tree::unpack() else {
        return;
    };
    let prerm = "#!/bin/sh\nset -e\n\
                 [ \"$1\" != remove ] || deb-systemd-invoke stop old-svc.service other.service\n";
    let postinst = "#!/bin/sh\nset -e\ndeb-systemd-invoke stop svc.service\n\
                    /usr/sbin/policy-rc.d svc status\n";
    let bundle = Bundle::of(&[
        ("old-svc", "1.0", "", &[("prerm", prerm)]),
        ("svc", "1.0", "", &[("postinst", postinst)]),
    ]);
    let machine = tree.machine();
    let before = bundle.plan(&[("old-svc", "1.0")]);
    run_on(&machine, &before, &cx()).expect("the first run");
    for unit in ["old-svc", "other", "svc"] {
        tree.write(&format!("/var/lib/units/{unit}.service.active"), "");
    }
    let mut after = bundle.plan(&[("svc", "1.0")]);
    after.absent = vec!["old-svc".into()];
    run_on(&machine, &after, &cx()).expect("the second run");
    assert_eq!(tree.text(CHANGES), "stop old-svc.service\n");
    let is_active = |unit: &str| {
        let state = tree.path(&format!("/var/lib/units/{unit}.service.active"));
        state.exists()
    };
    assert!(!is_active("old-svc") && !is_active("other") && is_active("svc"));
    assert!(!tree.path("/run/muster/leaving-packages").exists());
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
fn a_disabled_masked_running_or_named_service_is_not_started() {
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
    tree.write("/lib/systemd/system/first.service", "[Service]\n");
    tree.write("/var/lib/units/first.service.enabled", "");
    tree.write(LIST, "restart svc.service\n");
    run_on(&tree.machine(), &plan, &cx()).expect("a run");
    assert_eq!(tree.text(CHANGES), "start first.service\n");
    let kept = "unit svc.service\nrestart svc.service\n";
    assert_eq!(tree.text(LIST), kept);
    tree.remove("/var/lib/units/first.service.active");
    tree.remove("/var/lib/units/svc.service.unanswered");
    plan.files = vec![file("/etc/svc.conf", "ready\n", "root", false)];
    run_on(&tree.machine(), &plan, &cx()).expect("the next run");
    assert_eq!(
        tree.text(CHANGES),
        "start first.service\nstart svc.service\n",
        "the first unit ended by itself, and is not started again"
    );
    assert!(!tree.path(LIST).exists());
}
