//! Wrong arguments of the build.

use super::*;

/// A digest of no tarball.
const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Wrong arguments, with words of the answer. `OTHER` is the digest.
const ROWS: [(&str, &str); 19] = [
    (
        "",
        "--package is missing; write nccl-tests, nvbandwidth, nvidia-container-toolkit or gpu-burn",
    ),
    ("--package", "--package needs a value"),
    (
        "--package cuda-samples",
        "cuda-samples has no recipe; write nccl-tests",
    ),
    ("--colour red", "--colour is no argument"),
    ("--package nccl-tests", "--out is missing; write the folder"),
    ("--package nccl-tests --out o,t", "use letters, digits and"),
    (
        "--package nccl-tests --out out --revision 0",
        "0 is no number from 1 to 9999",
    ),
    (
        "--package nccl-tests --out out --debian 12",
        "12 has no recipe, because its archive has CUDA 11.8 and no NCCL; write 13",
    ),
    (
        "--package nccl-tests --out out --debian 11",
        "11 has no recipe; write 13",
    ),
    (
        "--package nccl-tests --out out",
        "--source is missing; write the path or the https URL of a tarball of NVIDIA/nccl-tests",
    ),
    (
        "--package nvbandwidth --out out --source source.tar",
        "--sha256 is missing; write the output of: sha256sum TARBALL",
    ),
    (
        "--package nvbandwidth --out out --source source.tar --sha256 abc",
        "abc is no SHA-256; write 64 digits of 0-9 and a-f",
    ),
    (
        "--package nvbandwidth --out out --source gone.tar --sha256 OTHER",
        "gone.tar does not exist; write the path of a tarball of NVIDIA/nvbandwidth",
    ),
    (
        "--package nvbandwidth --out out --source folder --sha256 OTHER",
        "folder is a folder; write a tarball of it: git -C folder archive --format=tar --prefix=nvbandwidth/",
    ),
    (
        "--package nvbandwidth --out out --source http://example.org/a.tar --sha256 OTHER",
        "http://example.org/a.tar is no https URL; write https://HOST/PATH",
    ),
    (
        "--package nvbandwidth --out out --source https://me:secret@example.org/a.tar --sha256 OTHER",
        "has a user, a password or another character",
    ),
    (
        "--package nvbandwidth --out out --source large.tar --sha256 OTHER",
        "large.tar has 269484032 bytes; a source has at most 256 MiB",
    ),
    (
        "--package gpu-burn --out out --source source.tar",
        "gpu-burn is built from stacks/packages/gpu-burn; leave out --source and --sha256",
    ),
    (
        "--package gpu-burn --out out",
        "have no nvidia-cuda-toolkit. Name sources that have it: MIRROR=",
    ),
];

#[test]
fn wrong_arguments_of_the_build_are_refused_with_advice() {
    let recipe = make_folder();
    make_repository(
        recipe.dir.path(),
        &recipe.path("mirror"),
        &[("make", "4.4.1-2")],
    );
    recipe.write("folder/file", "");
    let large = std::fs::File::create(recipe.path("large.tar")).unwrap();
    large.set_len(257 << 20).unwrap();
    for (arguments, says) in ROWS {
        let arguments = arguments.replace("OTHER", OTHER);
        recipe.run("build", &split(&arguments)).expect_refused(says);
    }
}

#[test]
fn backports_are_those_of_the_suites_own_source() {
    for (mirror, sources) in [
        (
            "http://m",
            "deb http://m trixie main contrib\ndeb http://m trixie-updates main contrib\ndeb http://m trixie-backports main\n",
        ),
        // Whole source lines are left alone.
        ("deb http://a trixie main", "deb http://a trixie main\n"),
    ] {
        let output = Command::new("bash")
            .arg("-c")
            .arg(". \"$1\"; . \"$2\"; SUITE=trixie COMPONENTS='main contrib'; add_backports; apt_sources")
            .arg("bash")
            .arg(shipped("../images/lib.sh"))
            .arg(shipped("packages/backports.sh"))
            .env("MIRROR", mirror)
            .env("KEYRING", "/nonexistent")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), sources);
    }
}
