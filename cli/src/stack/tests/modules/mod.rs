//! `stacks/modules`: the modules of a driver, packed from small modules, and locked by the real
//! apt. This file has the package of a driver, and its modules.

mod builds; // Wrong input of the build, the kernel, and patches of a source
mod lock; // Prebuilt modules in a lock
mod pack; // The package of the modules
mod refusals; // Wrong input of the packer
mod signing; // Signatures of the modules

use super::recipes::{BUILT, Ended, Recipe, line, make_repository, split};
use super::*;

const RELEASE: &str = "6.12.118+deb13-amd64";
/// The kernel, as an argument of the recipe: the release, and the version of the package.
const KERNEL: &str = "6.12.118+deb13-amd64=6.12.118-1";
const PACKAGE: &str = "linux-modules-nvidia-550-6.12.118+deb13-amd64";
const VERSION: &str = "550.163.01-2+6.12.118-1";
const MODULES: [&str; 2] = ["nvidia-current", "nvidia-current-uvm"];
/// The end of a signed module.
const MAGIC: &[u8] = b"~Module signature appended~\n";
/// A DKMS package of Debian 13, with the fields.
const PROPRIETARY: Driver = Driver {
    name: "nvidia-kernel-dkms",
    version: "550.163.01-2",
    needs: "firmware-nvidia-gsp (= 550.163.01) | firmware-nvidia-gsp-550.163.01, nvidia-kernel-support--v1",
    provides: "nvidia-kernel-550.163.01, nvidia-kernel-dkms-any (= 550.163.01)",
};

/// A DKMS package.
struct Driver {
    name: &'static str,
    version: &'static str,
    /// `Depends`, without dkms.
    needs: &'static str,
    provides: &'static str,
}

impl Recipe {
    /// Makes a folder with the package of a driver, and its modules.
    fn new() -> Self {
        let recipe = Self::of("modules");
        recipe.make_driver(&PROPRIETARY);
        for name in MODULES {
            recipe.compile(&format!("modules/{name}.ko"), RELEASE, "550.163.01");
        }
        recipe
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

    /// Writes a module for modinfo.
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

    /// Packs modules for the kernel. The last value of a repeated argument counts.
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
