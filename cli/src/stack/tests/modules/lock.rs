//! Prebuilt modules, locked by the real apt.

use super::*;

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
    let stack = format!(
        "version = \"1\"\nimage = \"debian-12\"\nselector = {{ gpu = \"hopper\" }}\n[packages]\n\
         libcuda1 = \"550.163.01-2\"\n\"{PACKAGE}\" = \"*\"\n"
    );
    let lock = |stack: &str, into: &str| LockArgs {
        open: true,
        also: vec![
            line(&bench.path("archive")),
            line(&recipe.path("out/packages")),
        ],
        ..bench.prepare(stack, into)
    };
    let locked = lock_stack(&lock(&stack, "prebuilt")).await.unwrap();
    let packages = locked.lock.expect("a lock").packages;
    let names: Vec<(&str, &str)> = packages
        .iter()
        .map(|package| (package.name.as_str(), package.version.as_str()))
        .collect();
    let mut wanted = offered.to_vec();
    wanted.retain(|(name, _)| *name != "nvidia-kernel-dkms");
    wanted.insert(3, (PACKAGE, VERSION));
    assert_eq!(names, wanted);

    let both = stack + "nvidia-kernel-dkms = \"550.163.01-2\"\n";
    let refused = lock_stack(&lock(&both, "both")).await.unwrap_err();
    let refused = format!("{refused:#}");
    let by_apt = refused.contains("apt-get") && refused.contains("nvidia-kernel-dkms=");
    assert!(by_apt, "two packages with the same modules: {refused}");
}
