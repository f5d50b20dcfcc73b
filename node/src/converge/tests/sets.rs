//! Two locks with different package names, by real apt and dpkg: packages of the former lock leave,
//! all others stay.

use super::*;
use muster_core::wire::node::FailureCode;

/// Prebuilt modules of two drivers for the same kernel.
const MODULES_550: &str = "linux-modules-nvidia-550-6.1.0-9-amd64";
const MODULES_535: &str = "linux-modules-nvidia-535-6.1.0-9-amd64";

fn setup() -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    let exclusive = "Conflicts: drv-570\nReplaces: drv-570\nProvides: drv, drv-api (= 2)\n";
    let bundle = Bundle::of(&[
        ("drv-570", "570.1", "Provides: drv\n", &[]),
        ("drv-570-tools", "570.1", "Depends: drv-570\n", &[]),
        ("drv-580", "580.1", exclusive, &[]),
        ("api", "1.0", "Provides: drv-api (= 1)\n", &[]),
        ("any-drv", "1.0", "Depends: drv, drv-api\n", &[]),
        ("tool", "1.0", "", &[]),
        ("tool", "2.0", "Depends: tool-lib (>= 2)\n", &[]),
        ("tool-lib", "2.0", "Pre-Depends: tool-data\n", &[]),
        ("tool-data", "2.0", "", &[]),
        (
            "site",
            "1.0",
            "",
            &[
                ("etc/site.conf", "of the package\n"),
                ("conffiles", "/etc/site.conf\n"),
            ],
        ),
        ("mine", "1.0", "Depends: drv-570 | drv-580\n", &[]),
        ("needs-old", "1.0", "Depends: drv-570\n", &[]),
        (
            "linux-image-6.1.0-9-amd64",
            "6.1.1-1",
            "",
            &[("lib/modules/6.1.0-9-amd64/modules.dep", "\n")],
        ),
        (
            "linux-headers-6.1.0-9-amd64",
            "6.1.1-1",
            "Depends: linux-headers-6.1.0-9-common\n",
            &[],
        ),
        ("linux-headers-6.1.0-9-common", "6.1.1-1", "", &[]),
        ("gpfs.gplbin-6.1.0-9-amd64", "6.0.0-2", "", &[]),
        (MODULES_550, "550.1-1", "", &[]),
        (MODULES_535, "535.1-1", "", &[]),
        (
            "linux-image-6.1.0-40-amd64",
            "6.1.2-1",
            "",
            &[("lib/modules/6.1.0-40-amd64/modules.dep", "\n")],
        ),
    ]);
    Some((tree, bundle))
}

/// Installs a package without Muster.
fn by_hand(tree: &Tree, bundle: &Bundle, package: &str) -> String {
    tree.write("/etc/apt/sources.list.d/other.list", &bundle.source());
    tree.output(&["apt-get", "update"]) + &tree.output(&["apt-get", "-y", "install", package])
}

fn there(machine: &Machine) -> Vec<&'static str> {
    let database = dpkg::Database::read(machine).expect("a database");
    let names = [
        "drv-570",
        "drv-570-tools",
        "drv-580",
        "api",
        "any-drv",
        "mine",
        "needs-old",
        "tool",
        "tool-lib",
        "tool-data",
        "linux-image-6.1.0-9-amd64",
        "linux-headers-6.1.0-9-amd64",
        "linux-headers-6.1.0-9-common",
        "gpfs.gplbin-6.1.0-9-amd64",
        MODULES_550,
        MODULES_535,
        "linux-image-6.1.0-40-amd64",
    ];
    names
        .into_iter()
        .filter(|name| database.has(name))
        .collect()
}

#[test]
fn packages_of_a_lock_leave_with_the_lock_and_manual_ones_stay() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let old = bundle.plan(&[("drv-570", "570.1"), ("drv-570-tools", "570.1")]);
    let new = bundle.plan(&[("drv-580", "580.1")]);
    run_on(&machine, &old, &cx()).expect("the first lock");
    // Installed by hand, outside of every lock.
    let said = by_hand(&tree, &bundle, "mine");
    assert_eq!(
        there(&machine),
        ["drv-570", "drv-570-tools", "mine"],
        "{said}"
    );

    let forecast = run_on(
        &machine,
        &ConvergePlan {
            dry_run: true,
            ..new.clone()
        },
        &cx(),
    )
    .expect("a look");
    let leaves = |name: &str| {
        let item = forecast
            .items
            .iter()
            .find(|item| item.item == name)
            .expect("named before it leaves");
        (item.outcome, item.before.clone(), item.after.clone())
    };
    let absent = (
        ItemOutcome::Differs,
        Some("570.1".to_owned()),
        Some("absent".to_owned()),
    );
    assert_eq!(
        (leaves("package drv-570"), leaves("package drv-570-tools")),
        (absent.clone(), absent)
    );
    for _ in 0..2 {
        run_on(&machine, &new, &cx()).expect("other names");
        assert_eq!(there(&machine), ["drv-580", "mine"]);
        run_on(&machine, &old, &cx()).expect("and back");
        assert_eq!(there(&machine), ["drv-570", "drv-570-tools", "mine"]);
    }
    assert!(run_on(&machine, &old, &cx()).expect("and again").clean());
}

#[test]
fn what_leaves_takes_nothing_with_it_that_no_lock_brought() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    run_on(&machine, &bundle.plan(&[("drv-570", "570.1")]), &cx()).expect("the first lock");
    let said = by_hand(&tree, &bundle, "needs-old");
    assert_eq!(there(&machine), ["drv-570", "needs-old"], "{said}");
    let refused = failure(run_on(
        &machine,
        &bundle.plan(&[("drv-580", "580.1")]),
        &cx(),
    ));
    assert_eq!(refused.code, FailureCode::UnplannedChange, "{refused:?}");
    assert!(refused.message.contains("remove needs-old"), "{refused:?}");
    assert_eq!(
        there(&machine),
        ["drv-570", "needs-old"],
        "nothing was touched"
    );
}

#[test]
fn an_empty_lock_removes_the_packages_of_the_former_lock() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    run_on(
        &machine,
        &bundle.plan(&[("drv-570", "570.1"), ("tool", "1.0")]),
        &cx(),
    )
    .expect("the first lock");
    let nothing = bundle.plan(&[]);
    drop(bundle);
    run_on(&machine, &nothing, &cx()).expect("a lock without packages");
    assert_eq!(there(&machine), Vec::<&str>::new());
    assert!(
        run_on(&machine, &nothing, &cx())
            .expect("and again")
            .clean()
    );
}

#[test]
fn what_leaves_stays_while_something_that_stays_needs_it() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    // The package of the image, upgraded by the first lock to a version with more dependencies.
    let said = by_hand(&tree, &bundle, "tool=1.0");
    assert_eq!(there(&machine), ["tool"], "{said}");
    let first = [
        ("tool", "2.0"),
        ("tool-lib", "2.0"),
        ("tool-data", "2.0"),
        ("drv-570", "570.1"),
    ];
    run_on(&machine, &bundle.plan(&first), &cx()).expect("the first lock");
    let second = bundle.plan(&[("drv-580", "580.1")]);
    let look = run_on(
        &machine,
        &ConvergePlan {
            dry_run: true,
            ..second.clone()
        },
        &cx(),
    )
    .expect("a look");
    let done = run_on(&machine, &second, &cx()).expect("the second lock");
    assert_eq!(
        there(&machine),
        ["drv-580", "tool", "tool-lib", "tool-data"]
    );
    for report in [
        look,
        done,
        run_on(&machine, &second, &cx()).expect("and again"),
    ] {
        let told = report
            .items
            .iter()
            .filter_map(|item| Some((item.item.as_str(), item.after.as_deref()?)));
        let told: Vec<_> = told
            .filter(|(_, after)| after.starts_with("left: "))
            .collect();
        let wanted = [
            ("package tool-data", "left: tool-lib needs it"),
            ("package tool-lib", "left: tool needs it"),
        ];
        assert_eq!(told, wanted);
    }
    run_on(&machine, &bundle.plan(&[("tool", "1.0")]), &cx()).expect("a lock with the former tool");
    assert_eq!(there(&machine), ["tool"]);
}

#[test]
fn what_leaves_goes_as_soon_as_what_came_stands_in_for_it() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let (old, new) = (
        bundle.plan(&[("drv-570", "570.1"), ("api", "1.0")]),
        bundle.plan(&[("drv-580", "580.1")]),
    );
    run_on(&machine, &old, &cx()).expect("the first lock");
    let said = by_hand(&tree, &bundle, "any-drv");
    assert_eq!(there(&machine), ["drv-570", "api", "any-drv"], "{said}");
    for _ in 0..2 {
        run_on(&machine, &new, &cx()).expect("one conflicts, the other does not");
        assert_eq!(there(&machine), ["drv-580", "any-drv"]);
        run_on(&machine, &old, &cx()).expect("and back");
        assert_eq!(there(&machine), ["drv-570", "api", "any-drv"]);
    }
}

#[test]
fn a_replaced_dependency_leaves_in_the_same_transaction() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let old = bundle.plan(&[("drv-570", "570.1"), ("api", "1.0")]);
    run_on(&machine, &old, &cx()).expect("the first lock");
    let said = by_hand(&tree, &bundle, "any-drv");
    assert_eq!(there(&machine), ["drv-570", "api", "any-drv"], "{said}");
    let count = || {
        let log = tree.text("/var/log/apt/history.log");
        log.matches("Start-Date:").count()
    };
    let before = count();
    run_on(&machine, &bundle.plan(&[("drv-580", "580.1")]), &cx()).expect("the next lock");
    assert_eq!(there(&machine), ["drv-580", "any-drv"]);
    assert_eq!(count() - before, 1, "one transaction of apt");
}

#[test]
fn a_name_that_is_gone_is_forgotten_and_is_a_persons_from_then_on() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let purge = |name: &str| tree.output(&["apt-get", "-y", "purge", name]);
    run_on(
        &machine,
        &bundle.plan(&[("drv-570", "570.1"), ("tool", "1.0"), ("api", "1.0")]),
        &cx(),
    )
    .expect("a lock");
    // The first is removed before a converge with work, the second before a converge without work.
    purge("tool");
    run_on(&machine, &bundle.plan(&[("api", "1.0")]), &cx()).expect("a lock without them");
    let said = by_hand(&tree, &bundle, "tool=1.0");
    assert_eq!(there(&machine), ["api", "tool"], "{said}");
    let mut nothing = bundle.plan(&[]);
    nothing.sysctl.insert("vm.swappiness".into(), "10".into());
    purge("api");
    run_on(&machine, &nothing, &cx()).expect("no packages to change");
    let said = by_hand(&tree, &bundle, "api");
    run_on(&machine, &nothing, &cx()).expect("as it was");
    assert_eq!(there(&machine), ["api", "tool"], "{said}");

    // A settled node with the record of a failed transaction.
    tree.write(
        "/var/lib/muster/record.json",
        r#"{"version":1,"packages":["mine"],"files":{}}"#,
    );
    assert!(run_on(&machine, &nothing, &cx()).expect("settled").clean());
    let record = tree.text("/var/lib/muster/record.json");
    assert!(!record.contains("mine"), "{record}");
}

#[test]
fn a_file_that_a_package_of_the_next_lock_brings_is_that_packages() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let mut old = bundle.plan(&[]);
    old.files = vec![file("/etc/site.conf", "of the stack\n", "root", false)];
    run_on(&machine, &old, &cx()).expect("the first stack");
    let report = run_on(&machine, &bundle.plan(&[("site", "1.0")]), &cx()).expect("the second");
    assert!(tree.path("/etc/site.conf").exists(), "{report:#?}");
    let item = report
        .items
        .iter()
        .find(|item| item.item == "file /etc/site.conf")
        .expect("it is told");
    assert_eq!(item.after.as_deref(), Some("left: a package owns the file"));
}

#[test]
fn a_packages_configuration_is_its_own_again_once_the_stack_lets_go_of_it() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let (path, item) = ("/etc/site.conf", "file /etc/site.conf");
    let mut without = bundle.plan(&[("site", "1.0")]);
    without.services = vec![ServiceItem {
        name: "site".into(),
        enabled: true,
        running: true,
        restart_on: vec![],
    }];
    let with = ConvergePlan {
        files: vec![file(path, "of the stack\n", "root", false)],
        ..without.clone()
    };
    run_on(&machine, &with, &cx()).expect("package and file at once");
    let look = run_on(
        &machine,
        &ConvergePlan {
            dry_run: true,
            ..without.clone()
        },
        &cx(),
    )
    .expect("a look");
    assert_eq!(
        outcomes(&look, ItemOutcome::Differs),
        [item],
        "it is no part of that stack"
    );
    let back = run_on(&machine, &without, &cx()).expect("without the file");
    assert_eq!(outcomes(&back, ItemOutcome::Changed), [item]);
    let mode = tree
        .path(path)
        .metadata()
        .expect("the file")
        .permissions()
        .mode()
        & 0o7777;
    assert_eq!(
        (tree.text(path).as_str(), mode),
        ("of the package\n", 0o755),
        "as the package here has it"
    );
    assert!(
        tree.text("/var/log/units")
            .ends_with("restart site.service\n"),
        "{}",
        tree.text("/var/log/units")
    );
    assert!(
        run_on(&machine, &without, &cx())
            .expect("and again")
            .clean()
    );
    assert!(
        std::fs::read_dir(tree.path("/var/lib/muster/former"))
            .expect("a folder")
            .next()
            .is_none(),
        "nothing is left"
    );

    // Written by a version without keeping.
    run_on(&machine, &with, &cx()).expect("the file again");
    tree.write(
        "/var/lib/muster/record.json",
        r#"{"version":1,"packages":["site"],"files":{}}"#,
    );
    let changed = ConvergePlan {
        files: vec![file(path, "another\n", "root", false)],
        ..without.clone()
    };
    run_on(&machine, &changed, &cx()).expect("by this version");
    let report = run_on(&machine, &without, &cx()).expect("without the file");
    let told = report
        .items
        .iter()
        .find(|told| told.item == item)
        .and_then(|told| told.after.clone());
    assert_eq!(
        told.as_deref(),
        Some("left: the content from before the stack is unknown")
    );
    assert_eq!(tree.text(path), "another\n");
}

#[test]
fn what_was_a_secret_is_told_by_no_digest_once_it_is_none_any_more() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let plan = |content: &str, secret| {
        let found = file("/etc/shadow", "of the stack\n", "root", false);
        ConvergePlan {
            files: vec![file("/etc/app/token", content, "root", secret), found],
            ..bundle.plan(&[])
        }
    };
    let digest = |text: &str| hex::encode(sha2::Sha256::digest(text));
    tree.write("/etc/shadow", "of the image\n");
    let told = |plan: &ConvergePlan| {
        let look = run_on(
            &machine,
            &ConvergePlan {
                dry_run: true,
                ..plan.clone()
            },
            &cx(),
        )
        .expect("a look");
        let done = run_on(&machine, plan, &cx()).expect("converged");
        [look, done]
            .map(|report| serde_json::to_string(&report).expect("a report"))
            .concat()
    };
    let first = told(&plan("hunter2", true));
    assert!(
        !first.contains(&digest("of the image\n")),
        "what a stack finds is not its own: {first}"
    );
    let second = told(&plan("text", false));
    assert!(!second.contains(&digest("hunter2")), "{second}");
    let third = told(&plan("more text", false));
    let from = format!("\"before\":\"sha256:{} ", digest("text"));
    assert!(third.contains(&from), "what a stack wrote is told: {third}");
}

#[test]
fn a_kernel_leaves_once_another_one_runs_and_asks_for_no_boot_of_its_own() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
    let first = [
        ("linux-image-6.1.0-9-amd64", "6.1.1-1"),
        ("linux-headers-6.1.0-9-amd64", "6.1.1-1"),
        ("linux-headers-6.1.0-9-common", "6.1.1-1"),
        ("gpfs.gplbin-6.1.0-9-amd64", "6.0.0-2"),
    ];
    run_on(&machine, &bundle.plan(&first), &cx()).expect("the first kernel");
    let _ = std::fs::remove_file(tree.path("/run/muster/reboot.json"));
    let plan = bundle.plan(&[("linux-image-6.1.0-40-amd64", "6.1.2-1")]);
    let report = run_on(&machine, &plan, &cx()).expect("the second kernel");
    assert!(
        report.reboot_for.contains(&"running kernel".to_owned()),
        "{report:#?}"
    );
    // Headers leave as a pair; only one package of the pair is named by the running release.
    let runs = ["linux-image-6.1.0-9-amd64", "gpfs.gplbin-6.1.0-9-amd64"];
    assert_eq!(
        there(&machine),
        [runs[0], runs[1], "linux-image-6.1.0-40-amd64"]
    );
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    tree.remove("/run/muster/reboot.json");
    let booted = run_on(&machine, &plan, &cx()).expect("after the boot");
    assert_eq!(booted.reboot_for, Vec::<String>::new());
    assert_eq!(there(&machine), ["linux-image-6.1.0-40-amd64"]);
    assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());
}

#[test]
fn modules_of_a_former_driver_leave_although_their_kernel_runs() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
    let kernel = ("linux-image-6.1.0-9-amd64", "6.1.1-1");
    let former = bundle.plan(&[kernel, (MODULES_550, "550.1-1")]);
    let next = bundle.plan(&[kernel, (MODULES_535, "535.1-1")]);
    run_on(&machine, &former, &cx()).expect("the first driver");
    assert_eq!(there(&machine), [kernel.0, MODULES_550]);
    run_on(&machine, &next, &cx()).expect("the other driver");
    assert_eq!(there(&machine), [kernel.0, MODULES_535]);
    run_on(&machine, &bundle.plan(&[kernel]), &cx()).expect("no driver");
    assert_eq!(there(&machine), [kernel.0]);
}

#[test]
fn a_file_that_left_the_stack_leaves_the_node_unless_somebody_changed_it() {
    let Some((tree, bundle)) = setup() else {
        return;
    };
    let machine = tree.machine();
    let (unit, drop_in) = (
        "/etc/systemd/system/site.service",
        "/etc/systemd/system/mine.service.d/10-site.conf",
    );
    tree.write("/etc/of-the-image.conf", "image\n");
    let mut old = bundle.plan(&[("drv-570", "570.1")]);
    let paths = [
        "/etc/site.conf",
        "/etc/changed.conf",
        "/etc/of-the-image.conf",
        "/etc/drv-580.conf",
        unit,
        drop_in,
    ];
    old.files = paths
        .iter()
        .map(|path| file(path, "[Service]\n", "root", false))
        .collect();
    old.files
        .push(file("/etc/site.key", "hunter2", "root", true));
    old.services = vec![ServiceItem {
        name: "site".into(),
        enabled: true,
        running: true,
        restart_on: vec![],
    }];
    run_on(&machine, &old, &cx()).expect("the first stack");
    tree.write("/etc/changed.conf", "by hand\n");
    // As if a package owned the file by now.
    tree.write(
        "/var/lib/dpkg/info/drv-570.list",
        "/.\n/etc\n/etc/drv-580.conf\n",
    );

    let mut new = bundle.plan(&[("drv-570", "570.1")]);
    new.dry_run = true;
    let look = run_on(&machine, &new, &cx()).expect("a look");
    let mut differ = outcomes(&look, ItemOutcome::Differs);
    differ.sort_unstable();
    let wanted = [
        "/etc/of-the-image.conf",
        "/etc/site.conf",
        "/etc/site.key",
        drop_in,
        unit,
    ]
    .map(|path| format!("file {path}"));
    assert_eq!(differ, wanted, "a plan names what leaves");
    let said = look.items.iter().filter(|item| {
        item.after
            .as_ref()
            .is_some_and(|after| after.starts_with("left: "))
    });
    let said: Vec<&str> = said.map(|item| item.item.as_str()).collect();
    assert_eq!(
        said,
        ["file /etc/changed.conf", "file /etc/drv-580.conf"],
        "and what stays"
    );

    new.dry_run = false;
    let before = tree.text("/var/log/units").len();
    let done = run_on(&machine, &new, &cx()).expect("the second stack");
    for report in [look, done] {
        let told = serde_json::to_string(&report).expect("a report");
        assert!(told.contains("file /etc/site.key"), "{told}");
        assert!(
            !told.contains(&hex::encode(sha2::Sha256::digest("hunter2"))),
            "a secret that left is still one: {told}"
        );
    }
    let left: Vec<&str> = paths
        .into_iter()
        .filter(|path| tree.path(path).exists())
        .collect();
    assert_eq!(
        left,
        [
            "/etc/changed.conf",
            "/etc/of-the-image.conf",
            "/etc/drv-580.conf"
        ]
    );
    assert_eq!(tree.text("/etc/of-the-image.conf"), "image\n");
    assert_eq!(
        &tree.text("/var/log/units")[before..],
        "disable site.service\ndaemon-reload\n"
    );
    assert!(run_on(&machine, &new, &cx()).expect("and again").clean());
    run_on(&machine, &old, &cx()).expect("and back");
    assert!(tree.path(unit).exists() && tree.path("/etc/site.conf").exists());
}
