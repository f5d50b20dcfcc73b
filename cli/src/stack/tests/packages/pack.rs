//! The package of built programs: bytes, relations and files, and wrong input.

use super::*;

const PACKAGE: &str = "nccl-tests_2.19.6-1+deb13_amd64.deb";

/// Returns a field of a package.
fn field(recipe: &Recipe, file: &str, name: &str) -> String {
    let shown = recipe.tool("dpkg-deb", &["--field", file, name]);
    String::from_utf8(shown).unwrap().trim_end().to_owned()
}

#[test]
fn the_same_programs_are_packed_to_the_same_bytes() {
    let recipe = make_folder();
    make_tree(&recipe, "tree", "nccl-tests", Some("libnccl.so.2"));
    let first = pack_tree(&recipe, "nccl-tests", &["--out", "first"]);
    assert!(first.success, "{first:?}");
    // Files of another folder, with other times.
    std::fs::create_dir(recipe.path("elsewhere")).unwrap();
    recipe.tool("cp", &["--recursive", "tree", "elsewhere/tree"]);
    let other = ["--tree", "elsewhere/tree", "--out", "elsewhere/second"];
    let second = pack_tree(&recipe, "nccl-tests", &other);
    assert!(second.success, "{second:?}");
    for file in [PACKAGE, "Packages", "Release"] {
        let read = |out: &str| std::fs::read(recipe.path(out).join("packages").join(file)).unwrap();
        assert!(read("first") == read("elsewhere/second"), "{file}");
    }
    let package = std::fs::read(recipe.path("first/packages").join(PACKAGE)).unwrap();
    // The time of the archive's first member (deb(5)).
    let time = std::str::from_utf8(&package[24..36]).unwrap();
    assert_eq!(time.trim_end(), BUILT);
    let again = pack_tree(&recipe, "nccl-tests", &["--out", "first"]);
    assert!(again.success, "{again:?}");
}

#[test]
fn files_have_the_time_of_the_source_also_on_a_builder_with_a_late_clock() {
    let recipe = make_folder();
    make_tree(&recipe, "tree", "nccl-tests", None);
    // 2100-06-15 12:00 UTC. dpkg-deb moves later times back to the time of the source, and keeps
    // earlier ones.
    let time = ["--out", "out", "--time", "4116744000"];
    let ended = pack_tree(&recipe, "nccl-tests", &time);
    assert!(ended.success, "{ended:?}");
    let file = format!("out/packages/{PACKAGE}");
    let contents = recipe.tool("dpkg-deb", &["--contents", &file]);
    let contents = String::from_utf8(contents).unwrap();
    assert!(contents.contains(" ./usr/bin/nccl-tests"), "{contents}");
    for line in contents.lines() {
        assert!(line.contains(" 2100-06-15 "), "{line}");
    }
}

#[test]
fn a_package_depends_on_the_libraries_of_its_programs() {
    let recipe = make_folder();
    for (package, library, depends) in [
        (
            "nccl-tests",
            "libnccl.so.2",
            "libc6 (>= 2.41), libnccl2 (>= 2.22.3-1)",
        ),
        (
            "gpu-burn",
            "libcublas.so.12",
            "libc6 (>= 2.41), libcublas12 (>= 12.4.5.8~12.4.1)",
        ),
        // A driver of any branch.
        (
            "nvbandwidth",
            "libcuda.so.1",
            "libc6 (>= 2.41), libcuda1 | libcuda.so.1",
        ),
    ] {
        make_tree(&recipe, package, package, Some(library));
        let ended = pack_tree(&recipe, package, &["--tree", package, "--out", "out"]);
        assert!(ended.success, "{ended:?}");
        let file = format!("out/packages/{package}_2.19.6-1+deb13_amd64.deb");
        assert_eq!(field(&recipe, &file, "Depends"), depends, "{package}");
        assert_eq!(field(&recipe, &file, "Conflicts"), "", "{package}");
        let contents = recipe.tool("dpkg-deb", &["--contents", &file]);
        let contents = String::from_utf8(contents).unwrap();
        for (mode, path) in [
            ("-rwxr-xr-x root/root", format!(" ./usr/bin/{package}")),
            (
                "-rw-r--r-- root/root",
                format!(" ./usr/share/doc/{package}/copyright"),
            ),
        ] {
            let is_listed = |line: &str| line.starts_with(mode) && line.ends_with(&path);
            assert!(contents.lines().any(is_listed), "{path}: {contents}");
        }
    }
}

#[test]
fn the_toolkit_replaces_nvidias_package_and_keeps_a_sites_settings() {
    let recipe = make_folder();
    make_tree(&recipe, "tree", "nvidia-container-toolkit", None);
    let shipped = shipped("packages/nvidia-container-toolkit/config.toml");
    let settings = read(&shipped).unwrap();
    recipe.write("tree/etc/nvidia-container-runtime/config.toml", &settings);
    let out = ["--upstream", "1.20.0", "--out", "out"];
    let ended = pack_tree(&recipe, "nvidia-container-toolkit", &out);
    assert!(ended.success, "{ended:?}");
    let file = "out/packages/nvidia-container-toolkit_1.20.0-1+deb13_amd64.deb";
    let base = "nvidia-container-toolkit-base";
    let provides = format!("{base} (= 1.20.0-1+deb13)");
    assert_eq!(field(&recipe, file, "Provides"), provides);
    assert_eq!(field(&recipe, file, "Conflicts"), base);
    assert_eq!(field(&recipe, file, "Replaces"), base);
    recipe.tool("dpkg-deb", &["--control", file, "control"]);
    let kept = read(&recipe.path("control/conffiles")).unwrap();
    assert_eq!(kept, "/etc/nvidia-container-runtime/config.toml\n");
    let settings: toml::Value = toml::from_str(&settings).unwrap();
    let runtime = &settings["nvidia-container-runtime"];
    assert_eq!(runtime["mode"].as_str(), Some("cdi"));
    let folders = &runtime["modes"]["cdi"]["spec-dirs"];
    assert_eq!(folders[0].as_str(), Some("/etc/cdi"));
}

/// A wrong tree or argument of the packer, with words of the answer.
const ROWS: [(&str, &str); 12] = [
    ("--tree gone", "gone does not exist; write the folder"),
    ("--installed gone", "gone does not exist; write the file"),
    ("--upstream new", "new is no version; write one such as"),
    ("--time now", "now is no time; write Unix seconds"),
    ("--tree text", "nccl-tests is no program"),
    ("--tree object", "object has no program in usr/bin"),
    ("--tree unlicensed", "the licence is missing; write it to"),
    ("--tree linked", "usr/bin/link is no plain file"),
    (
        "--tree stray",
        "opt/file does not belong into the package; only usr/bin, etc and the licence do",
    ),
    ("--tree odd", "needs libodd.so.1, whose package is unknown"),
    (
        "--tree driver --installed empty",
        "empty has no version of libc6",
    ),
    (
        "--package cuda-samples",
        "cuda-samples has no recipe; write",
    ),
];

#[test]
fn wrong_input_of_the_packer_is_refused_with_advice() {
    let recipe = make_folder();
    let licence = "usr/share/doc/nccl-tests/copyright";
    for tree in ["tree", "unlicensed", "linked", "stray"] {
        make_tree(&recipe, tree, "nccl-tests", Some("libnccl.so.2"));
    }
    make_tree(&recipe, "odd", "nccl-tests", Some("libodd.so.1"));
    make_tree(&recipe, "driver", "nccl-tests", Some("libcuda.so.1"));
    recipe.write("empty", "");
    recipe.write("text/usr/bin/nccl-tests", "#!/bin/sh\n");
    for tree in ["text", "object"] {
        recipe.write(&format!("{tree}/{licence}"), LICENCE);
    }
    recipe.write(&format!("unlicensed/{licence}"), "");
    let link = recipe.path("linked/usr/bin/link");
    std::os::unix::fs::symlink("/etc/passwd", link).unwrap();
    recipe.write("stray/opt/file", "");
    for (arguments, says) in ROWS {
        let arguments = [&["--out", "out"][..], &split(arguments)[..]].concat();
        pack_tree(&recipe, "nccl-tests", &arguments).expect_refused(says);
    }
    assert!(!recipe.path("out").exists(), "no part of a package");

    // Other bytes of the same version: a node installs no other bytes.
    assert!(pack_tree(&recipe, "nccl-tests", &["--out", "out"]).success);
    let driver = ["--out", "out", "--tree", "driver"];
    pack_tree(&recipe, "nccl-tests", &driver).expect_refused("write --revision 2");
    let second = [&driver[..], &["--revision", "2"][..]].concat();
    let second = pack_tree(&recipe, "nccl-tests", &second);
    assert!(second.success, "{second:?}");
    let index = read(&recipe.path("out/packages/Packages")).unwrap();
    for version in ["2.19.6-1+deb13", "2.19.6-2+deb13"] {
        assert!(index.contains(&format!("Version: {version}\n")), "{index}");
    }
}
