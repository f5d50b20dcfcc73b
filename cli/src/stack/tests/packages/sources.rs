//! Tarballs of sources: the digest, the version, and members that are refused.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// The time of each member (Unix seconds).
const TIME: u64 = 1_700_000_000;
/// The letters of tar for kinds of members.
const FILE: u8 = b'0';
const HARD_LINK: u8 = b'1';
const LINK: u8 = b'2';
const DEVICE: u8 = b'3';
const PIPE: u8 = b'6';

/// A member of a tarball.
#[derive(Clone, Copy)]
struct Member {
    name: &'static str,
    kind: u8,
    /// The content of a file, or the target of a link.
    text: &'static str,
    /// The size in the member's head, in place of the size of the text.
    size: Option<u64>,
}

const fn member(name: &'static str, kind: u8, text: &'static str) -> Member {
    Member {
        name,
        kind,
        text,
        size: None,
    }
}

/// A tarball of one top folder with a file.
const GOOD: Member = member("top/file", FILE, "content\n");
const LARGE: Member = Member {
    size: Some(2 << 30),
    ..member("top/large", FILE, "")
};

/// Members that are refused, with words of the answer.
const ROWS: [(&[Member], &str); 15] = [
    (&[member("../evil", FILE, "")], "which leaves its folder"),
    (&[member("/evil", FILE, "")], "which leaves its folder"),
    (
        &[GOOD, member("top/../../evil", FILE, "")],
        "which leaves its folder",
    ),
    (
        &[GOOD, member("top/link", LINK, "../../evil")],
        "a link that leaves its folder",
    ),
    (
        &[GOOD, member("top/link", LINK, "/etc/passwd")],
        "a link that leaves its folder",
    ),
    (
        // The folder above the first link's target.
        &[
            GOOD,
            member("top/sub/up", LINK, ".."),
            member("top/link", LINK, "sub/up/../evil"),
        ],
        "a link that leaves its folder",
    ),
    (
        &[GOOD, member("top/hard", HARD_LINK, "top/file")],
        "no file, folder or link",
    ),
    (
        &[GOOD, member("top/disk", DEVICE, "")],
        "no file, folder or link",
    ),
    (
        &[GOOD, member("top/pipe", PIPE, "")],
        "no file, folder or link",
    ),
    (
        &[member("top/a", LINK, "b"), member("top/a/evil", FILE, "")],
        "'top/a/evil' below 'top/a', which is no folder",
    ),
    (
        &[GOOD, member("other/file", FILE, "")],
        "more than one top folder: other, top",
    ),
    (&[member("file", FILE, "")], "outside of a top folder"),
    (&[GOOD, GOOD], "'top/file' twice"),
    (&[LARGE], "more than 1 GiB of files"),
    (&[], "has no file; write a tarball of the source"),
];

/// Appends a member with the head of POSIX (ustar).
fn append(tarball: &mut Vec<u8>, member: &Member) {
    let content = match member.kind {
        FILE => member.text,
        _ => "",
    };
    let size = member.size.unwrap_or(content.len() as u64);
    let mut head = [0_u8; 512];
    let fields = [
        (0, member.name.to_owned()),
        (100, "0000755\0".to_owned()),
        (108, "0000000\0".to_owned()),
        (116, "0000000\0".to_owned()),
        (124, format!("{size:011o}\0")),
        (136, format!("{TIME:011o}\0")),
        // The sum counts its own place as spaces.
        (148, "        ".to_owned()),
        (156, char::from(member.kind).to_string()),
        (257, "ustar\x0000".to_owned()),
    ];
    for (at, text) in fields {
        head[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    if member.kind != FILE {
        head[157..157 + member.text.len()].copy_from_slice(member.text.as_bytes());
    }
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tarball.extend_from_slice(&head);
    tarball.extend_from_slice(content.as_bytes());
    tarball.resize(tarball.len().next_multiple_of(512), 0);
}

/// Writes a tarball, and returns its digest.
fn write_tarball(recipe: &Recipe, name: &str, members: &[Member]) -> String {
    let mut tarball = Vec::new();
    for member in members {
        append(&mut tarball, member);
    }
    tarball.resize(tarball.len() + 1024, 0);
    std::fs::write(recipe.path(name), &tarball).unwrap();
    Digest::of(&tarball).hex()
}

fn build_from(recipe: &Recipe, sha256: &str) -> Ended {
    let fixed = "--package nccl-tests --out out --source source.tar --sha256";
    recipe.run("build", &[&split(fixed)[..], &[sha256][..]].concat())
}

#[test]
fn members_outside_of_the_folder_are_refused() {
    let recipe = make_folder();
    for (members, says) in ROWS {
        write_tarball(&recipe, "source.tar", members);
        let ended = recipe.run("unpack", &["source.tar", "below/source"]);
        ended.expect_refused(says);
        assert!(!recipe.path("below").exists(), "{says}: no file is written");
        assert!(!recipe.path("evil").exists(), "{says}");
    }
    recipe.write("source.tar", "no tarball");
    let ended = recipe.run("unpack", &["source.tar", "below/source"]);
    ended.expect_refused("source.tar cannot be unpacked");
}

#[test]
fn a_source_is_unpacked_without_its_top_folder() {
    let recipe = make_folder();
    let members = [GOOD, member("top/sub/link", LINK, "../file")];
    write_tarball(&recipe, "source.tar", &members);
    recipe.tool("gzip", &["--keep", "source.tar"]);
    for tarball in ["source.tar", "source.tar.gz"] {
        let folder = format!("from-{tarball}");
        let ended = recipe.run("unpack", &[tarball, &folder]);
        assert!(ended.success, "{ended:?}");
        assert_eq!(ended.output, format!("{TIME}\n"), "the time of the source");
        let link = recipe.path(&folder).join("sub/link");
        assert_eq!(read(&link).unwrap(), "content\n");
        let file = std::fs::metadata(link).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o755);
    }
}

#[test]
fn another_digest_is_refused_before_a_file_is_unpacked() {
    let recipe = make_folder();
    let digest = write_tarball(&recipe, "source.tar", &[member("../evil", FILE, "")]);
    let other = "0".repeat(64);
    let says = format!("source.tar has the SHA-256 {digest}; nothing was unpacked");
    build_from(&recipe, &other).expect_refused(&says);
    build_from(&recipe, &digest).expect_refused("which leaves its folder");
}

#[test]
fn the_source_is_of_the_project_and_has_a_version() {
    let licence = member("top/LICENSE.txt", FILE, LICENCE);
    let versions = [
        "#define NCCL_TESTS_VERSION \"new\"\n",
        "#define NCCL_TESTS_VERSION \"2.19.6\"\n",
    ]
    .map(|text| member("top/src/common.h", FILE, text));
    let recipe = make_folder();
    make_repository(
        recipe.dir.path(),
        &recipe.path("mirror"),
        &[("make", "4.4.1-2")],
    );
    for (members, says) in [
        (
            &[GOOD][..],
            "the source has no src/common.h; write a tarball of NVIDIA/nccl-tests",
        ),
        (
            &[versions[0], licence][..],
            "the source has the version new, which no package can have",
        ),
        (
            &[versions[1]][..],
            "the source has no LICENSE.txt, the text of its licence",
        ),
        // The next step asks the package sources.
        (&[versions[1], licence][..], "have no nvidia-cuda-toolkit"),
    ] {
        let digest = write_tarball(&recipe, "source.tar", members);
        build_from(&recipe, &digest).expect_refused(says);
    }
}
