//! `stacks/modules`: the modules of a driver, packed from small modules, and locked by the real apt.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::json;

use super::*;

const RELEASE: &str = "6.12.118+deb13-amd64";
/// The kernel as the recipe takes it: the release, and the version of the package.
const KERNEL: &str = "6.12.118+deb13-amd64=6.12.118-1";
const PACKAGE: &str = "linux-modules-nvidia-550-6.12.118+deb13-amd64";
const VERSION: &str = "550.163.01-2+6.12.118-1";
const MODULES: [&str; 2] = ["nvidia-current", "nvidia-current-uvm"];
/// The time of the driver's package (Unix seconds).
const BUILT: &str = "1744000000";
/// The end of a signed module.
const MAGIC: &[u8] = b"~Module signature appended~\n";
/// The DKMS packages of Debian 13, with their fields.
const PROPRIETARY: Driver = Driver {
    name: "nvidia-kernel-dkms",
    version: "550.163.01-2",
    needs: "firmware-nvidia-gsp (= 550.163.01) | firmware-nvidia-gsp-550.163.01, nvidia-kernel-support--v1",
    provides: "nvidia-kernel-550.163.01, nvidia-kernel-dkms-any (= 550.163.01)",
};
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

/// Wrong arguments of the packer, with words of the answer.
const PACKER_ROWS: [(&str, &str); 17] = [
    ("", "--out is missing; write the folder"),
    ("--out", "--out needs a value"),
    ("--out o,t", "use letters, digits and"),
    ("--out out --colour red", "--colour is no argument"),
    ("--out out --revision 0", "0 is no number from 1 to 9999"),
    (
        "--out out --kernel 6.12.118",
        "such as 6.12.118+deb13-amd64=6.12.118-1",
    ),
    (
        "--out out --driver module.c",
        "write the file of the driver's DKMS package",
    ),
    ("--out out --modules driver", "driver has no module (*.ko)"),
    (
        "--out out --modules newer",
        "is for kernel 6.12.119+deb13-amd64; build it for 6.12.118+deb13-amd64",
    ),
    (
        "--out out --modules older",
        "is of version 535.274.02, but nvidia-kernel-dkms is of 550.163.01",
    ),
    ("--out out --modules signed", "is signed already"),
    (
        "--out out --key rsa.pem",
        "--key has no certificate; add --certificate",
    ),
    (
        "--out out --certificate rsa.der",
        "--certificate has no key; add --key",
    ),
    (
        "--out out --key rsa.pem --certificate ec.der",
        "ec.der belongs to another key than rsa.pem",
    ),
    (
        "--out out --key rsa.pem --certificate rsa.crt",
        "rsa.crt is PEM; write DER",
    ),
    (
        "--out out --key protected.pem --certificate rsa.der",
        "has a passphrase; write a key without one",
    ),
    (
        "--out out --key ec.pem --certificate ec.der",
        "ec.pem is no RSA key",
    ),
];

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

/// A DKMS package.
struct Driver {
    name: &'static str,
    version: &'static str,
    /// `Depends`, without dkms.
    needs: &'static str,
    provides: &'static str,
}

/// A folder with the package of a driver, and its modules.
struct Recipe {
    dir: tempfile::TempDir,
}

/// The end of a program of the recipe.
#[derive(Debug)]
struct Ended {
    success: bool,
    output: String,
    messages: String,
}

impl Recipe {
    fn new() -> Self {
        let recipe = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        recipe.make_driver(&PROPRIETARY);
        for name in MODULES {
            recipe.compile(&format!("modules/{name}.ko"), RELEASE, "550.163.01");
        }
        recipe
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs a program of the system in the folder, and returns its output.
    fn tool(&self, program: &str, arguments: &[&str]) -> Vec<u8> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.dir.path())
            .env("SOURCE_DATE_EPOCH", BUILT)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        output.stdout
    }

    /// Writes `driver.deb`.
    fn make_driver(&self, driver: &Driver) {
        let Driver {
            name,
            version,
            needs,
            provides,
        } = driver;
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\n\
             Pre-Depends: nvidia-installer-cleanup\nDepends: {needs}, dkms (>= 3.0.11)\nProvides: {provides}\n\
             Description: test\n"
        );
        self.write("driver/DEBIAN/control", &control);
        let copyright = format!("driver/usr/share/doc/{name}/copyright");
        self.write(&copyright, "a licence\n");
        let build = ["--root-owner-group", "--build", "driver", "driver.deb"];
        self.tool("dpkg-deb", &build);
    }

    /// Writes a module that modinfo can read.
    fn compile(&self, file: &str, release: &str, version: &str) {
        let entry = |name: &str, value: &str| {
            format!(
                "__attribute__((section(\".modinfo\"), used)) static const char {name}[] = \"{name}={value}\";\n"
            )
        };
        let vermagic = entry("vermagic", &format!("{release} SMP preempt mod_unload"));
        self.write("module.c", &(entry("version", version) + &vermagic));
        std::fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        self.tool("gcc", &["-c", "-o", file, "module.c"]);
    }

    /// Runs a program of the recipe.
    fn run(&self, program: &str, arguments: &[&str]) -> Ended {
        let output = Command::new(shipped("modules").join(program))
            .args(arguments)
            .current_dir(self.dir.path())
            .env("MUSTER_CACHE", self.path("cache"))
            .env("MIRROR", line(&self.path("mirror")))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Ended {
            success: output.status.success(),
            output: String::from_utf8(output.stdout).unwrap(),
            messages: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Packs modules for the kernel. A later argument replaces an earlier one.
    fn pack(&self, arguments: &[&str]) -> Ended {
        let fixed = [
            "--driver",
            "driver.deb",
            "--kernel",
            KERNEL,
            "--modules",
            "modules",
        ];
        self.run("pack", &[&fixed[..], arguments].concat())
    }

    fn read_package(&self, out: &str, version: &str) -> Vec<u8> {
        let file = format!("{out}/packages/{PACKAGE}_{version}_amd64.deb");
        std::fs::read(self.path(&file)).unwrap()
    }

    /// Makes an RSA key with a certificate, a second form of both, and a key of another kind.
    fn make_keys(&self) {
        let rsa = [
            "-newkey", "rsa:2048", "-keyout", "rsa.pem", "-out", "rsa.der",
        ];
        let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        let ec = [&ec[..], &["-keyout", "ec.pem", "-out", "ec.der"][..]].concat();
        let request = ["req", "-new", "-x509", "-nodes", "-subj", "/CN=test"];
        for kind in [&rsa[..], &ec[..]] {
            let arguments = [&request[..], &["-outform", "DER"][..], kind].concat();
            self.tool("openssl", &arguments);
        }
        let pem = [
            "x509", "-inform", "DER", "-in", "rsa.der", "-out", "rsa.crt",
        ];
        self.tool("openssl", &pem);
        let protected = [
            "pkey",
            "-in",
            "rsa.pem",
            "-aes256",
            "-passout",
            "pass:secret",
        ];
        let protected = [&protected[..], &["-out", "protected.pem"][..]].concat();
        self.tool("openssl", &protected);
    }
}

impl Ended {
    fn expect_refused(&self, says: &str) {
        assert!(!self.success, "{says}: {self:?}");
        assert!(self.messages.contains(says), "{says}: {self:?}");
        assert!(self.output.is_empty(), "{says}: {self:?}");
    }
}

fn split(arguments: &str) -> Vec<&str> {
    arguments.split_whitespace().collect()
}

/// Returns the source line of a flat repository.
fn line(folder: &Path) -> String {
    format!("deb [trusted=yes] copy:{} /", folder.display())
}

/// Makes a flat repository of empty packages.
fn make_repository(dir: &Path, folder: &Path, packages: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).unwrap();
    let stanzas = packages
        .iter()
        .map(|(name, version)| build(dir, folder, (*name, *version, "amd64", "")));
    let packages: String = stanzas.collect();
    let (digest, size) = (Digest::of(packages.as_bytes()).hex(), packages.len());
    let date = "Date: Thu, 01 Jan 2026 00:00:00 UTC";
    let release = format!("{date}\nSHA256:\n {digest} {size} Packages\n");
    std::fs::write(folder.join("Release"), release).unwrap();
    std::fs::write(folder.join("Packages"), packages).unwrap();
}

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
    for (driver, branch, provides) in [
        (PROPRIETARY, "550", "nvidia-kernel-550.163.01"),
        (OPEN, "550-open", "nvidia-open-kernel-550.163.01"),
        (TESLA, "535", "nvidia-tesla-535-kernel-535.274.02"),
    ] {
        let recipe = Recipe::new();
        recipe.make_driver(&driver);
        let (upstream, _) = driver.version.split_once('-').unwrap();
        recipe.compile("modules/nvidia-current.ko", RELEASE, upstream);
        recipe.compile("modules/nvidia-current-uvm.ko", RELEASE, upstream);
        let ended = recipe.pack(&["--out", "out", "--patches", "open-one open-two"]);
        assert!(ended.success, "{}: {ended:?}", driver.name);
        let name = format!("linux-modules-nvidia-{branch}-{RELEASE}");
        let version = format!("{}+6.12.118-1", driver.version);
        let needs = format!("linux-image-{RELEASE} (= 6.12.118-1), {}", driver.needs);
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
            ("Provides", provides),
            ("Conflicts", driver.name),
        ] {
            assert_eq!(show(&["-f", &file, field]).trim_end(), value, "{field}");
        }
        assert!(show(&["-f", &file, "Description"]).contains("Patches: open-one open-two."));
        let files = show(&["--contents", &file]);
        for path in [
            format!("/usr/lib/modules/{RELEASE}/updates/nvidia/nvidia-current.ko.xz"),
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
    // The scripts change this kernel's files only.
    for folder in ["/boot/initrd.img-", "/lib/modules/"] {
        let path = format!("{folder}{RELEASE}");
        assert!(!Path::new(&path).exists(), "a kernel of this test: {path}");
    }
    let path = format!("{}:/usr/bin:/bin", recipe.path("stubs").display());
    for (script, action, output) in [
        ("postinst", "configure", format!("depmod {RELEASE}\n")),
        ("postinst", "abort-upgrade", String::new()),
        ("postrm", "upgrade", String::new()),
        // The kernel left before its modules.
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

#[test]
fn modules_are_signed_as_the_kernel_verifies_them() {
    let recipe = Recipe::new();
    assert!(recipe.pack(&["--out", "out"]).success);
    let package = format!("out/packages/{PACKAGE}_{VERSION}_amd64.deb");
    recipe.tool("dpkg-deb", &["--extract", &package, "tree"]);
    let folder = format!("tree/usr/lib/modules/{RELEASE}/updates/nvidia");
    let packed = format!("{folder}/nvidia-current.ko.xz");
    let signed = recipe.tool("xz", &["--decompress", "--stdout", &packed]);
    let rest = signed.strip_suffix(MAGIC).unwrap();
    let (rest, size) = rest.split_last_chunk::<4>().unwrap();
    let (rest, head) = rest.split_last_chunk::<8>().unwrap();
    assert_eq!(head, &[0, 0, 2, 0, 0, 0, 0, 0], "PKCS#7 alone");
    let size = usize::try_from(u32::from_be_bytes(*size)).unwrap();
    let (content, signature) = rest.split_at(rest.len() - size);
    let module = std::fs::read(recipe.path("modules/nvidia-current.ko")).unwrap();
    assert!(content == module, "the module as it was built");

    std::fs::write(recipe.path("content"), content).unwrap();
    std::fs::write(recipe.path("signature"), signature).unwrap();
    let certificate = ["-in", "out/key/modules.der", "-out", "certificate.pem"];
    let certificate = [&["x509", "-inform", "DER"][..], &certificate[..]].concat();
    recipe.tool("openssl", &certificate);
    let message = ["cms", "-inform", "DER", "-in", "signature"];
    let verify = [
        "-verify",
        "-binary",
        "-noverify",
        "-content",
        "content",
        "-certfile",
        "certificate.pem",
        "-out",
        "verified",
    ];
    recipe.tool("openssl", &[&message[..], &verify[..]].concat());
    // The kernel refuses a module whose signature has attributes (pkcs7_verify).
    let print = ["-cmsout", "-noout", "-print"];
    let shown = recipe.tool("openssl", &[&message[..], &print[..]].concat());
    let shown = String::from_utf8(shown).unwrap();
    let (_, attributes) = shown.split_once("signedAttrs:").unwrap();
    assert!(attributes.trim_start().starts_with("<ABSENT>"), "{shown}");
    let signer = recipe.tool("/sbin/modinfo", &["-F", "signer", &packed]);
    assert!(signer.starts_with(b"Muster modules "), "{signer:?}");
}

#[test]
fn wrong_input_of_the_packer_is_refused_with_advice() {
    let recipe = Recipe::new();
    recipe.make_keys();
    assert!(recipe.pack(&["--out", "first"]).success);
    recipe.compile(
        "newer/nvidia-current.ko",
        "6.12.119+deb13-amd64",
        "550.163.01",
    );
    recipe.compile("older/nvidia-current.ko", RELEASE, "535.274.02");
    recipe.compile("signed/nvidia-current.ko", RELEASE, "550.163.01");
    let signed = recipe.path("signed/nvidia-current.ko");
    let bytes = [&std::fs::read(&signed).unwrap()[..], MAGIC].concat();
    std::fs::write(&signed, bytes).unwrap();
    for (arguments, says) in PACKER_ROWS {
        recipe.pack(&split(arguments)).expect_refused(says);
    }
    let made = std::fs::read_dir(recipe.path("out/packages"));
    assert_eq!(made.unwrap().count(), 0, "no part of a package");

    // Another key makes other bytes, which no node would install under the same version.
    let key = [
        "--out",
        "first",
        "--key",
        "rsa.pem",
        "--certificate",
        "rsa.der",
    ];
    recipe.pack(&key).expect_refused("write --revision 2");
    let second = recipe.pack(&[&key[..], &["--revision", "2"][..]].concat());
    assert!(second.success, "{second:?}");
    let index = read(&recipe.path("first/packages/Packages")).unwrap();
    for version in [VERSION, "550.163.01-2+6.12.118-1+2"] {
        assert!(index.contains(&format!("Version: {version}\n")), "{index}");
    }
}

#[test]
fn another_driver_or_half_a_key_of_the_folder_is_refused() {
    let recipe = Recipe::new();
    assert!(recipe.pack(&["--out", "out"]).success);
    // Another driver of the branch, with the same name of the package.
    recipe.make_driver(&Driver {
        name: "nvidia-tesla-550-kernel-dkms",
        ..PROPRIETARY
    });
    let again = ["--out", "out", "--revision", "2"];
    recipe.pack(&again).expect_refused(
        "of another driver (nvidia-kernel-dkms), not of nvidia-tesla-550-kernel-dkms",
    );

    recipe.make_driver(&PROPRIETARY);
    let key = recipe.path("out/key/modules.pem");
    std::fs::rename(&key, recipe.path("away.pem")).unwrap();
    let certificate = std::fs::read(recipe.path("out/key/modules.der")).unwrap();
    recipe
        .pack(&again)
        .expect_refused("has a certificate without its key; name both");
    let kept = std::fs::read(recipe.path("out/key/modules.der")).unwrap();
    assert!(kept == certificate && !key.exists(), "the site's pair");
}

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
