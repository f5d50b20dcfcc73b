//! Shipped stacks and parts, resolved against recorded indexes without a mirror.

use super::*;

#[tokio::test]
async fn shipped_gpu_stacks_are_right_by_the_rules_and_resolve_offline() {
    for name in GPU_STACKS {
        let dir = tempfile::tempdir().unwrap();
        let resolved = lock_stack(&recorded(dir.path(), shipped(name)))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert!(
            resolved.packages.values().all(|version| version != "*"),
            "{name}"
        );
        assert!(
            resolved.lock.is_none() && resolved.bundle.is_none(),
            "{name}: nothing is known of sizes and digests"
        );
        let image: ImageManifest = serde_json::from_value(plain_image()).unwrap();
        assert_eq!(
            refusal(Subject {
                stack: &resolved,
                image: Some(&image),
                facts: None
            }),
            None,
            "{name}"
        );
        let authored = parse(&shipped(name)).unwrap();
        for (package, version) in authored
            .packages
            .iter()
            .filter(|(_, version)| *version != "*")
        {
            assert_eq!(
                resolved.packages.get(package),
                Some(version),
                "{name}: --open keeps what is pinned"
            );
        }
    }
}

const PARTS: [&str; 7] = [
    "gpu-tests.toml",
    "ipmi.toml",
    "lustre.toml",
    "nfs.toml",
    "rccl-tests.toml",
    "storage-scale.toml",
    "weka.toml",
];
/// The parts without a client of a file system.
const TOOLS: [&str; 3] = ["gpu-tests.toml", "ipmi.toml", "rccl-tests.toml"];

/// A stack with a part, resolved against both recorded indexes.
fn joined(dir: &Path, stack: &str, part: &Path) -> LockArgs {
    let indexes = [
        "recorded/debian-12-gpu.packages",
        "recorded/debian-12-storage.packages",
    ]
    .map(shipped)
    .to_vec();
    LockArgs {
        with: vec![part.into()],
        recorded: indexes,
        ..recorded(dir, shipped(stack))
    }
}

#[tokio::test]
async fn shipped_parts_join_shipped_stacks_and_resolve_offline() {
    let mut there: Vec<String> = std::fs::read_dir(shipped("parts"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    there.sort();
    assert_eq!(there, PARTS, "each part that ships is resolved here");
    for stack in ["cpu-slurm.toml", "h200-cuda13.toml"] {
        for part in PARTS {
            let dir = tempfile::tempdir().unwrap();
            let args = joined(dir.path(), stack, &shipped("parts").join(part));
            let resolved = lock_stack(&args)
                .await
                .unwrap_or_else(|error| panic!("{stack} with {part}: {error:#}"));
            assert!(
                resolved.packages.values().all(|version| version != "*"),
                "{stack} with {part}"
            );
            let image: ImageManifest = serde_json::from_value(plain_image()).unwrap();
            let refused = refusal(Subject {
                stack: &resolved,
                image: Some(&image),
                facts: None,
            });
            assert_eq!(refused, None, "{stack} with {part}");
            // The items of the stack remain. A file system's part adds a mount for the gates.
            let alone = parse(&shipped(stack)).unwrap();
            assert!(
                alone
                    .packages
                    .keys()
                    .all(|name| resolved.packages.contains_key(name)),
                "{stack} with {part}"
            );
            assert_eq!(
                parse(&dir.path().join("out.toml")).unwrap(),
                resolved,
                "what is written is whole"
            );
            if TOOLS.contains(&part) {
                continue;
            }
            let unit = resolved
                .files
                .iter()
                .find(|file| file.path == "/etc/systemd/system/shared.mount")
                .unwrap();
            let says = |word: &str| {
                unit.content
                    .iter()
                    .any(|part| matches!(part, muster_core::stacks::Part::Text(text) if text.contains(word)))
            };
            assert!(says("Where=/shared") && says("Type="), "{part}");
            assert!(
                resolved
                    .services
                    .iter()
                    .any(|service| service.name == "shared.mount" && service.running),
                "{part}"
            );
        }
    }
}

#[tokio::test]
async fn a_part_that_says_otherwise_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let part = dir.path().join("clocks.toml");
    std::fs::write(
        &part,
        "[[services]]\nname = \"chrony\"\nenabled = false\nrunning = false\n",
    )
    .unwrap();
    let refused = lock_stack(&joined(dir.path(), "cpu-slurm.toml", &part))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("clocks.toml")
            && refused.contains("service chrony is not the same in both"),
        "{refused}"
    );
    // Two clients of one directory.
    let both = joined(dir.path(), "cpu-slurm.toml", &shipped("parts/nfs.toml"));
    let both = LockArgs {
        with: vec![shipped("parts/nfs.toml"), shipped("parts/lustre.toml")],
        ..both
    };
    let refused = lock_stack(&both).await.unwrap_err().to_string();
    assert!(
        refused.contains("lustre.toml") && refused.contains("shared.mount"),
        "{refused}"
    );
    assert!(!dir.path().join("out.toml").exists());
    // The index has no layer for the older kernel. With such a layer, the rule refuses the stack.
    let scale = read(&shipped("parts/storage-scale.toml")).unwrap();
    let other = scale.replace("gpfs.gplbin-6.1.0-40-amd64", "gpfs.gplbin-6.1.0-39-amd64");
    std::fs::write(&part, other).unwrap();
    let index = read(&shipped("recorded/debian-12-storage.packages")).unwrap();
    let older = dir.path().join("older.packages");
    std::fs::write(
        &older,
        index.replace("gpfs.gplbin-6.1.0-40-amd64", "gpfs.gplbin-6.1.0-39-amd64"),
    )
    .unwrap();
    let mut args = joined(dir.path(), "cpu-slurm.toml", &part);
    args.recorded[1] = older;
    let refused = lock_stack(&args).await.unwrap_err().to_string();
    assert!(
        refused.contains("R7") && refused.contains("gpfs.gplbin-6.1.0-39-amd64"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_wrong_tuple_is_refused_before_it_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let right = read(&shipped("h100-cuda12.8.toml")).unwrap();
    let wrong = right.replace(
        "nvidia-fabricmanager = \"580.126.20-1\"",
        "nvidia-fabricmanager = \"580.95.05-1\"",
    );
    assert_ne!(right, wrong);
    std::fs::write(dir.path().join("wrong.toml"), wrong).unwrap();
    let refused = lock_stack(&recorded(dir.path(), dir.path().join("wrong.toml")))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("R3")
            && refused.contains("580.95.05-1")
            && refused.contains("580.126.20-1"),
        "{refused}"
    );
    assert!(!dir.path().join("out.toml").exists());
    // Dependencies count as well as named packages: the driver's module is a dependency.
    let split = right.replace(
        "nvidia-open = \"580.126.20-1\"",
        "nvidia-open = \"580.126.20-1\"\nlibcuda1 = \"580.95.05-1\"",
    );
    std::fs::write(dir.path().join("split.toml"), split).unwrap();
    let refused = lock_stack(&recorded(dir.path(), dir.path().join("split.toml")))
        .await
        .unwrap_err();
    assert!(format!("{refused:#}").contains("libcuda1"), "{refused:#}");
}
