//! Signatures of the modules, verified as by the kernel.

use super::*;

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
    // The kernel refuses a signature with attributes (pkcs7_verify).
    let print = ["-cmsout", "-noout", "-print"];
    let shown = recipe.tool("openssl", &[&message[..], &print[..]].concat());
    let shown = String::from_utf8(shown).unwrap();
    let (_, attributes) = shown.split_once("signedAttrs:").unwrap();
    assert!(attributes.trim_start().starts_with("<ABSENT>"), "{shown}");
    let signer = recipe.tool("/sbin/modinfo", &["-F", "signer", &packed]);
    assert!(signer.starts_with(b"Muster modules "), "{signer:?}");
}
