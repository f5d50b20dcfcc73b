//! The stacks of Debian's own archive, and the same stacks with a mistake.

use super::*;

/// A shipped stack, and the recorded index with its packages.
struct Shipped {
    file: &'static str,
    release: &'static str,
    kernel: &'static str,
    index: &'static str,
}

const CUDA_12: Shipped = Shipped {
    file: "cuda-debian-12.toml",
    release: "12",
    kernel: "6.1.0-57-amd64",
    index: "recorded/debian-12-cuda.packages",
};
const CUDA_13: Shipped = Shipped {
    file: "cuda-debian-13.toml",
    release: "13",
    kernel: "6.12.118+deb13-amd64",
    index: "recorded/debian-13-gpu.packages",
};
const CUDA_535: Shipped = Shipped {
    file: "cuda-535-debian-13.toml",
    ..CUDA_13
};
const ROCM_13: Shipped = Shipped {
    file: "rocm-debian-13.toml",
    ..CUDA_13
};

impl Shipped {
    fn text(&self) -> String {
        read(&shipped(self.file)).unwrap()
    }

    /// Writes the manifest of the image, and the stack with this text.
    fn prepare(&self, dir: &Path, text: &str) -> LockArgs {
        let stack = dir.join("stack.toml");
        std::fs::write(&stack, text).unwrap();
        let args = LockArgs {
            recorded: vec![shipped(self.index)],
            ..recorded(dir, stack)
        };
        let mut image = plain_image();
        image["name"] = format!("debian-{}", self.release).into();
        image["os_version"] = self.release.into();
        image["kernel"] = self.kernel.into();
        std::fs::write(&args.image, image.to_string()).unwrap();
        args
    }
}

#[tokio::test]
async fn stacks_of_debians_archive_resolve_offline_within_the_rules() {
    for (stack, driver) in [
        (CUDA_12, Some(("libcuda1", "535.309.01"))),
        (CUDA_13, Some(("libcuda1", "550.163.01"))),
        (CUDA_535, Some(("libnvidia-tesla-535-cuda1", "535.274.02"))),
        (ROCM_13, None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let resolved = lock_stack(&stack.prepare(dir.path(), &stack.text()))
            .await
            .unwrap_or_else(|error| panic!("{}: {error:#}", stack.file));
        assert!(
            resolved.packages.values().all(|version| version != "*"),
            "{}",
            stack.file
        );
        if let Some((package, version)) = driver {
            let found = &resolved.packages[package];
            assert!(found.starts_with(version), "{}: {found}", stack.file);
        }
    }
}

/// A change of a shipped stack, and words of the refusal: the rule, the package, and the package to
/// write.
struct Mistake {
    stack: Shipped,
    before: &'static str,
    after: &'static str,
    says: &'static [&'static str],
}

const MISTAKES: [Mistake; 4] = [
    Mistake {
        stack: CUDA_13,
        before: "libcuda1 = ",
        after: "libnvidia-tesla-535-cuda1 = ",
        says: &[
            "R8",
            "libnvidia-tesla-535-cuda1 535.274.02-1~deb13u1",
            "550.163.01-2",
            "give all parts of the driver one branch and version",
        ],
    },
    Mistake {
        stack: CUDA_535,
        before: "linux-modules-nvidia-535-",
        after: "linux-modules-nvidia-550-",
        says: &[
            "R8",
            "linux-modules-nvidia-550-6.12.118+deb13-amd64",
            "535.274.02-1~deb13u1",
            "take the modules of the driver's branch and version",
        ],
    },
    Mistake {
        stack: CUDA_13,
        before: "\"linux-image-6.12.118+deb13-amd64\"",
        after: "\"linux-image-6.12.117+deb13-amd64\"",
        says: &[
            "R7",
            "linux-modules-nvidia-550-6.12.118+deb13-amd64 ",
            "build for 6.12.117+deb13-amd64",
            "add linux-modules-nvidia-550-6.12.117+deb13-amd64 to the stack",
        ],
    },
    Mistake {
        stack: CUDA_12,
        before: "linux-headers-amd64 = \"*\"\n",
        after: "",
        says: &[
            "R7",
            "nvidia-kernel-dkms 535.309.01-0+deb12u1",
            "linux-headers-6.1.0-57-amd64 (add the package to the stack)",
        ],
    },
];

#[tokio::test]
async fn a_mistake_in_a_debian_stack_is_refused_with_rule_and_package() {
    for Mistake {
        stack,
        before,
        after,
        says,
    } in MISTAKES
    {
        let dir = tempfile::tempdir().unwrap();
        let right = stack.text();
        let wrong = right.replace(before, after);
        assert_ne!(right, wrong, "{before}");
        let args = stack.prepare(dir.path(), &wrong);
        let refused = format!("{:#}", lock_stack(&args).await.unwrap_err());
        for word in says {
            assert!(refused.contains(word), "{after:?} {word}: {refused}");
        }
        assert!(!args.out.exists(), "{after:?}");
    }
}

#[tokio::test]
async fn a_name_unknown_to_a_recorded_index_is_refused_without_source_lines() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = CUDA_12.text().replace("libcuda1 = ", "libcuda-one = ");
    let args = CUDA_12.prepare(dir.path(), &wrong);
    let refused = format!("{:#}", lock_stack(&args).await.unwrap_err());
    let words = "does not offer libcuda-one: correct the name, or add the package's repository with --also, or a recorded index with --recorded";
    assert!(refused.ends_with(words), "{refused}");
}

/// A mirror with `main` alone, in the layout of an archive.
fn write_main_mirror(bench: &Bench) -> PathBuf {
    let mirror = bench.path("archive");
    let packages = mirror.join("dists/bookworm/main/binary-amd64");
    std::fs::create_dir_all(&packages).unwrap();
    let needs = "firmware-of-non-free";
    let stanza = build(bench.dir.path(), &mirror, ("tool", "1.0-1", "amd64", needs));
    let release = format!(
        "Suite: bookworm\nComponents: main\nArchitectures: amd64\nDate: Fri, 02 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} main/binary-amd64/Packages\n",
        Digest::of(stanza.as_bytes()).hex(),
        stanza.len()
    );
    std::fs::write(packages.join("Packages"), stanza).unwrap();
    std::fs::write(mirror.join("dists/bookworm/Release"), release).unwrap();
    mirror
}

#[tokio::test]
async fn a_mirror_without_non_free_is_refused_with_the_line_to_add() {
    let bench = Bench::new();
    let mirror = write_main_mirror(&bench);
    let refuse = async |packages: &str| {
        let stack = format!("version = \"1\"\nimage = \"debian-12\"\n[packages]\n{packages}");
        let archive = format!("deb [trusted=yes] copy:{} bookworm main", mirror.display());
        let args = LockArgs {
            open: true,
            mirror: vec![archive],
            ..bench.prepare(&stack, "wanted")
        };
        format!("{:#}", lock_stack(&args).await.unwrap_err())
    };
    let line = format!(
        "--also \"deb [trusted=yes] copy:{} bookworm contrib non-free non-free-firmware\"",
        mirror.display()
    );
    let unknown = refuse("libcuda1 = \"*\"\nnvidia-smi = \"535.309.01-1\"\n").await;
    for word in [
        "does not offer libcuda1, nvidia-smi: correct the name, or add",
        "the sources lack components of Debian's archive",
        line.as_str(),
    ] {
        assert!(unknown.contains(word), "{word}: {unknown}");
    }
    // `main` has the package without the dependency.
    let unmet = refuse("tool = \"*\"\n").await;
    let words = [
        "cannot be resolved together",
        "firmware-of-non-free",
        line.as_str(),
    ];
    for word in words {
        assert!(unmet.contains(word), "{word}: {unmet}");
    }
    // The reason of apt first, the advice last.
    let advice = format!(
        "; if a package above is unknown to the sources: they lack components of Debian's archive: add {line}"
    );
    let reason = unmet.strip_suffix(&advice);
    assert!(
        reason.is_some_and(|reason| reason.contains("firmware-of-non-free")),
        "{unmet}"
    );
    assert!(!bench.path("wanted/stack.toml").exists());
}
