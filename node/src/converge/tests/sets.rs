//! Two locks with different names in them, by real apt and dpkg: what the former one brought leaves, and nothing else does.

use super::*;

fn setup() -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    let exclusive = "Conflicts: drv-570\nReplaces: drv-570\n";
    let bundle = Bundle::of(&[
        ("drv-570", "570.1", "", &[]),
        ("drv-570-tools", "570.1", "Depends: drv-570\n", &[]),
        ("drv-580", "580.1", exclusive, &[]),
        ("mine", "1.0", "Depends: drv-570 | drv-580\n", &[]),
        ("needs-old", "1.0", "Depends: drv-570\n", &[]),
        ("linux-image-6.1.0-9-amd64", "6.1.1-1", "", &[]),
        ("linux-image-6.1.0-40-amd64", "6.1.2-1", "", &[]),
    ]);
    Some((tree, bundle))
}

fn there(machine: &Machine) -> Vec<&'static str> {
    let database = dpkg::Database::read(machine).expect("a database");
    let names = ["drv-570", "drv-570-tools", "drv-580", "mine", "needs-old"];
    names.into_iter().filter(|name| database.has(name)).collect()
}

#[test]
fn what_a_lock_brought_leaves_with_it_both_ways_and_what_hands_brought_stays() {
    let Some((tree, bundle)) = setup() else { return };
    let machine = tree.machine();
    let old = bundle.plan(&[("drv-570", "570.1"), ("drv-570-tools", "570.1")]);
    let new = bundle.plan(&[("drv-580", "580.1")]);
    run_on(&machine, &old, &cx()).expect("the first lock");
    // By hand, which no lock is asked about.
    tree.write("/etc/apt/sources.list.d/other.list", &bundle.source());
    let said = tree.output(&["apt-get", "update"]) + &tree.output(&["apt-get", "-y", "install", "mine"]);
    assert_eq!(there(&machine), ["drv-570", "drv-570-tools", "mine"], "{said}");

    let forecast = run_on(&machine, &ConvergePlan { dry_run: true, ..new.clone() }, &cx()).expect("a look");
    let leaves = |name: &str| {
        let item = forecast.items.iter().find(|item| item.item == name).expect("named before it leaves");
        (item.outcome, item.before.clone(), item.after.clone())
    };
    let absent = (ItemOutcome::Differs, Some("570.1".to_owned()), Some("absent".to_owned()));
    assert_eq!((leaves("package drv-570"), leaves("package drv-570-tools")), (absent.clone(), absent));
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
    let Some((tree, bundle)) = setup() else { return };
    let machine = tree.machine();
    run_on(&machine, &bundle.plan(&[("drv-570", "570.1")]), &cx()).expect("the first lock");
    tree.write("/etc/apt/sources.list.d/other.list", &bundle.source());
    let said = tree.output(&["apt-get", "update"]) + &tree.output(&["apt-get", "-y", "install", "needs-old"]);
    assert_eq!(there(&machine), ["drv-570", "needs-old"], "{said}");
    let refused = failure(run_on(&machine, &bundle.plan(&[("drv-580", "580.1")]), &cx()));
    assert_eq!(refused.code, "unplanned_change", "{refused:?}");
    assert!(refused.message.contains("remove needs-old"), "{refused:?}");
    assert_eq!(there(&machine), ["drv-570", "needs-old"], "nothing was touched");
}

#[test]
fn a_kernel_leaves_once_another_one_runs_and_asks_for_no_boot_of_its_own() {
    let Some((tree, bundle)) = setup() else { return };
    let machine = tree.machine();
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
    run_on(&machine, &bundle.plan(&[("linux-image-6.1.0-9-amd64", "6.1.1-1")]), &cx()).expect("the first kernel");
    let _ = std::fs::remove_file(tree.path("/run/muster/reboot.json"));
    let plan = bundle.plan(&[("linux-image-6.1.0-40-amd64", "6.1.2-1")]);
    let has = |name: &str| dpkg::Database::read(&machine).expect("a database").has(name);
    let report = run_on(&machine, &plan, &cx()).expect("the second kernel");
    assert!(report.reboot_for.contains(&"running kernel".to_owned()), "{report:#?}");
    assert!(has("linux-image-6.1.0-9-amd64"), "it runs");
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    tree.remove("/run/muster/reboot.json");
    let booted = run_on(&machine, &plan, &cx()).expect("after the boot");
    assert_eq!(booted.reboot_for, Vec::<String>::new());
    assert!(!has("linux-image-6.1.0-9-amd64"));
    assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());
}

#[test]
fn a_file_that_left_the_stack_leaves_the_node_unless_somebody_changed_it() {
    let Some((tree, bundle)) = setup() else { return };
    let machine = tree.machine();
    let (unit, drop_in) = ("/etc/systemd/system/site.service", "/etc/systemd/system/mine.service.d/10-site.conf");
    tree.write("/etc/of-the-image.conf", "image\n");
    let mut old = bundle.plan(&[("drv-570", "570.1")]);
    let paths = ["/etc/site.conf", "/etc/changed.conf", "/etc/of-the-image.conf", "/etc/drv-580.conf", unit, drop_in];
    old.files = paths.iter().map(|path| file(path, "[Service]\n", "root", false)).collect();
    old.services = vec![ServiceItem { name: "site".into(), enabled: true, running: true, restart_on: vec![] }];
    run_on(&machine, &old, &cx()).expect("the first stack");
    tree.write("/etc/changed.conf", "by hand\n");
    // As if a package had it by now.
    tree.write("/var/lib/dpkg/info/drv-570.list", "/.\n/etc\n/etc/drv-580.conf\n");

    let mut new = bundle.plan(&[("drv-570", "570.1")]);
    new.dry_run = true;
    let look = run_on(&machine, &new, &cx()).expect("a look");
    let mut differ = outcomes(&look, ItemOutcome::Differs);
    differ.sort_unstable();
    let wanted = ["/etc/site.conf", drop_in, unit].map(|path| format!("file {path}"));
    assert_eq!(differ, wanted, "a plan names what leaves");
    let said = look.items.iter().filter(|item| item.after.as_ref().is_some_and(|after| after.starts_with("left: ")));
    let said: Vec<&str> = said.map(|item| item.item.as_str()).collect();
    assert_eq!(said, ["file /etc/changed.conf", "file /etc/drv-580.conf"], "and what stays");

    new.dry_run = false;
    let before = tree.text("/var/log/units").len();
    run_on(&machine, &new, &cx()).expect("the second stack");
    let left: Vec<&str> = paths.into_iter().filter(|path| tree.path(path).exists()).collect();
    assert_eq!(left, ["/etc/changed.conf", "/etc/of-the-image.conf", "/etc/drv-580.conf"]);
    assert_eq!(&tree.text("/var/log/units")[before..], "disable site.service\ndaemon-reload\n");
    assert!(run_on(&machine, &new, &cx()).expect("and again").clean());
    run_on(&machine, &old, &cx()).expect("and back");
    assert!(tree.path(unit).exists() && tree.path("/etc/site.conf").exists());
}
