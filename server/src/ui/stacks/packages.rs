//! The packages of a stack: a page of the packages with a text in the name.

use std::collections::HashMap;

use muster_core::stacks::diff::package_class;
use muster_core::stacks::{LockedPackage, StackLock, StackSpec};
use serde::Deserialize;

use crate::ui::format;

/// Most packages of one page.
const ROWS: usize = 100;
/// Longest text of a cell, in characters.
const CELL: usize = 120;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::ui) struct PackageQuery {
    /// Text in the names of packages. Letters match in both cases.
    package: String,
    /// Number of packages before the page.
    from: usize,
}

/// A page of packages.
pub(super) struct Packages {
    pub rows: Vec<Package>,
    /// `3 of 68`.
    pub told: String,
    pub filter: String,
    /// Address of the first page. Empty on the first page.
    pub first: String,
    /// Address of the next page. Empty on the last page.
    pub next: String,
}

pub(super) struct Package {
    pub name: String,
    pub version: String,
    /// Empty without a lock.
    pub arch: String,
    pub size: String,
    /// Effect of a change of the package.
    pub effect: &'static str,
    /// Whether the stack names the package. Other packages are dependencies.
    pub is_wanted: bool,
    /// The repository of the package. Empty if the lock records none.
    pub origin: String,
}

/// A package before rendering.
struct Entry<'stack> {
    name: &'stack str,
    version: &'stack str,
    /// Absent in a stack without a lock.
    locked: Option<&'stack LockedPackage>,
}

/// Renders the requested page. A stack without a lock has the wanted packages alone.
pub(super) fn render_packages(name: &str, stack: &StackSpec, query: &PackageQuery) -> Packages {
    let all = list_entries(stack);
    let total = all.len();
    let text = query.package.trim();
    let wanted = text.to_ascii_lowercase();
    let matching: Vec<Entry<'_>> = all
        .into_iter()
        .filter(|entry| entry.name.to_ascii_lowercase().contains(&wanted))
        .collect();
    let origins = stack.lock.as_ref().map(list_origins).unwrap_or_default();
    let found = matching.len();
    let rows = matching.iter().skip(query.from).take(ROWS);
    let end = query.from.saturating_add(ROWS);
    let address = |from: usize| {
        let package = format::escape(text);
        format!("/stacks/{name}?package={package}&from={from}#packages")
    };
    Packages {
        rows: rows
            .map(|entry| render_package(entry, stack, &origins))
            .collect(),
        told: match text.is_empty() {
            true => total.to_string(),
            false => format!("{found} of {total}"),
        },
        first: match query.from {
            0 => String::new(),
            _ => address(0),
        },
        next: match end < found {
            true => address(end),
            false => String::new(),
        },
        filter: format::cut(text, CELL),
    }
}

fn list_entries(stack: &StackSpec) -> Vec<Entry<'_>> {
    match &stack.lock {
        Some(lock) => lock
            .packages
            .iter()
            .map(|package| Entry {
                name: &package.name,
                version: &package.version,
                locked: Some(package),
            })
            .collect(),
        None => stack
            .packages
            .iter()
            .map(|(name, version)| Entry {
                name,
                version,
                locked: None,
            })
            .collect(),
    }
}

/// Returns the repository of each package of a lock.
fn list_origins(lock: &StackLock) -> HashMap<&str, String> {
    let mut origins = HashMap::new();
    for repository in &lock.repositories {
        let names = repository.packages.iter();
        origins.extend(names.map(|name| (name.as_str(), repository.name())));
    }
    origins
}

fn render_package(
    entry: &Entry<'_>,
    stack: &StackSpec,
    origins: &HashMap<&str, String>,
) -> Package {
    let locked = entry.locked;
    let origin = origins.get(entry.name).map(String::as_str);
    Package {
        name: format::cut(entry.name, CELL),
        version: match entry.version {
            "*" => "open".to_owned(),
            exact => format::cut(exact, CELL),
        },
        arch: locked.map_or_else(String::new, |package| format::cut(&package.arch, 20)),
        size: locked.map_or_else(String::new, |package| format::bytes(package.size)),
        effect: package_class(entry.name).as_str(),
        is_wanted: stack.packages.contains_key(entry.name),
        origin: format::cut(origin.unwrap_or_default(), CELL),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stack(packages: usize) -> StackSpec {
        let digest = muster_core::values::Digest::of(b"");
        let packages: Vec<_> = (0..packages)
            .map(|number| {
                json!({ "name": format!("libx{number:03}"), "version": "1-1", "arch": "amd64", "size": 2048,
                        "sha256": digest, "filename": "x.deb" })
            })
            .collect();
        let stack = json!({
            "version": "1", "image": "debian-13", "packages": { "libx007": "1-1" },
            "lock": { "image_digest": digest, "arch": "amd64", "packages": packages, "repositories": [{
                "uri": "http://mirror.example/debian", "suite": "trixie", "component": "main", "release": digest,
                "packages": ["libx007"],
            }] },
        });
        serde_json::from_value(stack).unwrap()
    }

    fn query(package: &str, from: usize) -> PackageQuery {
        PackageQuery {
            package: package.to_owned(),
            from,
        }
    }

    #[test]
    fn packages_come_in_bounded_pages() {
        let stack = stack(230);
        let first = render_packages("base", &stack, &query("", 0));
        assert_eq!((first.rows.len(), first.told.as_str()), (ROWS, "230"));
        assert_eq!(first.first, "");
        assert_eq!(first.next, "/stacks/base?package=&from=100#packages");
        let last = render_packages("base", &stack, &query("", 200));
        assert_eq!((last.rows.len(), last.next.as_str()), (30, ""));
        assert_eq!(last.rows[0].name, "libx200");
        let beyond = render_packages("base", &stack, &query("", usize::MAX));
        assert!(beyond.rows.is_empty() && beyond.next.is_empty());
    }

    #[test]
    fn a_filter_keeps_the_packages_with_the_text_in_the_name() {
        let stack = stack(230);
        let found = render_packages("base", &stack, &query(" LIBX00 ", 0));
        assert_eq!((found.rows.len(), found.told.as_str()), (10, "10 of 230"));
        let wanted = &found.rows[7];
        assert!(wanted.is_wanted && !found.rows[8].is_wanted);
        assert_eq!(wanted.origin, "http://mirror.example/debian trixie main");
        assert_eq!(found.rows[8].origin, "");
        assert_eq!(wanted.size, "2 KiB");
        let odd = render_packages("base", &stack, &query("l&b=\"", 0));
        assert_eq!((odd.rows.len(), odd.told.as_str()), (0, "0 of 230"));
    }

    #[test]
    fn a_stack_without_a_lock_has_the_wanted_packages() {
        let mut open = stack(3);
        open.lock = None;
        open.packages.insert("tool".to_owned(), "*".to_owned());
        let shown = render_packages("base", &open, &query("", 0));
        let rows: Vec<(&str, &str, &str)> = shown
            .rows
            .iter()
            .map(|row| (row.name.as_str(), row.version.as_str(), row.size.as_str()))
            .collect();
        assert_eq!(rows, [("libx007", "1-1", ""), ("tool", "open", "")]);
    }
}
