//! Packages with a kept version, and unnamed parts of a tuple.

use super::*;

/// The locked versions by name.
fn list_locked(spec: &StackSpec) -> Vec<(&str, &str)> {
    let lock = spec.lock.as_ref().expect("a lock");
    let packages = lock.packages.iter();
    packages
        .map(|package| (package.name.as_str(), package.version.as_str()))
        .collect()
}

fn stack_of(packages: &str) -> String {
    format!("version = \"1\"\nimage = \"debian-12\"\n[packages]\n{packages}")
}

#[tokio::test]
async fn unnamed_parts_follow_the_named_version_of_a_tuple() {
    let bench = Bench::new();
    let stack = stack_of("driver = \"535-1\"\n");
    let locked = bench.lock(&stack, false, "old").await.unwrap();
    assert_eq!(
        list_locked(&locked),
        [
            ("driver", "535-1"),
            ("libdriver", "535-1"),
            ("modprobe", "570-1"),
            ("ptx", "535-1"),
        ],
        "also the parts of a part; a package that fits every version is the newest"
    );
}

#[tokio::test]
async fn a_kept_lock_moves_the_named_tuple_alone() {
    let bench = Bench::new();
    let former = stack_of("driver = \"550-1\"\nmodprobe = \"560-1\"\ntool = \"0.9-1\"\n");
    bench.lock(&former, false, "former").await.unwrap();
    let moved = stack_of("driver = \"535-1\"\ntool = \"*\"\n");
    let args = LockArgs {
        open: true,
        keep: Some(bench.path("former/stack.toml")),
        ..bench.prepare(&moved, "next")
    };
    let kept = lock_stack(&args).await.unwrap();
    assert_eq!(
        list_locked(&kept),
        [
            ("driver", "535-1"),
            ("libdriver", "535-1"),
            ("modprobe", "560-1"),
            ("ptx", "535-1"),
            ("tool", "0.9-1"),
        ]
    );
    // An open part of the tuple follows as well.
    let open = moved.replace("tool =", "libdriver = \"*\"\ntool =");
    let following = LockArgs {
        open: true,
        keep: args.keep.clone(),
        ..bench.prepare(&open, "following")
    };
    let following = lock_stack(&following).await.unwrap();
    assert_eq!(list_locked(&following), list_locked(&kept));
    bench.prepare(&moved, "next");
    // The next run in the same directory, without `--keep`, keeps no version.
    let args = LockArgs { keep: None, ..args };
    let free = lock_stack(&args).await.unwrap();
    let tool = ("tool", "1.0-1");
    assert!(list_locked(&free).contains(&tool), "{free:?}");
    assert!(list_locked(&free).contains(&("modprobe", "570-1")));
}

#[tokio::test]
async fn a_version_that_cannot_be_kept_is_named() {
    let bench = Bench::new();
    let former = stack_of("driver = \"550-1\"\nmodprobe = \"560-1\"\n");
    bench.lock(&former, false, "former").await.unwrap();
    let path = bench.path("former/stack.toml");
    let text = read(&path).unwrap();
    let args = LockArgs {
        keep: Some(path.clone()),
        ..bench.prepare(&stack_of("driver = \"535-1\"\n"), "next")
    };
    let refuse = async |text: String| {
        std::fs::write(&path, text).unwrap();
        format!("{:#}", lock_stack(&args).await.unwrap_err())
    };
    let gone = refuse(text.replace("\"560-1\"", "\"555-1\"")).await;
    let named = "--keep cannot hold modprobe 555-1 (found 570-1)";
    assert!(gone.contains(named), "{gone}");
    // The image has a newer package. No part of the stack changes the package.
    let of_image = text
        .replace("\"modprobe\"", "\"base\"")
        .replace("\"560-1\"", "\"0.9\"");
    let of_image = refuse(of_image).await;
    assert!(of_image.contains("base 0.9 (found 1.0)"), "{of_image}");
    // A kept package is too old for the changed package.
    let old = refuse(text.replace("\"560-1\"", "\"500-1\"")).await;
    assert!(old.contains("must move an exact version"), "{old}");
    let open = refuse(former).await;
    assert!(open.contains("the stack has no lock"), "{open}");
    assert!(!bench.path("next/stack.toml").exists());
}
