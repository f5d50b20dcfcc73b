//! A bundle as served by the agent: a flat repository of tiny packages over HTTP, on loopback.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use muster_core::stacks::{ConvergePlan, LockedPackage};
use muster_core::values::Digest;

type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A maintainer script reporting its run, and waiting on request.
const SLOW: &str =
    "#!/bin/sh\nset -e\n[ ! -e /run/slow-SCRIPT ] || { touch /run/in-SCRIPT; sleep 60; }\n";

/// The packages of a tuple, each with its dependencies of the same version.
pub(super) const TUPLE: [(&str, &[&str]); 5] = [
    ("drv-kmod", &[]),
    ("drv-lib", &["drv-kmod"]),
    ("drv-fabric", &["drv-lib", "drv-kmod"]),
    ("drv-tools", &["drv-lib"]),
    (
        "drv-meta",
        &["drv-kmod", "drv-lib", "drv-fabric", "drv-tools"],
    ),
];

/// A package to build: name, version, fields of the control file, and files by path or maintainer
/// scripts by name.
pub(super) type Made<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)]);

/// A running repository.
pub(super) struct Bundle {
    address: String,
    files: Files,
    packages: Vec<LockedPackage>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bundle {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bundle = Self::listen();
        let mut index = String::new();
        for version in ["1.0", "2.0"] {
            bundle.add(folder.path(), &mut index, "tuple-kmod", version, "", &[]);
            // A driver and its kernel module: each needs the other.
            let depends = format!("Depends: tuple-kmod (= {version})\n");
            bundle.add(
                folder.path(),
                &mut index,
                "tuple-top",
                version,
                &depends,
                &[],
            );
            let scripts =
                ["preinst", "postinst"].map(|script| (script, SLOW.replace("SCRIPT", script)));
            bundle.add(folder.path(), &mut index, "slow", version, "", &scripts);
        }
        let postinst = "#!/bin/sh\nset -e\ngrep -q daemon-user /etc/passwd || echo 'daemon-user:x:990:990::/:/bin/false' >>/etc/passwd\n\
                        deb-systemd-invoke start first.service daemon.service\n";
        bundle.add(
            folder.path(),
            &mut index,
            "daemon",
            "1:2.0",
            "",
            &[("postinst", postinst.into())],
        );
        bundle
            .files
            .lock()
            .expect("no panic")
            .insert("/bundle/Packages".into(), index.into_bytes());
        bundle
    }

    /// Builds five packages of each version, like a driver: each package depends on exact versions
    /// of others. The sixth package, `big`, fills a folder of its own.
    pub(super) fn tuple(versions: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bundle = Self::listen();
        let mut index = String::new();
        for version in versions {
            for (name, needs) in TUPLE {
                let exactly = |needed: &&str| format!("{needed} (= {version})");
                let needs = needs.iter().map(exactly).collect::<Vec<_>>().join(", ");
                let depends = if needs.is_empty() {
                    needs
                } else {
                    format!("Depends: {needs}\n")
                };
                let script = SLOW.replace("slow-SCRIPT", name).replace("SCRIPT", name);
                bundle.add(
                    folder.path(),
                    &mut index,
                    name,
                    version,
                    &depends,
                    &[("preinst", script)],
                );
            }
        }
        let filling = [("opt/big/blob", "x".repeat(3 << 20))];
        bundle.add(folder.path(), &mut index, "big", "1.0", "", &filling);
        bundle
            .files
            .lock()
            .expect("no panic")
            .insert("/bundle/Packages".into(), index.into_bytes());
        bundle
    }

    /// Builds the given packages only.
    pub(super) fn of(packages: &[Made<'_>]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bundle = Self::listen();
        let mut index = String::new();
        for (name, version, fields, files) in packages {
            let files: Vec<(&str, String)> = files
                .iter()
                .map(|(path, text)| (*path, (*text).to_owned()))
                .collect();
            bundle.add(folder.path(), &mut index, name, version, fields, &files);
        }
        bundle
            .files
            .lock()
            .expect("no panic")
            .insert("/bundle/Packages".into(), index.into_bytes());
        bundle
    }

    /// Returns the source line of a person using the bundle as a repository.
    pub(super) fn source(&self) -> String {
        format!("deb [trusted=yes] http://{}/bundle/ /\n", self.address)
    }

    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (files, stop) = (Files::default(), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (files, stop) = (Arc::clone(&files), Arc::clone(&stop));
            move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    stream
                        .into_iter()
                        .for_each(|stream| _ = answer(stream, &files));
                }
            }
        });
        Self {
            address,
            files,
            packages: Vec::new(),
            stop,
            thread: Some(thread),
        }
    }

    fn add(
        &mut self,
        folder: &Path,
        index: &mut String,
        name: &str,
        version: &str,
        fields: &str,
        scripts: &[(&str, String)],
    ) {
        let tree = folder.join(name);
        let _ = std::fs::remove_dir_all(&tree);
        std::fs::create_dir_all(tree.join("DEBIAN")).expect("a folder");
        std::fs::create_dir_all(tree.join("lib/systemd/system")).expect("a folder");
        std::fs::write(
            tree.join(format!("lib/systemd/system/{name}.service")),
            "[Service]\n",
        )
        .expect("a unit");
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Muster <muster@example.org>\n{fields}Description: test\n"
        );
        std::fs::write(tree.join("DEBIAN/control"), &control).expect("control");
        for (script, text) in scripts {
            use std::os::unix::fs::PermissionsExt as _;
            // A maintainer script, or a file by its path.
            let path = if script.contains('/') {
                tree.join(script)
            } else {
                tree.join("DEBIAN").join(script)
            };
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, text).expect("a script");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
                .expect("a mode");
        }
        let filename = format!("{name}_{}_amd64.deb", version.replace(':', "%3a"));
        let file = folder.join(&filename);
        let built = Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .arg(&tree)
            .arg(&file)
            .output()
            .expect("dpkg-deb");
        assert!(built.status.success(), "{built:?}");
        let bytes = std::fs::read(&file).expect("a package");
        let (size, sha256) = (bytes.len() as u64, Digest::of(&bytes));
        // A name in a Packages file is a path, so a percent sign is sent as %25.
        let _ = write!(
            index,
            "{control}Filename: {filename}\nSize: {size}\nSHA256: {}\n\n",
            sha256.hex()
        );
        self.files
            .lock()
            .expect("no panic")
            .insert(format!("/bundle/{}", filename.replace('%', "%25")), bytes);
        let (name, version, arch) = (name.into(), version.into(), "amd64".into());
        self.packages.push(LockedPackage {
            name,
            version,
            arch,
            size,
            sha256,
            filename,
        });
    }

    /// Returns a plan for the given packages only.
    pub(super) fn plan(&self, wanted: &[(&str, &str)]) -> ConvergePlan {
        let find = |(name, version): &(&str, &str)| {
            let fits =
                |package: &&LockedPackage| package.name == *name && package.version == *version;
            self.packages
                .iter()
                .find(fits)
                .cloned()
                .expect("a package of the bundle")
        };
        let node = "0197b0f2-9a3c-7000-8000-000000000000";
        let mut plan: ConvergePlan = serde_json::from_value(serde_json::json!({
            "lock": Digest::of(b"lock"), "repository": format!("http://{}/bundle", self.address), "packages": [], "absent": [],
            "files": [], "sysctl": {}, "modules_load": [], "modules_blacklist": [], "kernel_args": [], "limits": [],
            "services": [], "principal": format!("muster:{node}:1"), "user_ca": "ssh-ed25519 AAAA",
            "marker": {"protocol": 1, "node": node, "claim": node, "epoch": 1, "image": Digest::of(b"image")},
        }))
        .expect("a plan");
        plan.packages = wanted.iter().map(find).collect();
        plan
    }

    /// Replaces a package and the index, as an attacker on the network would.
    pub(super) fn tamper(&mut self, name: &str, version: &str) {
        let package = self
            .packages
            .iter()
            .find(|package| package.name == name && package.version == version)
            .expect("a package");
        let mut files = self.files.lock().expect("no panic");
        let bytes = files
            .get_mut(&format!("/bundle/{}", package.filename))
            .expect("a file");
        // After the end of the archive's last member, a place ignored by dpkg.
        bytes.extend_from_slice(b"\n");
        let (size, digest) = (bytes.len(), Digest::of(bytes));
        let index = String::from_utf8(files["/bundle/Packages"].clone()).expect("text");
        let old = format!("Size: {}\nSHA256: {}\n", package.size, package.sha256.hex());
        let index = index.replace(&old, &format!("Size: {size}\nSHA256: {}\n", digest.hex()));
        files.insert("/bundle/Packages".into(), index.into_bytes());
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.address);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Answers one request per connection.
fn answer(mut stream: TcpStream, files: &Files) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let path = request.split(' ').nth(1).unwrap_or_default();
    let body = files
        .lock()
        .map(|files| files.get(path).cloned())
        .unwrap_or_default();
    let (status, body) = body.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)
}
