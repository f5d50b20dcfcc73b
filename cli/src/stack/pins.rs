//! Versions that apt prefers: the packages of a former lock, and the unnamed parts of a tuple.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use muster_core::images::ImageManifest;
use muster_core::stacks::StackSpec;

use super::Versions;
use super::index::{Index, Offered, PackageId, field};
use super::lock::Resolved;

/// Most packages named in an error.
const NAMED: usize = 10;

/// The preferred versions of a run.
#[derive(Clone, Debug)]
pub(super) struct Pins {
    kept: Versions,
    followers: Versions,
}

impl Pins {
    /// Returns the pins beside the wanted packages. A follower of a wanted package is not kept.
    pub(super) fn new(mut kept: Versions, wanted: &Versions, arch: &str, index: &Index) -> Self {
        let followers = list_followers(wanted, arch, index);
        kept.retain(|name, _| !followers.contains_key(name));
        Self { kept, followers }
    }

    /// Returns the packages to keep, without followers.
    pub(super) fn list_kept(&self) -> Versions {
        self.kept.clone()
    }

    pub(super) fn list(&self) -> Versions {
        let pins = self.kept.iter().chain(&self.followers);
        pins.map(|(name, version)| (name.clone(), version.clone()))
            .collect()
    }

    /// Checks that the packages of the closure, and the packages of the image beside them, have the
    /// versions to keep.
    ///
    /// # Errors
    /// Names the packages with another version.
    pub(super) fn check_kept(
        &self,
        image: &ImageManifest,
        closure: &[Resolved],
    ) -> anyhow::Result<()> {
        let resolved: BTreeMap<&str, &str> = closure
            .iter()
            .map(|one| (one.package.name.as_str(), one.package.version.as_str()))
            .collect();
        let moved = self.kept.iter().filter_map(|(name, kept)| {
            let in_image = || image.packages.iter().find(|package| package.name == *name);
            let found = resolved.get(name.as_str()).copied();
            let found = found.or_else(|| Some(in_image()?.version.as_str()))?;
            (found != kept).then(|| format!("{name} {kept} (found {found})"))
        });
        let moved: Vec<String> = moved.collect();
        let more = match moved.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        match moved.is_empty() {
            true => Ok(()),
            false => bail!(
                "--keep cannot hold {}{more}: no repository offers the version, or the image has another; give each an exact version in the stack, or lock without --keep",
                moved[..moved.len().min(NAMED)].join(", ")
            ),
        }
    }

    /// Returns the advice for a closure that apt cannot resolve.
    pub(super) fn advise(&self) -> String {
        match self.kept.is_empty() {
            true => "the packages cannot be resolved together".to_owned(),
            false => "the packages cannot be resolved together; --keep holds every package of the earlier lock: give a package that must move an exact version in the stack".to_owned(),
        }
    }
}

/// Returns the packages of a former lock, without packages declared in an exact version.
///
/// # Errors
/// When the former stack has no lock.
pub(super) fn list_kept(former: &StackSpec, declared: &Versions) -> anyhow::Result<Versions> {
    let lock = former.lock.as_ref();
    let lock = lock
        .context("the stack has no lock; name the output of an earlier run without --recorded")?;
    let is_free = |name: &str| declared.get(name).is_none_or(|version| version == "*");
    let kept = lock.packages.iter().filter(|one| is_free(&one.name));
    Ok(kept
        .map(|one| (one.name.clone(), one.version.clone()))
        .collect())
}

/// Returns the packages needed in an exact version by the wanted packages, directly or through such a
/// package: `libcuda1 (= 550.163.01-2)`; and the packages of the same source and version. Without
/// these pins apt takes the newest versions, and fails if an older version of a tuple is wanted.
fn list_followers(wanted: &Versions, arch: &str, index: &Index) -> Versions {
    let mut sources: HashMap<(&str, &str), Vec<&str>> = HashMap::new();
    for (id, Offered { stanza, .. }) in index {
        let siblings = sources.entry((name_source(stanza), id.version.as_str()));
        siblings.or_default().push(&id.name);
    }
    let mut known = wanted.clone();
    let mut left: Vec<(String, String)> = wanted.clone().into_iter().collect();
    while let Some((name, version)) = left.pop() {
        let Some(stanza) = find_stanza(&name, &version, arch, index) else {
            continue;
        };
        let siblings = sources.get(&(name_source(stanza), version.as_str()));
        let siblings = siblings.into_iter().flatten();
        let siblings = siblings.map(|name| (*name, version.as_str()));
        for (name, version) in list_exact_needs(stanza).chain(siblings) {
            let is_offered = find_stanza(name, version, arch, index).is_some();
            if is_offered && !known.contains_key(name) {
                known.insert(name.to_owned(), version.to_owned());
                left.push((name.to_owned(), version.to_owned()));
            }
        }
    }
    known.retain(|name, _| !wanted.contains_key(name));
    known
}

fn find_stanza<'a>(name: &str, version: &str, arch: &str, index: &'a Index) -> Option<&'a str> {
    let find = |arch: &str| {
        index.get(&PackageId {
            name: name.to_owned(),
            version: version.to_owned(),
            arch: arch.to_owned(),
        })
    };
    let Offered { stanza, .. } = find(arch).or_else(|| find("all"))?;
    Some(stanza)
}

/// Returns the source package: `nvidia-graphics-drivers` for `nvidia-graphics-drivers (535.1-1)`.
fn name_source(stanza: &str) -> &str {
    let source = field(stanza, "Source").or_else(|| field(stanza, "Package"));
    let source = source.unwrap_or_default();
    source.split_once(' ').map_or(source, |(source, _)| source)
}

/// Returns names and versions of the dependencies on an exact version. The first of several
/// alternatives counts: apt installs this package if none of them is present.
fn list_exact_needs(stanza: &str) -> impl Iterator<Item = (&str, &str)> {
    let fields = ["Pre-Depends", "Depends"].into_iter();
    let needs = fields.filter_map(move |name| field(stanza, name));
    needs
        .flat_map(|needs| needs.split(','))
        .filter_map(parse_exact)
}

/// Parses `libcuda1 (= 550.163.01-2)` and `libcuda1:any (= 550.163.01-2) | libcuda-any`.
fn parse_exact(need: &str) -> Option<(&str, &str)> {
    let need = need.split('|').next()?.trim();
    let (name, version) = need.split_once('(')?;
    let version = version.trim().strip_prefix('=')?.strip_suffix(')')?;
    let name = name.split(':').next()?;
    Some((name.trim(), version.trim()))
}

/// Renders pins as apt's preferences (apt_preferences(5)). A priority above 1000 also allows a version
/// older than the image's.
///
/// # Errors
/// When a name or a version has characters not allowed by Debian.
pub(super) fn render(pins: &Versions) -> anyhow::Result<String> {
    let is_plain = |word: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "+-.~:".contains(c);
        !word.is_empty() && word.chars().all(allowed)
    };
    let mut text = String::new();
    for (name, version) in pins {
        if !is_plain(name) || !is_plain(version) {
            bail!("{name:?} {version:?} is no package of Debian");
        }
        write!(
            text,
            "Package: {name}\nPin: version {version}\nPin-Priority: 1001\n\n"
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_dependencies_are_read() {
        let needs = "Package: a\nDepends: b (= 1:2-3), c:any (= 4), d (>= 5), e, f (= 6) | g, h (=7)\nPre-Depends: i (= 8)\n";
        let found: Vec<(&str, &str)> = list_exact_needs(needs).collect();
        assert_eq!(
            found,
            [
                ("i", "8"),
                ("b", "1:2-3"),
                ("c", "4"),
                ("f", "6"),
                ("h", "7")
            ]
        );
    }

    #[test]
    fn preferences_take_no_foreign_line() {
        let pins = |name: &str, version: &str| Versions::from([(name.into(), version.into())]);
        assert_eq!(
            render(&pins("libstdc++6", "1:2~rc-1+b1")).expect("a pin"),
            "Package: libstdc++6\nPin: version 1:2~rc-1+b1\nPin-Priority: 1001\n\n"
        );
        for (name, version) in [
            ("a\nPackage: *", "1"),
            ("a", "1\nPin-Priority: 9"),
            ("", "1"),
            ("a", "*"),
        ] {
            assert!(
                render(&pins(name, version)).is_err(),
                "{name:?} {version:?}"
            );
        }
    }
}
