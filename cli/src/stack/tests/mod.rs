//! `stack lock` against a small local mirror with the real apt. Then a real apt installs from the
//! bundle alone.

mod debian; // Stacks of Debian's own archive
mod modules; // Prebuilt modules of a driver
mod offline; // Shipped stacks and recorded indexes
mod packages; // Packages that no archive has
mod pins; // Packages with a kept version
mod recipes; // Programs of recipes, and flat repositories

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// A mirror, an image and a stack in a temporary directory.
struct Bench {
    dir: tempfile::TempDir,
}

/// Name, version, architecture and dependencies of each package in the mirror.
const OFFERED: [(&str, &str, &str, &str); 15] = [
    ("base", "1.0", "amd64", ""),
    ("tool", "0.9-1", "amd64", ""),
    ("tool", "1.0-1", "amd64", "libtool (>= 2:2.0), base"),
    ("libtool", "2:2.0-1+b1", "amd64", "data"),
    ("data", "5", "all", ""),
    ("nosy", "1", "amd64", ""),
    // Two versions of a tuple, with a package that fits both.
    (
        "driver",
        "535-1",
        "amd64",
        "libdriver (= 535-1), modprobe (>= 535)",
    ),
    (
        "driver",
        "550-1",
        "amd64",
        "libdriver (= 550-1), modprobe (>= 535)",
    ),
    ("libdriver", "535-1", "amd64", "ptx (= 535-1)"),
    ("libdriver", "550-1", "amd64", "ptx (= 550-1)"),
    ("ptx", "535-1", "all", ""),
    ("ptx", "550-1", "all", ""),
    ("modprobe", "500-1", "amd64", ""),
    ("modprobe", "560-1", "amd64", ""),
    ("modprobe", "570-1", "amd64", ""),
];

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mirror = dir.path().join("mirror");
        std::fs::create_dir(&mirror).unwrap();
        let mut packages = String::new();
        for (name, version, arch, depends) in OFFERED {
            packages += &build(dir.path(), &mirror, (name, version, arch, depends));
        }
        let digest = Digest::of(packages.as_bytes()).hex();
        let date = "Date: Thu, 01 Jan 2026 00:00:00 UTC";
        std::fs::write(
            mirror.join("Release"),
            format!("{date}\nSHA256:\n {digest} {} Packages\n", packages.len()),
        )
        .unwrap();
        std::fs::write(mirror.join("Packages"), packages).unwrap();
        let manifest = serde_json::json!({
            "name": "debian-12", "version": "1", "os": "debian", "os_version": "12", "arch": "amd64", "kernel": "6.1",
            "digest": Digest::of(b"image"), "size": 1, "raw_digest": Digest::of(b"raw"), "raw_size": 1,
            "packages": [
                {"name": "base", "version": "1.0", "arch": "amd64"},
                {"name": "nosy", "version": "1", "arch": "amd64"},
                {"name": "unoffered", "version": "7", "arch": "amd64"},
            ],
            "partitions": {"esp": 1, "root": 2},
        });
        std::fs::write(dir.path().join("manifest.json"), manifest.to_string()).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn lock(&self, stack: &str, update: bool, into: &str) -> anyhow::Result<StackSpec> {
        let args = LockArgs {
            update,
            ..self.prepare(stack, into)
        };
        lock_stack(&args).await
    }

    /// Writes a stack, and returns the arguments of a lock with exact versions.
    fn prepare(&self, stack: &str, into: &str) -> LockArgs {
        std::fs::write(self.path("stack.toml"), stack).unwrap();
        LockArgs {
            stack: self.path("stack.toml"),
            with: Vec::new(),
            image: self.path("manifest.json"),
            status: None,
            update: false,
            open: false,
            keep: None,
            also: Vec::new(),
            mirror: vec![format!(
                "deb [trusted=yes] copy:{} /",
                self.path("mirror").display()
            )],
            recorded: Vec::new(),
            keyring: None,
            firmware: Vec::new(),
            cache: self.path(into).join("apt"),
            blobs: Some(self.path(into).join("blobs")),
            out: self.path(into).join("stack.toml"),
        }
    }
}

/// Builds a package. Returns the stanza of the index.
fn build(
    dir: &Path,
    mirror: &Path,
    (name, version, arch, depends): (&str, &str, &str, &str),
) -> String {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    let mut control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: nobody <n@example.org>\n"
    );
    if !depends.is_empty() {
        writeln!(control, "Depends: {depends}").unwrap();
    }
    std::fs::write(
        tree.join("DEBIAN/control"),
        format!("{control}Description: test\n"),
    )
    .unwrap();
    let file = format!("pool-{name}-{}.deb", version.replace(':', "-"));
    let deb = mirror.join(&file);
    let built = Command::new("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .arg(&tree)
        .arg(&deb)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let bytes = std::fs::read(&deb).unwrap();
    let digest = Digest::of(&bytes).hex();
    format!(
        "{control}Filename: {file}\nSize: {}\nSHA256: {digest}\nDescription: test\n more words\n\n",
        bytes.len()
    )
}

const STACK: &str = "version = \"1\"\nimage = \"debian-12\"\nabsent = [\"nosy\", \"unoffered\", \"nowhere\"]\n[packages]\ntool = \"*\"\nbase = \"*\"\n";

#[tokio::test]
async fn locks_the_whole_closure_and_makes_a_repository_that_apt_installs_from() {
    let bench = Bench::new();
    let locked = bench.lock(STACK, true, "one").await.unwrap();
    assert_eq!(
        locked.packages["tool"], "1.0-1",
        "the newest is written into the stack"
    );
    assert_eq!(
        locked.absent,
        ["nosy", "unoffered", "nowhere"],
        "nodes are kept free of what no mirror has as well"
    );
    let lock = locked.lock.as_ref().unwrap();
    let names: Vec<_> = lock
        .packages
        .iter()
        .map(|package| (package.name.as_str(), package.filename.as_str()))
        .collect();
    let wanted = [
        ("base", "base_1.0_amd64.deb"),
        ("data", "data_5_all.deb"),
        ("libtool", "libtool_2.0-1+b1_amd64.deb"),
        ("tool", "tool_1.0-1_amd64.deb"),
    ];
    assert_eq!(
        names, wanted,
        "the wanted ones, and what the image lacks for them"
    );

    let [from] = &lock.repositories[..] else {
        panic!("{:?}", lock.repositories)
    };
    assert_eq!(from.packages, ["base", "data", "libtool", "tool"]);
    assert_eq!(
        from.name(),
        format!("copy:{}", bench.path("mirror").display())
    );
    assert_eq!(from.date.as_deref(), Some("Thu, 01 Jan 2026 00:00:00 UTC"));
    assert_eq!(
        from.release,
        Digest::of(&std::fs::read(bench.path("mirror/Release")).unwrap()),
        "the snapshot"
    );

    let published: StackSpec =
        toml::from_str(&read(&bench.path("one/stack.toml")).unwrap()).unwrap();
    assert_eq!(published, locked);
    let again = bench
        .lock(&read(&bench.path("one/stack.toml")).unwrap(), false, "two")
        .await
        .unwrap();
    assert_eq!(
        (again.bundle, again.lock),
        (locked.bundle, locked.lock.clone()),
        "the same, made elsewhere"
    );

    install_from_bundle(&bench, &locked).await;
}

/// Installs from the bundle, in the agent's layout, with a new apt that has no other source.
async fn install_from_bundle(bench: &Bench, locked: &StackSpec) {
    let blobs = bench.path("one/blobs/sha256");
    let bundle = std::fs::read(blobs.join(locked.bundle.unwrap().hex())).unwrap();
    assert_eq!(Digest::of(&bundle), locked.bundle.unwrap());
    let document: serde_json::Value = serde_json::from_slice(&bundle).unwrap();
    let served = bench.path("served");
    std::fs::create_dir(&served).unwrap();
    for (name, digest) in document["files"].as_object().unwrap() {
        let digest: Digest = digest.as_str().unwrap().parse().unwrap();
        let bytes = std::fs::read(blobs.join(digest.hex())).unwrap();
        assert_eq!(Digest::of(&bytes), digest, "{name}");
        std::fs::write(served.join(name), bytes).unwrap();
    }
    let source = format!("deb [trusted=yes] copy:{} /\n", served.display());
    let node = apt::PrivateApt::prepare(&bench.path("node"), "amd64", &source)
        .await
        .unwrap();
    let forecast = node.simulate(&locked.packages, &[]).await.unwrap();
    assert_eq!(forecast.matches("Inst ").count(), 4, "{forecast}");
}

#[tokio::test]
async fn each_package_is_told_with_the_repository_it_came_from() {
    let bench = Bench::new();
    let (site, own) = (bench.path("site"), bench.path("own"));
    for (folder, package) in [
        (&site, ("tool", "1.0-1", "amd64", "")),
        (&own, ("base", "1.0", "amd64", "")),
    ] {
        // The layout of a mirror, with a suite and a component.
        let packages = folder.join("dists/stable/main/binary-amd64");
        std::fs::create_dir_all(&packages).unwrap();
        let stanza = build(bench.dir.path(), folder, package);
        let key = "main/binary-amd64/Packages";
        let release = format!(
            "Suite: stable\nComponents: main\nArchitectures: amd64\nDate: Fri, 02 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} {key}\n",
            Digest::of(stanza.as_bytes()).hex(),
            stanza.len()
        );
        std::fs::write(packages.join("Packages"), stanza).unwrap();
        std::fs::write(folder.join("dists/stable/Release"), release).unwrap();
    }
    let line = |folder: &Path| format!("deb [trusted=yes] copy:{} stable main", folder.display());
    std::fs::write(
        bench.path("stack.toml"),
        STACK.replace("absent = [\"nosy\", \"unoffered\", \"nowhere\"]\n", ""),
    )
    .unwrap();
    let args = LockArgs {
        mirror: vec![line(&site)],
        also: vec![line(&own)],
        cache: bench.path("two/apt"),
        blobs: Some(bench.path("two/blobs")),
        out: bench.path("two/stack.toml"),
        open: true,
        recorded: Vec::new(),
        ..recorded(bench.dir.path(), bench.path("stack.toml"))
    };
    let lock = lock_stack(&args).await.unwrap().lock.unwrap();
    let told: Vec<(String, &[String])> = lock
        .repositories
        .iter()
        .map(|one| (one.name(), one.packages.as_slice()))
        .collect();
    let name = |folder: &Path| format!("copy:{} stable main", folder.display());
    assert_eq!(
        told,
        [
            (name(&own), &["base".to_owned()][..]),
            (name(&site), &["tool".to_owned()][..])
        ]
    );
    assert!(
        lock.repositories
            .iter()
            .all(|one| one.date.as_deref() == Some("Fri, 02 Jan 2026 00:00:00 UTC"))
    );
}

#[tokio::test]
async fn what_cannot_be_locked_says_why() {
    let bench = Bench::new();
    let says = async |stack: &str, update: bool| {
        format!(
            "{:#}",
            bench.lock(stack, update, "three").await.unwrap_err()
        )
    };
    assert!(
        says(STACK, false)
            .await
            .contains("base, tool have no exact version")
    );
    let gone = says(
        "version = \"1\"\nimage = \"debian-12\"\n[packages]\ntool = \"1.0-9\"\n",
        false,
    )
    .await;
    assert!(gone.contains("1.0-9"), "{gone}");
    let unknown = says(
        "version = \"1\"\nimage = \"debian-12\"\n[packages]\nnothing = \"*\"\n",
        true,
    )
    .await;
    assert!(unknown.contains("nothing"), "{unknown}");
    let image = says("version = \"1\"\nimage = \"other\"\n", false).await;
    assert!(image.contains("for image \"other\""), "{image}");
    assert!(
        !bench.path("three/stack.toml").exists(),
        "nothing half-made is left"
    );
}

#[tokio::test]
async fn an_archive_of_an_earlier_build_is_fetched_anew() {
    let bench = Bench::new();
    let first = bench.lock(STACK, true, "one").await.unwrap();
    let kept = bench.path("one/apt/archives/tool_1.0-1_amd64.deb");
    assert!(kept.exists(), "or nothing is tried");
    std::fs::write(&kept, b"as it was built before").unwrap();
    let again = bench.lock(STACK, true, "one").await.unwrap();
    assert_eq!((again.bundle, again.lock), (first.bundle, first.lock));
}

#[tokio::test]
async fn a_downloaded_package_that_is_not_the_indexed_one_is_refused() {
    let bench = Bench::new();
    bench.lock(STACK, true, "one").await.unwrap();
    let deb = bench.path("mirror/pool-tool-1.0-1.deb");
    let mut bytes = std::fs::read(&deb).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&deb, bytes).unwrap();
    let refused = bench.lock(STACK, true, "two").await.unwrap_err();
    assert!(format!("{refused:#}").contains("tool"), "{refused:#}");
}

#[test]
fn the_reference_stack_is_one() {
    let spec: StackSpec =
        toml::from_str(include_str!("../../../../stacks/cpu-slurm.toml")).unwrap();
    assert!(
        spec.packages.values().all(|version| version == "*"),
        "versions belong to the lock made for a site's mirror"
    );
    assert!(
        spec.files
            .iter()
            .all(|file| !muster_core::stacks::MANAGED.contains(&file.path.as_str()))
    );
}

/// A manifest with few packages, for the image of the shipped stacks.
fn plain_image() -> serde_json::Value {
    serde_json::json!({
        "name": "debian-12", "version": "1", "os": "debian", "os_version": "12.11", "arch": "amd64", "kernel": "6.1.0-40-amd64",
        "digest": Digest::of(b"image"), "size": 1, "raw_digest": Digest::of(b"raw"), "raw_size": 1, "packages": [],
        "partitions": {"esp": 1, "root": 2},
    })
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../stacks")
        .join(name)
}

const GPU_STACKS: [&str; 4] = [
    "h100-cuda12.8.toml",
    "h200-cuda13.toml",
    "b200-cuda13.toml",
    "mi300x-rocm6.toml",
];

fn recorded(dir: &Path, stack: PathBuf) -> LockArgs {
    std::fs::write(dir.join("manifest.json"), plain_image().to_string()).unwrap();
    LockArgs {
        stack,
        with: Vec::new(),
        image: dir.join("manifest.json"),
        status: None,
        update: false,
        open: true,
        keep: None,
        mirror: Vec::new(),
        also: Vec::new(),
        recorded: vec![shipped("recorded/debian-12-gpu.packages")],
        keyring: None,
        firmware: Vec::new(),
        cache: dir.join("apt"),
        blobs: None,
        out: dir.join("out.toml"),
    }
}

/// A mistyped file name never switches the check of signatures off.
#[tokio::test]
async fn a_keyring_that_is_not_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("ours.gpg");
    let args = LockArgs {
        recorded: Vec::new(),
        mirror: vec!["http://127.0.0.1:9/debian".into()],
        also: Vec::new(),
        keyring: Some(missing.clone()),
        blobs: Some(dir.path().join("blobs")),
        ..recorded(dir.path(), shipped(GPU_STACKS[0]))
    };
    let refused = lock_stack(&args).await.unwrap_err().to_string();
    assert!(
        refused.contains(&format!("the keyring {} does not exist", missing.display())),
        "{refused}"
    );
    // apt copies no file from such a repository, so the bundle would lack the packages.
    let args = LockArgs {
        keyring: None,
        also: vec!["deb [trusted=yes] file:/srv/ours /".into()],
        ..args
    };
    let refused = lock_stack(&args).await.unwrap_err().to_string();
    assert!(
        refused.contains("write copy: instead of file:"),
        "{refused}"
    );
}
