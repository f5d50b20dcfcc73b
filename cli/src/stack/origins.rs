//! The repository of each package in a lock, with its Release file at the time of the lock, as the
//! snapshot.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use muster_core::stacks::LockedRepository;
use muster_core::values::Digest;

use super::apt::PrivateApt;
use super::index::field;
use super::lock::Resolved;

/// An index: its key in the Release file, and the members of its source line. For a flat repository
/// some members are placeholders
/// (apt-get(8), indextargets).
const FORMAT: &str = "$(METAKEY)|$(COMPONENT)|$(RELEASE)|$(REPO_URI)|$(FILENAME)";

/// Returns the repositories of these packages, sorted by name.
///
/// # Errors
/// When a package belongs to an index unknown to apt, or the index has no Release file.
pub(super) async fn of(
    resolved: &[Resolved],
    apt: &PrivateApt,
) -> anyhow::Result<Vec<LockedRepository>> {
    let known: Vec<(PathBuf, LockedRepository)> = apt
        .indexes(FORMAT)
        .await?
        .lines()
        .filter_map(target)
        .map(read)
        .collect::<anyhow::Result<_>>()?;
    let mut found: Vec<LockedRepository> = Vec::new();
    for one in resolved {
        let of = known.iter().find(|(list, _)| *list == one.list);
        let (_, repository) = of.with_context(|| {
            format!(
                "{}: belongs to no repository known to apt",
                one.list.display()
            )
        })?;
        let name = one.package.name.clone();
        match found
            .iter_mut()
            .find(|known| known.name() == repository.name())
        {
            Some(known) => known.packages.push(name),
            None => found.push(LockedRepository {
                packages: vec![name],
                ..repository.clone()
            }),
        }
    }
    for repository in &mut found {
        repository.packages.sort();
        repository.packages.dedup();
    }
    found.sort_by_key(LockedRepository::name);
    Ok(found)
}

/// An index of packages.
struct Target {
    list: PathBuf,
    release: PathBuf,
    uri: String,
    suite: String,
    component: String,
}

fn target(line: &str) -> Option<Target> {
    let mut words = line.splitn(5, '|');
    let mut next = || words.next().map(str::trim);
    let (key, component, suite, uri, list) = (next()?, next()?, next()?, next()?, next()?);
    let there = |word: &str| {
        if word.starts_with("$(") || word == "/" {
            String::new()
        } else {
            word.to_owned()
        }
    };
    // apt names a file after its URL, so files next to each other in the repository are next to
    // each other here.
    let folder = list.strip_suffix(&key.replace('/', "_"))?;
    let beside = ["InRelease", "Release"].map(|name| PathBuf::from(format!("{folder}{name}")));
    let release = beside
        .iter()
        .find(|path| path.exists())
        .unwrap_or(&beside[0])
        .clone();
    let (suite, component) = (there(suite), there(component));
    Some(Target {
        list: list.into(),
        release,
        uri: remove_credentials(uri),
        suite,
        component,
    })
}

fn read(target: Target) -> anyhow::Result<(PathBuf, LockedRepository)> {
    let Target {
        list,
        release,
        uri,
        suite,
        component,
    } = target;
    let text = bytes(&release)?;
    let date = field(&String::from_utf8_lossy(&text), "Date").map(str::to_owned);
    let repository = LockedRepository {
        uri,
        suite,
        component,
        date,
        release: Digest::of(&text),
        packages: Vec::new(),
    };
    Ok((list, repository))
}

fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path)
        .with_context(|| format!("{}: the Release file of a repository", path.display()))
}

/// Returns the address without credentials, because locks are readable by every reader of stacks.
pub(super) fn remove_credentials(uri: &str) -> String {
    let (scheme, rest) = uri
        .split_once("://")
        .map_or(("", uri), |(scheme, rest)| (scheme, rest));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest
        .split_once('/')
        .map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = if scheme.is_empty() {
        host
    } else {
        host.rsplit('@').next().unwrap_or_default()
    };
    let path = path
        .map(|path| format!("/{}", path.trim_end_matches('/')))
        .unwrap_or_default();
    let scheme = if scheme.is_empty() {
        String::new()
    } else {
        format!("{scheme}://")
    };
    format!("{scheme}{host}{path}")
        .trim_end_matches('/')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_no_secret() {
        assert_eq!(
            remove_credentials("https://ci:canary-7@mirror.lab:8080/debian/?token=canary-8#x"),
            "https://mirror.lab:8080/debian"
        );
        assert_eq!(
            remove_credentials("http://mirror.lab/a@b/"),
            "http://mirror.lab/a@b",
            "only what stands before the host"
        );
        assert_eq!(remove_credentials("http://mirror.lab"), "http://mirror.lab");
        assert_eq!(remove_credentials("copy:/srv/mirror/"), "copy:/srv/mirror");
    }

    #[test]
    fn an_index_tells_of_its_repository() {
        let line = "main/binary-amd64/Packages|main|bookworm-security|http://u:p@mirror.lab/debian-security/|/c/lists/mirror.lab_debian-security_dists_\
                    bookworm-security_main_binary-amd64_Packages";
        let Target {
            release,
            uri,
            suite,
            component,
            ..
        } = target(line).expect("an index");
        assert_eq!(
            release,
            Path::new("/c/lists/mirror.lab_debian-security_dists_bookworm-security_InRelease")
        );
        assert_eq!(
            [uri.as_str(), &suite, &component],
            [
                "http://mirror.lab/debian-security",
                "bookworm-security",
                "main"
            ]
        );
        let flat = target("Packages|$(COMPONENT)||copy:/srv/mirror/|/c/lists/_srv_mirror_Packages")
            .expect("an index");
        assert_eq!(
            (flat.release, flat.suite, flat.component),
            (
                "/c/lists/_srv_mirror_InRelease".into(),
                String::new(),
                String::new()
            )
        );
        assert!(target("nonsense").is_none());
    }
}
