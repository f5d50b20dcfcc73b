//! Changes of the driver by hand: another alternative, a removed module, a changed library. A look
//! must name each, and a converge must repair each.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::super::cast::state;
use super::super::veteran::Veteran;
use super::scene::{NODE, Scene, check_well};

/// Time limit of a converge with boots and gates, on an emulated processor.
const CONVERGE: Duration = Duration::from_secs(45 * 60);
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1";
/// Groups of alternatives of the driver, in the order of preference.
const GROUPS: [&str; 2] = ["nvidia", "glx"];

/// A change by hand.
struct Hand {
    /// The change in words, for the report.
    title: String,
    /// Words of which the item of the drift must have one.
    names: Vec<String>,
    command: String,
    /// Prints the state before and after.
    probe: String,
}

/// Makes all changes, checks that a look names each, and that a converge repairs each.
pub(super) async fn check_repaired(scene: &Scene<'_>) -> anyhow::Result<()> {
    let admin = &scene.admin;
    let hands = list_hands(scene).await?;
    let mut before = Vec::new();
    for hand in &hands {
        scene.watch.say(&format!("5. by hand: {}", hand.title));
        let was = admin.run(&[&hand.probe]).await?;
        admin.run(&[&hand.command]).await?;
        let is = admin.run(&[&hand.probe]).await?;
        ensure!(was != is, "no change was made: {}", hand.title);
        before.push(was);
    }
    let told = look(scene).await?;
    let drift = scene.client().node_drift(NODE).await?;
    let is_named = |hand: &&Hand| {
        let mut items = drift.items.iter();
        items.any(|item| hand.names.iter().any(|name| item.item.contains(name)))
    };
    let unnamed: Vec<&str> = hands
        .iter()
        .filter(|hand| !is_named(hand))
        .map(|hand| hand.title.as_str())
        .collect();
    ensure!(
        unnamed.is_empty(),
        "the drift does not name: {}\n{told}",
        unnamed.join("; ")
    );
    converge(scene).await?;
    for (hand, was) in hands.iter().zip(&before) {
        let is = admin.run(&[&hand.probe]).await?;
        ensure!(is == *was, "not repaired: {}: {is}", hand.title);
    }
    let told = look(scene).await?;
    ensure!(
        told.contains("no difference"),
        "a difference is left:\n{told}"
    );
    scene.check_service().await
}

/// Compares the node with its stack, and prints the result.
async fn look(scene: &Scene<'_>) -> anyhow::Result<String> {
    let verb = ["stack", "drift", NODE];
    let told = scene.programs.cli(&verb, &["--look"]).await?;
    println!("{}", told.trim_end());
    Ok(told)
}

async fn converge(scene: &Scene<'_>) -> anyhow::Result<()> {
    let (client, verb) = (scene.client(), ["node", "converge", NODE]);
    let reason = ["--reason", "changes by hand"];
    scene.programs.cli(&verb, &reason).await?;
    let repaired = scene
        .watch
        .until(client, "the repair", CONVERGE, async |fleet| {
            check_well(fleet)?;
            let page = client.list_operations(&[("limit", "1")]).await?;
            let is_done = page.items.first().is_some_and(|operation| operation.done);
            Ok(is_done && state(fleet, NODE) == "in_service")
        });
    repaired.await
}

async fn list_hands(scene: &Scene<'_>) -> anyhow::Result<[Hand; 3]> {
    let admin = &scene.admin;
    Ok([
        switch_alternative(admin).await?,
        remove_module(scene).await?,
        change_library(admin).await?,
    ])
}

/// Switches the first group of alternatives with a second value.
async fn switch_alternative(admin: &Veteran<'_>) -> anyhow::Result<Hand> {
    for group in GROUPS {
        let query = format!("update-alternatives --query {group}");
        let shown = admin.run(&[&query]).await?;
        if let Some(other) = find_other_value(&shown) {
            return Ok(Hand {
                title: format!("alternative {group} set to {other}"),
                names: vec![format!("alternative {group}")],
                command: format!("update-alternatives --set {group} {other}"),
                probe: format!("{query} | grep -E '^(Status|Value):'"),
            });
        }
    }
    bail!("no group of alternatives of the driver has a second value")
}

/// Returns a value of a group other than the present value, from `update-alternatives --query`.
fn find_other_value(shown: &str) -> Option<&str> {
    let mut lines = shown.lines();
    let present = lines.find_map(|line| line.strip_prefix("Value: "))?;
    let mut values = shown
        .lines()
        .filter_map(|line| line.strip_prefix("Alternative: "));
    values.find(|value| *value != present)
}

async fn remove_module(scene: &Scene<'_>) -> anyhow::Result<Hand> {
    let package = &scene.first.find_modules()?.name;
    let list = format!("dpkg -L {package}");
    let files = scene.admin.run(&[&list]).await?;
    let mut files = files.lines();
    let module = files
        .find(|path| path.contains("-uvm.ko"))
        .with_context(|| format!("{package} has no module of unified memory"))?;
    Ok(Hand {
        title: format!("{module} removed"),
        names: vec![package.clone(), module.to_owned()],
        command: format!("rm {module}"),
        probe: format!("sha256sum {module} 2>&1 || true"),
    })
}

/// Changes the last byte of a library.
async fn change_library(admin: &Veteran<'_>) -> anyhow::Result<Hand> {
    let resolve = format!("readlink -f {LIBRARY}");
    let path = admin.run(&[&resolve]).await?.trim().to_owned();
    let search = format!("dpkg -S {path}");
    let owner = admin.run(&[&search]).await?;
    let package = owner.split([':', ' ']).next().unwrap_or_default();
    ensure!(!package.is_empty(), "{path} belongs to no package");
    let seek = format!("$(($(stat -c %s {path})-1))");
    Ok(Hand {
        title: format!("a byte of {path} changed"),
        names: vec![format!("package {package}"), path.clone()],
        command: format!("printf X | dd of={path} bs=1 seek={seek} conv=notrunc status=none"),
        probe: format!("sha256sum {path}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_value_of_a_group_is_found() {
        let shown = "Name: glx\nLink: /usr/lib/glx\nStatus: auto\nBest: /usr/lib/nvidia\n\
            Value: /usr/lib/nvidia\n\nAlternative: /usr/lib/nvidia\nPriority: 100\n\n\
            Alternative: /usr/lib/mesa-diverted\nPriority: 5\n";
        assert_eq!(find_other_value(shown), Some("/usr/lib/mesa-diverted"));
        let single = "Name: nvidia\nValue: /usr/lib/nvidia/current\n\n\
            Alternative: /usr/lib/nvidia/current\nPriority: 550\n";
        assert_eq!(find_other_value(single), None);
        assert_eq!(find_other_value(""), None);
    }
}
