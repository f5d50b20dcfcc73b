//! The package of the modules: bytes, relations, files and scripts.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const OPEN: Driver = Driver {
    name: "nvidia-open-kernel-dkms",
    version: "550.163.01-2",
    needs: "firmware-nvidia-gsp (= 550.163.01) | firmware-nvidia-gsp-550.163.01, nvidia-open-kernel-support--v1",
    provides: "nvidia-open-kernel-550.163.01, nvidia-open-kernel-dkms-any (= 550.163.01)",
};
const TESLA: Driver = Driver {
    name: "nvidia-tesla-535-kernel-dkms",
    version: "535.274.02-1~deb13u1",
    needs: "firmware-nvidia-tesla-535-gsp (= 535.274.02) | firmware-nvidia-gsp-535.274.02, nvidia-tesla-535-kernel-support--v1",
    provides: "nvidia-kernel-dkms-any (= 535.274.02), nvidia-tesla-535-kernel-535.274.02",
};

#[test]
fn the_same_modules_are_packed_to_the_same_bytes() {
    let recipe = Recipe::new();
    let first = recipe.pack(&["--out", "first"]);
    assert!(first.success, "{first:?}");
    assert!(first.messages.contains("made a key"), "{first:?}");
    // Files of another folder.
    std::fs::create_dir_all(recipe.path("elsewhere/modules")).unwrap();
    for name in MODULES {
        let file = format!("modules/{name}.ko");
        let copy = recipe.path("elsewhere").join(&file);
        std::fs::copy(recipe.path(&file), copy).unwrap();
    }
    let second = recipe.pack(&[
        "--modules",
        "elsewhere/modules",
        "--out",
        "elsewhere/second",
        "--key",
        "first/key/modules.pem",
        "--certificate",
        "first/key/modules.der",
    ]);
    assert!(second.success, "{second:?}");
    let package = recipe.read_package("first", VERSION);
    assert!(package == recipe.read_package("elsewhere/second", VERSION));
    for index in ["packages/Packages", "packages/Release"] {
        let read = |out: &str| std::fs::read(recipe.path(out).join(index)).unwrap();
        assert!(read("first") == read("elsewhere/second"), "{index}");
    }
    // The time of the archive's first member (deb(5)).
    let time = std::str::from_utf8(&package[24..36]).unwrap();
    assert_eq!(time.trim_end(), BUILT);

    let again = recipe.pack(&["--out", "first"]);
    assert!(again.success, "{again:?}");
    assert!(again.messages.contains("signing with the key of"));
    assert!(package == recipe.read_package("first", VERSION));
    let key = std::fs::metadata(recipe.path("first/key/modules.pem")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600, "a secret key");
}

#[test]
fn relations_and_files_follow_the_driver() {
    for (driver, branch, stem, provides, sources) in [
        (
            PROPRIETARY,
            "550",
            "nvidia-current",
            "nvidia-kernel-550.163.01",
            [OPEN.name, TESLA.name],
        ),
        (
            OPEN,
            "550-open",
            "nvidia-current-open",
            "nvidia-open-kernel-550.163.01",
            [PROPRIETARY.name, TESLA.name],
        ),
        (
            TESLA,
            "535",
            "nvidia-tesla-535",
            "nvidia-tesla-535-kernel-535.274.02",
            [PROPRIETARY.name, OPEN.name],
        ),
    ] {
        let recipe = Recipe::new();
        recipe.make_driver(&driver);
        let (upstream, _) = driver.version.split_once('-').unwrap();
        for name in ["", "-uvm"] {
            recipe.compile(&format!("built/{stem}{name}.ko"), RELEASE, upstream);
        }
        let patches = ["--patches", "open-one open-two"];
        let arguments = ["--modules", "built", "--out", "out"];
        let ended = recipe.pack(&[&arguments[..], &patches[..]].concat());
        assert!(ended.success, "{}: {ended:?}", driver.name);
        let name = format!("linux-modules-nvidia-{branch}-{RELEASE}");
        let version = format!("{}+6.12.118-1", driver.version);
        let needs = format!("linux-image-{RELEASE} (= 6.12.118-1), {}", driver.needs);
        let modules = format!("{stem}-modules-{RELEASE}");
        let provides = format!("{provides}, {modules} (= {version})");
        let any = "nvidia-kernel-dkms-any, nvidia-open-kernel-dkms-any";
        let conflicts = format!("{}, {}, {any}, {modules}", driver.name, sources.join(", "));
        let file = format!("out/packages/{name}_{version}_amd64.deb");
        let show = |arguments: &[&str]| {
            let shown = recipe.tool("dpkg-deb", arguments);
            String::from_utf8(shown).unwrap()
        };
        for (field, value) in [
            ("Package", name.as_str()),
            ("Version", version.as_str()),
            ("Pre-Depends", "nvidia-installer-cleanup"),
            ("Depends", needs.as_str()),
            ("Provides", provides.as_str()),
            ("Conflicts", conflicts.as_str()),
            ("Replaces", modules.as_str()),
        ] {
            assert_eq!(show(&["-f", &file, field]).trim_end(), value, "{field}");
        }
        assert!(show(&["-f", &file, "Description"]).contains("Patches: open-one open-two."));
        let files = show(&["--contents", &file]);
        for path in [
            format!("/usr/lib/modules/{RELEASE}/updates/nvidia/{stem}.ko.xz"),
            format!("/usr/share/{name}/modules.der"),
            format!("/usr/share/doc/{name}/copyright"),
        ] {
            assert!(files.contains(&path), "{path}: {files}");
        }
    }
}

#[test]
fn a_kernel_can_decompress_the_modules() {
    let recipe = Recipe::new();
    assert!(recipe.pack(&["--out", "out"]).success);
    let package = format!("out/packages/{PACKAGE}_{VERSION}_amd64.deb");
    recipe.tool("dpkg-deb", &["--extract", &package, "tree"]);
    for name in MODULES {
        let packed = format!("tree/usr/lib/modules/{RELEASE}/updates/nvidia/{name}.ko.xz");
        let listed = recipe.tool("xz", &["--robot", "--list", "-vv", &packed]);
        let listed = String::from_utf8(listed).unwrap();
        assert!(listed.contains("\tCRC32\t"), "{listed}");
        assert!(listed.contains("--lzma2=dict=1MiB\n"), "{listed}");
    }
}

#[test]
fn modules_are_listed_for_modprobe_after_an_installation_only() {
    let recipe = Recipe::new();
    assert!(recipe.pack(&["--out", "out"]).success);
    let package = format!("out/packages/{PACKAGE}_{VERSION}_amd64.deb");
    recipe.tool("dpkg-deb", &["--control", &package, "control"]);
    for name in ["depmod", "update-initramfs"] {
        let stub = format!("stubs/{name}");
        recipe.write(&stub, &format!("#!/bin/sh\necho {name} \"$@\"\n"));
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(recipe.path(&stub), mode).unwrap();
    }
    // The scripts change files of `RELEASE` only.
    for folder in ["/boot/initrd.img-", "/lib/modules/"] {
        let path = format!("{folder}{RELEASE}");
        assert!(!Path::new(&path).exists(), "a kernel of this test: {path}");
    }
    let path = format!("{}:/usr/bin:/bin", recipe.path("stubs").display());
    for (script, action, output) in [
        ("postinst", "configure", format!("depmod {RELEASE}\n")),
        ("postinst", "abort-upgrade", String::new()),
        ("postrm", "upgrade", String::new()),
        // The kernel left before the modules.
        ("postrm", "remove", String::new()),
    ] {
        let ended = Command::new(recipe.path("control").join(script))
            .arg(action)
            .env("PATH", &path)
            .output()
            .unwrap();
        assert!(ended.status.success(), "{script} {action}: {ended:?}");
        let printed = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(printed, output, "{script} {action}");
    }
}
