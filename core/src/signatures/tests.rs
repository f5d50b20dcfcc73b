//! Tests of signatures.

use serde_json::{Value, json};

use super::*;
use crate::ids::{ClaimId, OperationId, PermitId};
use crate::values::Mac;
use crate::wire::node::StaticNetwork;

fn manifest() -> ImageManifest {
    let digest = |text: &str| Digest::of(text.as_bytes()).to_string();
    serde_json::from_value(json!({
        "name": "debian-13", "version": "1", "os": "debian", "os_version": "13", "arch": "amd64",
        "digest": digest("image"), "size": 1000, "raw_digest": digest("raw"), "raw_size": 4000,
        "kernel": "6.12.0-1-amd64", "partitions": { "esp": 2, "root": 3 },
        "packages": [{ "name": "munge", "version": "0.5.16-1", "arch": "amd64" }],
    }))
    .unwrap()
}

fn order(image: &ImageManifest) -> WriteImage {
    WriteImage {
        permit: PermitId::new(),
        operation: OperationId::new(),
        claim: ClaimId::new(),
        disk_serial: "S1".into(),
        url: String::new(),
        digest: image.digest,
        size: image.size,
        raw_digest: image.raw_digest,
        raw_size: image.raw_size,
        esp_partition: image.partitions.esp,
        root_partition: image.partitions.root,
        hostname: "n".into(),
        network: StaticNetwork {
            mac: Mac([0; 6]),
            address: "10.77.0.11/24".into(),
            gateway: None,
            dns: vec![],
            hosts: vec![],
            files: vec![],
        },
        user_ca: String::new(),
        principal: String::new(),
        signed_image: None,
    }
}

fn signed(key: &SecretKey, statement: String) -> SignedImage {
    SignedImage {
        signature: key.sign(&statement),
        statement,
        keys: Vec::new(),
    }
}

/// A key and signatures of the text `test`, made by minisign, as in the tests of the crate
/// minisign-verify.
#[test]
fn a_signature_of_minisign_is_read() {
    let key = "untrusted comment: minisign public key\nRWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n";
    let key: PublicKey = key.parse().unwrap();
    let line = "RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351vwIasSSbXxwA=";
    let file = format!("untrusted comment: signature from minisign secret key\n{line}\n");
    for signature in [line, &file] {
        assert_eq!(verify_text("test", signature, &[key]), Ok(()));
        let other = verify_text("Test", signature, &[key]);
        assert_eq!(other, Err(SignatureError::OtherText));
        let none = verify_text("test", signature, &[]);
        assert_eq!(none, Err(SignatureError::Untrusted));
    }
    let hashed = "RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=";
    assert_eq!(check_form(hashed), Err(SignatureError::Hashed));
}

#[test]
fn keys_and_signatures_survive_their_files() {
    let key = SecretKey::from_seed(&[7; 32]);
    let again = SecretKey::from_pem(&key.to_pem()).unwrap();
    let public: PublicKey = again.public().render_file().parse().unwrap();
    assert_eq!(public, key.public());
    assert_eq!(public.to_string().parse::<PublicKey>(), Ok(public));
    assert!(public.to_string().starts_with("RW"));
    let file = key.sign_file("text", "two\nlines");
    assert_eq!(file.lines().count(), 4);
    assert_eq!(verify_text("text", &file, &[public]), Ok(()));
    for broken in ["", "RW", "!", &public.to_string()] {
        assert_eq!(check_form(broken), Err(SignatureError::MalformedSignature));
    }
    for broken in ["", "RW", "ssh-ed25519 AAAA", &key.sign("text")] {
        let read = broken.parse::<PublicKey>();
        assert_eq!(read, Err(SignatureError::MalformedKey));
    }
    assert!(SecretKey::from_pem("text").is_err());
}

#[test]
fn an_order_is_for_the_signed_image_alone() {
    let (key, image) = (SecretKey::from_seed(&[7; 32]), manifest());
    let keys = [key.public()];
    let proof = signed(&key, describe_image(&image));
    assert_eq!(verify_order(&order(&image), &proof, &keys), Ok(()));

    let changes: [fn(&mut WriteImage); 6] = [
        |order| order.digest = Digest::of(b"other"),
        |order| order.raw_digest = Digest::of(b"other"),
        |order| order.size += 1,
        |order| order.raw_size += 1,
        |order| order.esp_partition = 9,
        |order| order.root_partition = 9,
    ];
    for change in changes {
        let mut other = order(&image);
        change(&mut other);
        let refused = verify_order(&other, &proof, &keys);
        assert_eq!(refused, Err(SignatureError::OtherImage));
    }
    let tampered = SignedImage {
        statement: proof
            .statement
            .replace("\"version\":\"1\"", "\"version\":\"2\""),
        ..proof.clone()
    };
    assert_ne!(tampered, proof);
    let refused = verify_order(&order(&image), &tampered, &keys);
    assert_eq!(refused, Err(SignatureError::OtherText));
    let stranger = SecretKey::from_seed(&[8; 32]);
    let refused = verify_order(&order(&image), &proof, &[stranger.public()]);
    assert_eq!(refused, Err(SignatureError::Untrusted));
    // A signature of the same key over another kind of text.
    let mut other: Value = serde_json::from_str(&describe_image(&image)).unwrap();
    other["statement"] = json!("another text v1");
    for text in [other.to_string(), "text".to_owned()] {
        let refused = verify_order(&order(&image), &signed(&key, text), &keys);
        assert_eq!(refused, Err(SignatureError::NoStatement));
    }
}

/// Signatures are made over this text: a changed text ends the signatures of stored images.
#[test]
fn the_text_names_the_whole_manifest_and_not_its_signature() {
    let image = manifest();
    let text = describe_image(&image);
    let digest = |text: &str| Digest::of(text.as_bytes());
    let expected = format!(
        "{{\"statement\":\"muster image v1\",\"name\":\"debian-13\",\"version\":\"1\",\"digest\":\"{}\",\"size\":1000,\
         \"raw_digest\":\"{}\",\"raw_size\":4000,\"partitions\":{{\"esp\":2,\"root\":3}},\"manifest\":\"MANIFEST\"}}",
        digest("image"),
        digest("raw"),
    );
    let manifest = serde_json::to_string(&image).unwrap();
    let expected = expected.replace("MANIFEST", &digest(&manifest).to_string());
    assert_eq!(text, expected);
    let with_signature = ImageManifest {
        signature: Some("RW".into()),
        ..image.clone()
    };
    assert_eq!(describe_image(&with_signature), text);
    let mut packages = image;
    packages.packages.clear();
    assert_ne!(describe_image(&packages), text);
}

#[test]
fn a_live_image_has_a_text_of_its_own() {
    let (kernel, initrd) = (Digest::of(b"kernel"), Digest::of(b"initrd"));
    let expected = format!(
        "{{\"statement\":\"muster live image v1\",\"kernel\":\"{kernel}\",\"initrd\":\"{initrd}\"}}"
    );
    assert_eq!(describe_live(kernel, initrd), expected);
}
