//! The specification of the GPUs for container runtimes, from packages of a driver installed by
//! dpkg.

use super::*;

const PATH: &str = "/etc/cdi/nvidia.json";
const ITEM: &str = "file /etc/cdi/nvidia.json";
const V550: &str = "550.163.01-2";
const V535: &str = "535.309.01-1";

/// As the scripts of Debian's alternatives: the links are of no package.
fn postinst(version: &str) -> String {
    let folder = "/usr/lib/x86_64-linux-gnu";
    format!(
        "#!/bin/sh\nset -e\nln -sfn libcuda.so.{version} {folder}/nvidia/current/libcuda.so.1\n\
         ln -sfn nvidia/current/libcuda.so.1 {folder}/libcuda.so.1\n"
    )
}

/// Builds two versions of a driver.
fn setup_driver() -> Option<(Tree, Bundle)> {
    let tree = Tree::unpack()?;
    let library = |version| format!("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.{version}");
    let (new, old) = ("550.163.01", "535.309.01");
    let (new_library, old_library) = (library(new), library(old));
    let (new_script, old_script) = (postinst(new), postinst(old));
    let new_files = [
        ("postinst", new_script.as_str()),
        (new_library.as_str(), "550\n"),
    ];
    let old_files = [
        ("postinst", old_script.as_str()),
        (old_library.as_str(), "535\n"),
    ];
    let bundle = Bundle::of(&[
        ("drv-cuda", V550, "", &new_files),
        ("drv-cuda", V535, "", &old_files),
    ]);
    Some((tree, bundle))
}

fn with_cdi(bundle: &Bundle, version: &str) -> ConvergePlan {
    ConvergePlan {
        cdi: true,
        ..bundle.plan(&[("drv-cuda", version)])
    }
}

#[test]
fn the_specification_follows_the_driver_and_leaves_with_the_setting() {
    let Some((tree, bundle)) = setup_driver() else {
        return;
    };
    let machine = tree.machine();
    let plan = with_cdi(&bundle, V550);
    let report = run_on(&machine, &plan, &cx()).expect("the first run");
    assert!(
        outcomes(&report, ItemOutcome::Changed).contains(&ITEM),
        "{report:#?}"
    );
    let of_550 = tree.text(PATH);
    assert!(of_550.contains("libcuda.so.550.163.01"), "{of_550}");
    assert!(run_on(&machine, &plan, &cx()).expect("and again").clean());

    tree.write(PATH, "{}\n");
    let look = ConvergePlan {
        dry_run: true,
        ..plan.clone()
    };
    let drift = run_on(&machine, &look, &cx()).expect("a look");
    assert_eq!(outcomes(&drift, ItemOutcome::Differs), [ITEM]);
    run_on(&machine, &plan, &cx()).expect("written again");
    assert_eq!(tree.text(PATH), of_550);

    let report = run_on(&machine, &with_cdi(&bundle, V535), &cx()).expect("the other driver");
    assert!(
        outcomes(&report, ItemOutcome::Changed).contains(&ITEM),
        "{report:#?}"
    );
    let of_535 = tree.text(PATH);
    assert!(
        of_535.contains("libcuda.so.535.309.01") && !of_535.contains("550.163.01"),
        "{of_535}"
    );

    let without = bundle.plan(&[("drv-cuda", V535)]);
    let report = run_on(&machine, &without, &cx()).expect("without the setting");
    assert_eq!(outcomes(&report, ItemOutcome::Changed), [ITEM]);
    assert!(!tree.path(PATH).exists());
}

#[test]
fn no_specification_is_written_without_a_driver() {
    let Some((tree, bundle)) = setup_driver() else {
        return;
    };
    let machine = tree.machine();
    run_on(&machine, &with_cdi(&bundle, V550), &cx()).expect("the driver");
    assert!(tree.path(PATH).exists());
    let bare = ConvergePlan {
        cdi: true,
        ..bundle.plan(&[])
    };
    run_on(&machine, &bare, &cx()).expect("without the driver");
    assert!(!tree.path(PATH).exists());
    assert!(run_on(&machine, &bare, &cx()).expect("and again").clean());
}

#[test]
fn a_specification_of_a_person_is_kept_and_a_conflict_is_told() {
    let Some((tree, bundle)) = setup_driver() else {
        return;
    };
    let machine = tree.machine();
    let (plan, without) = (with_cdi(&bundle, V550), bundle.plan(&[("drv-cuda", V550)]));
    tree.write(PATH, "of a person\n");
    run_on(&machine, &without, &cx()).expect("without the setting");
    assert_eq!(tree.text(PATH), "of a person\n");
    run_on(&machine, &plan, &cx()).expect("with the setting");
    assert!(tree.text(PATH).contains("libcuda.so.550.163.01"));
    run_on(&machine, &without, &cx()).expect("without the setting again");
    assert_eq!(tree.text(PATH), "of a person\n", "restored");

    let other = "/etc/cdi/nvidia.yaml";
    tree.write(other, "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n");
    let failed = failure(run_on(&machine, &plan, &cx()));
    assert_eq!(
        (failed.code.as_str(), failed.retryable),
        ("cdi_conflict", false),
        "{failed:?}"
    );
    let advice = format!("remove {other}, or put the file into the stack's `files`");
    assert!(failed.message.contains(&advice), "{failed:?}");
    tree.remove(other);
    run_on(&machine, &plan, &cx()).expect("after the removal");
}

#[test]
fn a_service_that_reads_the_specification_starts_after_the_write() {
    let Some((tree, bundle)) = setup_driver() else {
        return;
    };
    tree.write("/etc/systemd/system/reader.service", "[Service]\n");
    tree.write("/var/lib/units/reader.service.needs", PATH);
    let mut plan = with_cdi(&bundle, V550);
    plan.services = vec![ServiceItem {
        name: "reader".into(),
        enabled: true,
        running: true,
        restart_on: vec![],
    }];
    run_on(&tree.machine(), &plan, &cx()).expect("the service starts");
    assert!(tree.path("/var/lib/units/reader.service.active").exists());
}

/// Makes the nodes of one GPU, as the real program does.
const NVIDIA_MODPROBE: &str = "#!/bin/sh\nset -e\necho \"$*\" >>/var/log/nodes\ncase \"$*\" in\n\
    '-c 0 -c 255') cd /dev; [ -e nvidia0 ] || { mknod nvidia0 c 195 0; mknod nvidiactl c 195 255; } ;;\n\
    '-u -c 0') exit 1 ;;\n\
    *) exit 2 ;;\nesac\n";

#[test]
fn the_nodes_of_a_loaded_driver_are_made_and_named() {
    let Some((tree, bundle)) = setup_driver() else {
        return;
    };
    let (machine, plan) = (tree.machine(), with_cdi(&bundle, V550));
    tree.program("/usr/bin/nvidia-modprobe", NVIDIA_MODPROBE);
    std::fs::create_dir_all(tree.path("/sys/module/nvidia")).expect("a folder");
    run_on(&machine, &plan, &cx()).expect("no GPU");
    assert!(!tree.path("/var/log/nodes").exists());
    assert!(!tree.text(PATH).contains("/dev/"), "{}", tree.text(PATH));

    let information = "/proc/driver/nvidia/gpus/0000:0f:00.0/information";
    tree.write(information, "Model: \t H\nDevice Minor: \t 0\n");
    tree.remove(PATH);
    run_on(&machine, &plan, &cx()).expect("a failure of nvidia-modprobe stops no run");
    let calls = "-c 0 -c 255\n-u -c 0\n";
    assert_eq!(tree.text("/var/log/nodes"), calls.repeat(2));
    let written = tree.text(PATH);
    for node in ["/dev/nvidia0\"", "/dev/nvidiactl\""] {
        assert!(written.contains(node), "{node} in {written}");
    }
    assert!(!written.contains("nvidia-uvm"), "{written}");
}
