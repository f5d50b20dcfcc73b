//! `muster image key`, `sign` and `sign-live`, without a server.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::images::ImageManifest;
use muster_core::signatures::{PublicKey, describe_image, describe_live, verify_text};
use muster_core::values::Digest;
use serde_json::json;

use crate::muster::{Said, folder, muster, run};

fn image(home: &Path, arguments: &[&str]) -> Said {
    run(&mut muster(home, &[&["image"][..], arguments].concat()), "")
}

#[test]
fn a_release_owner_signs_a_manifest_and_a_live_image() {
    let home = folder();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let (key, manifest) = (path("release.key"), path("manifest.json"));
    image(home.path(), &["key", "--out", &key])
        .expect(0)
        .says("public key");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    image(home.path(), &["key", "--out", &key])
        .expect(1)
        .says("release.key");
    let public: PublicKey = read("release.key.pub").parse().unwrap();

    let digest = Digest::of(b"image");
    let unsigned = json!({
        "name": "debian-13", "version": "1", "os": "debian", "os_version": "13", "arch": "amd64", "digest": digest, "size": 1,
        "raw_digest": digest, "raw_size": 1, "kernel": "6.12.0-1-amd64", "packages": [], "partitions": { "esp": 1, "root": 2 },
    });
    std::fs::write(&manifest, unsigned.to_string()).unwrap();
    image(home.path(), &["sign", "--key", &key, &manifest])
        .expect(0)
        .says("signature");
    let signed: ImageManifest = serde_json::from_str(&read("manifest.json")).unwrap();
    let statement = read("manifest.json.statement");
    assert_eq!(statement, describe_image(&signed));
    let detached = read("manifest.json.statement.minisig");
    for signature in [&signed.signature.unwrap(), &detached] {
        assert_eq!(verify_text(&statement, signature, &[public]), Ok(()));
    }

    let (kernel, initrd) = (path("vmlinuz"), path("initrd.zst"));
    std::fs::write(&kernel, "kernel").unwrap();
    std::fs::write(&initrd, "initrd").unwrap();
    let arguments = [
        "sign-live",
        "--json",
        "--key",
        &key,
        "--kernel",
        &kernel,
        "--initrd",
        &initrd,
    ];
    let said = image(home.path(), &arguments).expect(0).json();
    let text = describe_live(Digest::of(b"kernel"), Digest::of(b"initrd"));
    let signature = said["signature"].as_str().unwrap();
    assert_eq!(verify_text(&text, signature, &[public]), Ok(()));

    // A key that others may read signs no manifest.
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&key, open).unwrap();
    image(home.path(), &["sign", "--key", &key, &manifest])
        .expect(1)
        .says("chmod 600");
}
