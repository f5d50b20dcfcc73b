//! The five packages as reported by dpkg.

use anyhow::ensure;

use super::cast::Cast;
use super::tuple::TUPLE;

/// Reads the version of each of the five packages on a node, in the order of [`TUPLE`]. A partly installed
/// package has its dpkg state instead, and a missing package has `absent`.
pub(super) async fn read_versions(cast: &Cast<'_>, node: &str) -> anyhow::Result<Vec<String>> {
    let query = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' 'drv-*' 2>/dev/null || true";
    let listing = cast.veteran(node)?.run(&[query]).await?;
    let version = |name: &str| {
        let words = listing
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = words.into_iter().find(|words| words.first() == Some(&name));
        match found.as_deref() {
            Some([_, version, "installed"]) => (*version).to_owned(),
            Some([.., "config-files" | "not-installed"]) | None => "absent".to_owned(),
            Some(other) => other[1..].join(" "),
        }
    };
    Ok(TUPLE.iter().map(|(name, _)| version(name)).collect())
}

/// Returns the given version five times, as the expected result of [`read_versions`].
pub(super) fn all_of(version: &str) -> Vec<String> {
    vec![version.to_owned(); TUPLE.len()]
}

/// Checks that all five packages have the given version, and that dpkg has no unfinished work.
pub(super) async fn check_versions(
    cast: &Cast<'_>,
    node: &str,
    version: &str,
) -> anyhow::Result<()> {
    let found = read_versions(cast, node).await?;
    ensure!(
        found == all_of(version),
        "they are {found:?}, and not {version}"
    );
    let unfinished = cast.veteran(node)?.run(&["dpkg --audit"]).await?;
    ensure!(
        unfinished.trim().is_empty(),
        "dpkg has something to finish: {unfinished}"
    );
    Ok(())
}
