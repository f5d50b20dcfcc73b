//! A package of the recipe, locked by the real apt.

use super::*;

#[tokio::test]
async fn a_package_of_the_recipe_is_locked_with_its_library() {
    let bench = Bench::new();
    let recipe = make_folder();
    make_tree(&recipe, "tree", "nvbandwidth", None);
    let out = ["--upstream", "0.8", "--out", "out"];
    assert!(pack_tree(&recipe, "nvbandwidth", &out).success);
    let offered = [("libc6", "2.41-12"), ("nvbandwidth", "0.0-1")];
    make_repository(bench.dir.path(), &bench.path("archive"), &offered);
    let stack = "version = \"1\"\nimage = \"debian-12\"\n[packages]\nnvbandwidth = \"*\"\n";
    let args = LockArgs {
        open: true,
        also: vec![
            line(&bench.path("archive")),
            line(&recipe.path("out/packages")),
        ],
        ..bench.prepare(stack, "locked")
    };
    let packages = lock_stack(&args)
        .await
        .unwrap()
        .lock
        .expect("a lock")
        .packages;
    let names: Vec<(&str, &str)> = packages
        .iter()
        .map(|package| (package.name.as_str(), package.version.as_str()))
        .collect();
    assert_eq!(
        names,
        [("libc6", "2.41-12"), ("nvbandwidth", "0.8-1+deb13")]
    );
}
