//! Wrong input of the packer.

use super::*;

/// Wrong arguments of the packer, with words of the answer.
const PACKER_ROWS: [(&str, &str); 18] = [
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
        "--out out --modules mixed",
        "nvidia-tesla-535.ko and nvidia-current.ko are of two drivers",
    ),
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
    for name in ["nvidia-current", "nvidia-tesla-535"] {
        recipe.compile(&format!("mixed/{name}.ko"), RELEASE, "550.163.01");
    }
    let signed = recipe.path("signed/nvidia-current.ko");
    let bytes = [&std::fs::read(&signed).unwrap()[..], MAGIC].concat();
    std::fs::write(&signed, bytes).unwrap();
    for (arguments, says) in PACKER_ROWS {
        recipe.pack(&split(arguments)).expect_refused(says);
    }
    let made = std::fs::read_dir(recipe.path("out/packages"));
    assert_eq!(made.unwrap().count(), 0, "no part of a package");

    // A second key makes other bytes. A node installs no other bytes under the same version.
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
    // A second driver of the branch, with the same name of the package.
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
