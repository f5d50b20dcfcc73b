//! The five packages as dpkg reports them.

use anyhow::ensure;

use super::super::cast::Cast;
use super::super::tuple::TUPLE;
use super::NODE;

/// The version of each of the five packages; for a package that is not fully installed, its state.
pub(super) async fn read_versions(cast: &Cast<'_>) -> anyhow::Result<Vec<String>> {
    let query = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' 'drv-*' 2>/dev/null || true";
    let listing = cast.veteran(NODE)?.run(&[query]).await?;
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

/// All five packages in one version.
pub(super) fn all_of(version: &str) -> Vec<String> {
    vec![version.to_owned(); TUPLE.len()]
}

/// Checks that all five packages have this version, and that dpkg has no unfinished work.
pub(super) async fn check_versions(cast: &Cast<'_>, version: &str) -> anyhow::Result<()> {
    let found = read_versions(cast).await?;
    ensure!(
        found == all_of(version),
        "they are {found:?}, and not {version}"
    );
    let unfinished = cast.veteran(NODE)?.run(&["dpkg --audit"]).await?;
    ensure!(
        unfinished.trim().is_empty(),
        "dpkg has something to finish: {unfinished}"
    );
    Ok(())
}
