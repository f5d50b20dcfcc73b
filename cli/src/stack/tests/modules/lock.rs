//! Prebuilt modules, locked by the real apt.

use super::*;

/// Branch 580 of the driver. The modules have the names of branch 550.
const NEWER: Driver = Driver {
    name: "nvidia-kernel-dkms",
    version: "580.126.09-1",
    needs: "nvidia-kernel-support--v1",
    provides: "nvidia-kernel-580.126.09",
};
const NEWER_PACKAGE: &str = "linux-modules-nvidia-580-6.12.118+deb13-amd64";

/// Returns a stack with a version of the user space and with further packages.
fn stack(libcuda1: &str, packages: &[&str]) -> String {
    let packages: String = packages
        .iter()
        .map(|name| format!("\"{name}\" = \"*\"\n"))
        .collect();
    format!(
        "version = \"1\"\nimage = \"debian-12\"\nselector = {{ gpu = \"hopper\" }}\n[packages]\n\
         libcuda1 = \"{libcuda1}\"\n{packages}"
    )
}

/// Returns the arguments of a lock from the archive of the bench and from the packed modules.
fn lock(bench: &Bench, recipe: &Recipe, stack: &str, into: &str) -> LockArgs {
    LockArgs {
        open: true,
        also: vec![
            line(&bench.path("archive")),
            line(&recipe.path("out/packages")),
        ],
        ..bench.prepare(stack, into)
    }
}

#[tokio::test]
async fn prebuilt_modules_are_locked_beside_the_driver_in_place_of_dkms() {
    let bench = Bench::new();
    let recipe = Recipe::new();
    assert!(recipe.pack(&["--out", "out"]).success);
    let offered = [
        ("firmware-nvidia-gsp", "550.163.01"),
        ("libcuda1", "550.163.01-2"),
        ("linux-image-6.12.118+deb13-amd64", "6.12.118-1"),
        ("nvidia-installer-cleanup", "20240109+1"),
        ("nvidia-kernel-dkms", "550.163.01-2"),
        ("nvidia-kernel-support--v1", "550.163.01-2"),
    ];
    make_repository(bench.dir.path(), &bench.path("archive"), &offered);
    let prebuilt = stack("550.163.01-2", &[PACKAGE]);
    let locked = lock_stack(&lock(&bench, &recipe, &prebuilt, "prebuilt")).await;
    let packages = locked.unwrap().lock.expect("a lock").packages;
    let names: Vec<(&str, &str)> = packages
        .iter()
        .map(|package| (package.name.as_str(), package.version.as_str()))
        .collect();
    let mut wanted = offered.to_vec();
    wanted.retain(|(name, _)| *name != "nvidia-kernel-dkms");
    wanted.insert(3, (PACKAGE, VERSION));
    assert_eq!(names, wanted);

    let both = prebuilt + "nvidia-kernel-dkms = \"550.163.01-2\"\n";
    let refused = lock_stack(&lock(&bench, &recipe, &both, "both")).await;
    let refused = format!("{:#}", refused.unwrap_err());
    let by_apt = refused.contains("apt-get") && refused.contains("nvidia-kernel-dkms=");
    assert!(by_apt, "two packages with the same modules: {refused}");
}

#[tokio::test]
async fn a_lock_has_no_source_of_any_driver_beside_prebuilt_modules() {
    let bench = Bench::new();
    let recipe = Recipe::new();
    assert!(recipe.pack(&["--out", "out"]).success);
    let offered = [
        ("firmware-nvidia-gsp", "550.163.01"),
        ("libcuda1", "550.163.01-2"),
        ("linux-image-6.12.118+deb13-amd64", "6.12.118-1"),
        ("nvidia-installer-cleanup", "20240109+1"),
        ("nvidia-kernel-support--v1", "550.163.01-2"),
        ("nvidia-open-kernel-dkms", "550.163.01-2"),
        ("nvidia-tesla-535-kernel-dkms", "535.274.02-1~deb13u1"),
    ];
    make_repository(bench.dir.path(), &bench.path("archive"), &offered);
    for source in ["nvidia-open-kernel-dkms", "nvidia-tesla-535-kernel-dkms"] {
        let both = stack("550.163.01-2", &[PACKAGE, source]);
        let refused = lock_stack(&lock(&bench, &recipe, &both, source)).await;
        let refused = format!("{:#}", refused.unwrap_err());
        let by_apt = refused.contains("apt-get") && refused.contains(source);
        assert!(by_apt, "{source}: {refused}");
    }
}

#[tokio::test]
async fn of_two_branches_with_the_same_modules_a_lock_has_one() {
    let bench = Bench::new();
    let recipe = Recipe::new();
    assert!(recipe.pack(&["--out", "out"]).success);
    recipe.make_driver(&NEWER);
    for name in MODULES {
        recipe.compile(&format!("newer/{name}.ko"), RELEASE, "580.126.09");
    }
    let newer = recipe.pack(&["--modules", "newer", "--out", "out"]);
    assert!(newer.success, "{newer:?}");
    let offered = [
        ("firmware-nvidia-gsp", "550.163.01"),
        ("libcuda1", "580.126.09-1"),
        ("linux-image-6.12.118+deb13-amd64", "6.12.118-1"),
        ("nvidia-installer-cleanup", "20240109+1"),
        ("nvidia-kernel-support--v1", "580.126.09-1"),
    ];
    make_repository(bench.dir.path(), &bench.path("archive"), &offered);
    let both = stack("580.126.09-1", &[PACKAGE, NEWER_PACKAGE]);
    let refused = lock_stack(&lock(&bench, &recipe, &both, "both")).await;
    let refused = format!("{:#}", refused.unwrap_err());
    let by_apt = refused.contains("apt-get") && refused.contains(NEWER_PACKAGE);
    assert!(by_apt, "{refused}");

    let one = stack("580.126.09-1", &[NEWER_PACKAGE]);
    let locked = lock_stack(&lock(&bench, &recipe, &one, "one")).await;
    let packages = locked.unwrap().lock.expect("a lock").packages;
    let mut names = packages.iter().map(|package| package.name.as_str());
    assert!(names.any(|name| name == NEWER_PACKAGE), "{packages:?}");
}
