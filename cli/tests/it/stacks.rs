//! `muster stack` as typed by people: lint and diff on files, publish and diff against a server,
//! and refusals.

use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::muster::{Server, file, folder, muster, run};

fn shipped(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../stacks")
        .join(name)
        .display()
        .to_string()
}

#[test]
fn a_stack_is_linted_with_lines_codes_and_sources() {
    let home = folder();
    let typed = |arguments: &[&str]| run(&mut muster(home.path(), arguments), "");
    for name in [
        "cpu-slurm",
        "h100-cuda12.8",
        "h200-cuda13",
        "b200-cuda13",
        "mi300x-rocm6",
        "cuda-debian-12",
        "cuda-debian-13",
        "cuda-535-debian-13",
        "rocm-debian-13",
    ] {
        typed(&["stack", "lint", &shipped(&format!("{name}.toml"))])
            .expect(0)
            .says(" refuses the stack");
    }
    for part in [
        "nfs",
        "lustre",
        "weka",
        "storage-scale",
        "gpu-tests",
        "rccl-tests",
        "ipmi",
    ] {
        let part = shipped(&format!("parts/{part}.toml"));
        typed(&["stack", "lint", &shipped("cpu-slurm.toml"), "--with", &part])
            .expect(0)
            .says(" refuses the stack");
    }
    let nfs = shipped("parts/nfs.toml");
    let lustre = shipped("parts/lustre.toml");
    typed(&[
        "stack",
        "lint",
        &shipped("cpu-slurm.toml"),
        "--with",
        &nfs,
        "--with",
        &lustre,
    ])
    .expect(1)
    .says("shared.mount");
    let right = file("stacks/b200-cuda13.toml");
    let wrong = right.replace(
        "nvidia-fabricmanager = \"580.126.20-1\"",
        "nvidia-fabricmanager = \"580.95.05-1\"",
    );
    let path = home.path().join("wrong.toml");
    std::fs::write(&path, &wrong).unwrap();
    let path = path.display().to_string();
    let line = wrong
        .lines()
        .position(|line| line.starts_with("nvidia-fabricmanager"))
        .unwrap()
        + 1;
    let said = typed(&["stack", "lint", &path]).expect(2).says(&format!(
        "refused line {line}: R3: nvidia-fabricmanager 580.95.05-1"
    ));
    assert!(said.out.contains("gpu-operator#544"), "{}", said.out);
    let report = typed(&["stack", "lint", &path, "--json"]).expect(2).json();
    let refused: Vec<&Value> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["level"] == "refused")
        .collect();
    assert_eq!(
        (refused.len(), &refused[0]["rule"], &refused[0]["line"]),
        (1, &json!("R3"), &json!(line))
    );
    let proprietary = right.replace("nvidia-open = ", "cuda-drivers = ");
    std::fs::write(&path, proprietary).unwrap();
    typed(&["stack", "lint", &path])
        .expect(2)
        .says("R6")
        .says("open kernel modules only");
    std::fs::write(&path, "version = \"1\"\nimage = \"i\"\ncolour = \"red\"\n").unwrap();
    typed(&["stack", "lint", &path])
        .expect(1)
        .says("line 3")
        .says("colour");
}

#[test]
fn a_file_is_shown_with_its_driver_without_a_server() {
    let home = folder();
    let shown = |more: &[&str]| {
        let path = shipped("h100-cuda12.8.toml");
        let arguments = [&["stack", "show", path.as_str()][..], more].concat();
        run(&mut muster(home.path(), &arguments), "").expect(0)
    };
    let said = shown(&[]);
    for line in [
        " over debian-12",
        "lock     none",
        "driver   nvidia-open 580.126.20-1",
        // The words follow the day of the run.
        "branch   580: long-term support, support",
        " 2028-06 (",
        "this driver lacks the fix",
    ] {
        assert!(said.out.contains(line), "{line}: {}", said.out);
    }
    let document = shown(&["-o", "json"]).json();
    assert_eq!(document["driver"]["branch"]["number"], json!(580));
    assert_eq!(document["closure"], Value::Null);
}

#[test]
fn two_files_are_compared_without_a_server() {
    let home = folder();
    let diff = [
        "stack",
        "diff",
        &shipped("h100-cuda12.8.toml"),
        &shipped("b200-cuda13.toml"),
    ];
    let said = run(&mut muster(home.path(), &diff), "").expect(0);
    for line in [
        "package cuda-toolkit-12-8",
        "package nvlsm",
        "module mlx5_core",
        "the dearest costs",
    ] {
        assert!(said.out.contains(line), "{line}: {}", said.out);
    }
    let same = [
        "stack",
        "diff",
        &shipped("cpu-slurm.toml"),
        &shipped("cpu-slurm.toml"),
        "-o",
        "json",
    ];
    assert_eq!(
        run(&mut muster(home.path(), &same), "").expect(0).json()["differences"],
        json!([])
    );
}

/// Writes a blob in the layout of `muster stack lock`, and returns the digest.
fn blob(blobs: &Path, bytes: &[u8]) -> String {
    let hex = hex::encode(Sha256::digest(bytes));
    std::fs::create_dir_all(blobs.join("sha256")).unwrap();
    std::fs::write(blobs.join("sha256").join(&hex), bytes).unwrap();
    format!("sha256:{hex}")
}

#[test]
fn a_locked_stack_is_published_with_its_bundle_or_refused() {
    let server = Server::start();
    let nothing = format!("sha256:{}", "0".repeat(64));
    let image = json!({
        "name": "debian-12", "version": "1", "os": "debian", "os_version": "12", "arch": "amd64", "digest": nothing, "size": 1,
        "raw_digest": nothing, "raw_size": 1, "kernel": "6.1.0-1-amd64",
        "packages": [{ "name": "linux-headers-6.1.0-1-amd64", "version": "6.1.1-1", "arch": "amd64" }], "partitions": { "esp": 1, "root": 2 },
    });
    server
        .typed(
            &["image", "create", "debian-12", "-f", "-"],
            &image.to_string(),
        )
        .expect(0);
    let blobs = server.dir.path().join("blobs");
    let package = blob(&blobs, b"a package");
    let bundle = blob(
        &blobs,
        json!({ "files": { "runc_1.1-1_amd64.deb": package } })
            .to_string()
            .as_bytes(),
    );
    let stack = |version: &str, more: &str| {
        format!(
            "version = \"{version}\"\nimage = \"debian-12\"\nbundle = \"{bundle}\"\n[packages]\nrunc = \"1.1-1\"\n{more}\n[lock]\nimage_digest = \"{nothing}\"\n\
             arch = \"amd64\"\n[[lock.packages]]\nname = \"runc\"\nversion = \"1.1-1\"\narch = \"amd64\"\nsize = 9\nsha256 = \"{package}\"\nfilename = \"runc_1.1-1_amd64.deb\"\n"
        )
    };
    let path = server.dir.path().join("stack.toml");
    let (path, blobs) = (path.display().to_string(), blobs.display().to_string());
    let publish = [
        "stack",
        "publish",
        "cpu",
        path.as_str(),
        "--blobs",
        blobs.as_str(),
    ];
    // Without a driver, the Fabric Manager cannot be judged: a locked stack is refused.
    std::fs::write(&path, stack("1", "nvidia-fabricmanager = \"580.126.20-1\"")).unwrap();
    server
        .muster(&publish)
        .expect(2)
        .says("R3")
        .says("cannot be judged");
    std::fs::write(&path, stack("1", "")).unwrap();
    server
        .muster(&[&publish[..], &["--dry-run"]].concat())
        .expect(0)
        .says("would be published");
    server.muster(&["stack", "get", "cpu"]).expect(3);
    server
        .muster(&publish)
        .expect(0)
        .says("stack cpu 1 published");
    // The closure of the published lock.
    server
        .muster(&["stack", "show", "cpu"])
        .expect(0)
        .says("packages 1 (0 MB)");
    let shown = server
        .muster(&["stack", "get", "cpu", "--json"])
        .expect(0)
        .json();
    assert_eq!(shown["status"]["bundle_present"], true);
    server
        .muster(&["stack", "diff", "cpu", &path])
        .expect(0)
        .says("no difference");
    // A published version keeps the content.
    std::fs::write(&path, stack("1", "chrony = \"4.3-2\"")).unwrap();
    server
        .muster(&publish)
        .expect(2)
        .says("publish another version");
    std::fs::write(&path, stack("2", "chrony = \"4.3-2\"")).unwrap();
    server
        .muster(&["stack", "diff", "cpu", &path])
        .expect(0)
        .says("package chrony");
    // A dry run shows the changes and the affected nodes before the publication.
    server
        .muster(&[&publish[..], &["--dry-run"]].concat())
        .expect(0)
        .says("stack cpu: none")
        .says("/spec/version");
    server
        .muster(&publish)
        .expect(0)
        .says("stack cpu: none")
        .says("stack cpu 2 published");
    // The first version keeps the content, also after the second version.
    std::fs::write(&path, stack("1", "chrony = \"4.4-1\"")).unwrap();
    server
        .muster(&publish)
        .expect(2)
        .says("was published before as sha256:");
    // A module built on the node. The image has the kernel's headers, and no lock brings headers.
    std::fs::write(&path, stack("3", "zfs-dkms = \"2.1.11-1\"")).unwrap();
    server
        .muster(&publish)
        .expect(0)
        .says("stack cpu 3 published");
    // The server refuses a wrong stack of a client without checks.
    let wrong = json!({ "version": "1", "image": "debian-12", "selector": { "gpu": "blackwell" }, "packages": { "cuda-drivers": "580.126.20-1" } });
    server
        .typed(&["stack", "create", "wrong", "-f", "-"], &wrong.to_string())
        .expect(2)
        .says("R6")
        .says("/spec/packages/cuda-drivers");
    server.muster(&["stack", "drift"]).expect(0);
    server.muster(&["stack", "drift", "nobody"]).expect(3);
    server.muster(&["stack", "plan", "nobody"]).expect(3);
}
