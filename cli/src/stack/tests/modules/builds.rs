//! The build: wrong input, the kernel, patches of a source, and sources of apt.

use serde_json::json;

use super::*;

/// Wrong arguments of the build, with words of the answer.
const BUILD_ROWS: [(&str, &str); 14] = [
    (
        "--driver nvidia-kernel-dkms=550.163.01-2",
        "no kernel is named, or two; write --image MANIFEST",
    ),
    (
        "--image image.json --debian 13",
        "no kernel is named, or two",
    ),
    (
        "--debian 11 --kernel 5.10.0-1-amd64=5.10.1-1",
        "11 has no recipe; write 12 or 13",
    ),
    (
        "--debian 13 --kernel 6.12.118+deb13-rt-amd64=6.12.118-1",
        "6.12.118+deb13-rt-amd64 is a real-time kernel, which NVIDIA's driver refuses",
    ),
    (
        "--image image.json --driver nvidia-kernel-dkms=550.163.01-2 --out half",
        "half/key has a certificate without its key; name both by --key and --certificate",
    ),
    (
        "--image image.json --driver nvidia-kernel-dkms=550.163.01-2 --out other",
        "other/key has a key without its certificate; name both by --key and --certificate",
    ),
    ("--image gone.json", "gone.json: No such file or directory"),
    (
        "--image ubuntu.json",
        "is of ubuntu 24; write the manifest of an image of Debian 12 or 13",
    ),
    (
        "--image image.json --stack open.toml",
        "has no lock; write the output of `muster stack lock`",
    ),
    (
        "--image image.json --stack two.toml",
        "write --debian 13 --kernel with one of: 6.12.118+deb13-amd64=6.12.118-1, 6.12.119+deb13-amd64=6.12.119-1",
    ),
    (
        "--image image.json --driver nvidia-driver=550.163.01-2",
        "nvidia-driver is no driver; write nvidia-kernel-dkms",
    ),
    (
        "--image image.json --driver nvidia-kernel-dkms=550",
        "has no exact version; write PACKAGE=VERSION",
    ),
    (
        "--image image.json --stack locked.toml --driver nvidia-kernel-dkms=550.163.01-2",
        "have no linux-headers-6.12.119+deb13-amd64 6.12.119-1 (they have: no version of it). Debian keeps the headers of its newest kernels only",
    ),
    (
        "--image image.json --driver nvidia-kernel-dkms=535.274.02-1",
        "have no nvidia-kernel-dkms 535.274.02-1 (they have: 550.163.01-2). Write one of these versions",
    ),
];

#[test]
fn wrong_input_of_the_build_is_refused_with_advice() {
    let recipe = Recipe::new();
    let offered = [
        ("linux-headers-6.12.118+deb13-amd64", "6.12.118-1"),
        ("nvidia-kernel-dkms", "550.163.01-2"),
    ];
    make_repository(recipe.dir.path(), &recipe.path("mirror"), &offered);
    write_images(&recipe);
    recipe.write("half/key/modules.der", "");
    recipe.write("other/key/modules.pem", "");
    for (arguments, says) in BUILD_ROWS {
        let arguments = [&["--out", "out"][..], &split(arguments)[..]].concat();
        recipe.run("build", &arguments).expect_refused(says);
    }
}

/// Writes manifests of images, and stacks over the image of Debian 13.
fn write_images(recipe: &Recipe) {
    let mut image = json!({
        "name": "debian-13", "os": "debian", "os_version": "13", "arch": "amd64", "kernel": RELEASE,
        "packages": [
            { "name": format!("linux-image-{RELEASE}"), "version": "6.12.118-1", "arch": "amd64" },
            { "name": format!("linux-image-{RELEASE}-unsigned"), "version": "1", "arch": "amd64" },
        ],
    });
    recipe.write("image.json", &image.to_string());
    (image["os"], image["os_version"]) = (json!("ubuntu"), json!("24.04"));
    recipe.write("ubuntu.json", &image.to_string());
    let locked = |name: &str| {
        format!("[[lock.packages]]\nname = \"linux-image-{name}\"\nversion = \"6.12.119-1\"\n")
    };
    let head = "image = \"debian-13\"\n";
    let newer = head.to_owned()
        + &locked("6.12.119+deb13-amd64")
        + &locked("6.12.120+deb13-amd64-unsigned")
        + &locked("amd64");
    let present = locked(RELEASE).replace("6.12.119-1", "6.12.118-1");
    recipe.write("open.toml", head);
    recipe.write("locked.toml", &newer);
    recipe.write("two.toml", &(newer + &present));
}

#[test]
fn the_kernel_is_that_of_the_lock_else_that_of_the_image() {
    let recipe = Recipe::new();
    write_images(&recipe);
    for (arguments, output) in [
        (&["image.json"][..], "13 6.12.118+deb13-amd64 6.12.118-1\n"),
        (
            &["image.json", "locked.toml"][..],
            "13 6.12.119+deb13-amd64 6.12.119-1\n",
        ),
    ] {
        let ended = recipe.run("kernel", arguments);
        assert!(ended.success, "{ended:?}");
        assert_eq!(ended.output, output);
    }
}

#[test]
fn a_source_is_patched_only_for_a_kernel_that_needs_it() {
    const THREE: &str = "pci_dev, NV_GPU_BAR1, requested_size";
    const FOUR: &str = "pci_dev, NV_GPU_BAR1, requested_size, 0";
    const OLD: &str = "struct pci_dev *dev, int i, int size";
    const NEW: &str = "struct pci_dev *dev, int i, int size,\n\t\t\t\t     int exclude_bars";
    const PATCH: &str = "open-pci-resize-resource\n";
    let recipe = Recipe::new();
    let source = |call: &str| {
        format!(
            "resize:\n    /* Attempt to resize BAR1 to the largest supported size */\n    \
             r = pci_resize_resource({call});\n\n    if (r) {{\n"
        )
    };
    recipe.write("source/dkms.conf", "");
    for (declared, call, after, output) in [
        (NEW, THREE, FOUR, PATCH),
        (OLD, THREE, THREE, ""),
        (NEW, FOUR, FOUR, ""),
    ] {
        let header = format!("int __must_check pci_resize_resource({declared});\n");
        recipe.write("headers/include/linux/pci.h", &header);
        recipe.write("source/nvidia/nv-pci.c", &source(call));
        let ended = recipe.run("patch", &["source", "headers"]);
        assert!(ended.success, "{ended:?}");
        assert_eq!(ended.output, output, "{declared}: {call}");
        let patched = read(&recipe.path("source/nvidia/nv-pci.c")).unwrap();
        assert_eq!(patched, source(after), "{declared}: {call}");
    }
    // A kernel with a fifth argument.
    let header = format!("int pci_resize_resource({NEW}, int more);\n");
    recipe.write("headers/include/linux/pci.h", &header);
    let ended = recipe.run("patch", &["source", "headers"]);
    ended.expect_refused(
        "calls pci_resize_resource with 4 arguments, and the kernel wants 5; no patch is known",
    );
    // The proprietary source does not call the function.
    std::fs::remove_file(recipe.path("source/nvidia/nv-pci.c")).unwrap();
    let ended = recipe.run("patch", &["source", "headers"]);
    assert!(ended.success && ended.output.is_empty(), "{ended:?}");
}

#[test]
fn sources_of_a_recipe_are_those_of_the_mirror() {
    let main = "deb http://m trixie main\ndeb http://m trixie-updates main\n";
    let more = "deb http://m trixie main contrib\ndeb http://m trixie-updates main contrib\n";
    for (mirror, components, sources) in [
        ("http://m", "", main),
        ("http://m", "main contrib", more),
        (
            "deb http://a x main|deb [trusted=yes] copy:/b /",
            "",
            "deb http://a x main\ndeb [trusted=yes] copy:/b /\n",
        ),
    ] {
        let output = Command::new("bash")
            .arg("-c")
            .arg(". \"$1\"; SUITE=trixie COMPONENTS=$2; apt_sources")
            .arg("bash")
            .arg(shipped("../images/lib.sh"))
            .arg(components)
            .env("MIRROR", mirror)
            .env("KEYRING", "/nonexistent")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), sources);
    }
}
