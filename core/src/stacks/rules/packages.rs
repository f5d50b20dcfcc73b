//! Packages of a stack on a node, grouped by component: the lock over the image, or the wanted
//! packages of an unlocked stack.

use std::collections::BTreeMap;

use super::book::{Component, Rulebook};
use super::version::glob;
use crate::facts::Facts;
use crate::images::ImageManifest;
use crate::stacks::{Part, StackSpec};

/// A stack to check, with the known context.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub stack: &'a StackSpec,
    pub image: Option<&'a ImageManifest>,
    /// Facts of the target node. Facts without an image mean a node whose system was installed
    /// without Muster.
    pub facts: Option<&'a Facts>,
}

/// A package with a version. `None` if the stack leaves the version open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Present {
    pub name: String,
    pub version: Option<String>,
}

impl std::fmt::Display for Present {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{} {version}", self.name),
            None => write!(f, "{} (version not known)", self.name),
        }
    }
}

/// The packages of a subject.
pub(super) struct Packages<'a> {
    book: &'a Rulebook,
    pub subject: Subject<'a>,
    present: BTreeMap<String, Option<String>>,
}

impl<'a> Packages<'a> {
    pub(super) fn of(book: &'a Rulebook, subject: Subject<'a>) -> Self {
        let mut present = BTreeMap::new();
        for package in subject.image.iter().flat_map(|image| &image.packages) {
            present.insert(package.name.clone(), Some(package.version.clone()));
        }
        for (name, version) in &subject.stack.packages {
            present.insert(name.clone(), (version != "*").then(|| version.clone()));
        }
        for package in subject.stack.lock.iter().flat_map(|lock| &lock.packages) {
            present.insert(package.name.clone(), Some(package.version.clone()));
        }
        for name in &subject.stack.absent {
            present.remove(name);
        }
        Self {
            book,
            subject,
            present,
        }
    }

    /// Returns whether the stack is locked, so that every installed package is known.
    pub(super) fn locked(&self) -> bool {
        self.subject.stack.lock.is_some()
    }

    /// Returns whether the target system was installed without Muster. On such a system only the
    /// packages of the stack are known.
    pub(super) fn strange(&self) -> bool {
        self.subject.image.is_none() && self.subject.facts.is_some()
    }

    /// Returns whether a component is certainly absent, even on a system with unknown packages.
    pub(super) fn is_absent(&self, word: &str) -> bool {
        let shows = self
            .book
            .components
            .get(word)
            .is_some_and(|component| component.runs.is_some());
        !self.strange() || (shows && self.component(word).is_empty())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.present.keys().map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.present.contains_key(name)
    }

    /// Returns the exact version of a present package.
    pub(super) fn version(&self, name: &str) -> Option<&str> {
        self.present.get(name).and_then(Option::as_deref)
    }

    /// Returns the present packages of a component.
    pub(super) fn component(&self, word: &str) -> Vec<Present> {
        let Some(component) = self.book.components.get(word) else {
            return Vec::new();
        };
        let fits = |(name, _): &(&String, &Option<String>)| is_of_component(component, name);
        let present = |(name, version): (&String, &Option<String>)| Present {
            name: name.clone(),
            version: version.clone(),
        };
        let mut found: Vec<Present> = self.present.iter().filter(fits).map(present).collect();
        let told = component
            .beside
            .as_ref()
            .and_then(|word| self.subject.stack.beside.get_key_value(word));
        found.extend(told.map(|(word, version)| Present {
            name: word.clone(),
            version: Some(version.clone()),
        }));
        if found.is_empty() && self.strange() {
            found.extend(
                component
                    .runs
                    .as_deref()
                    .and_then(|driver| self.running(driver)),
            );
        }
        found
    }

    /// Returns a component for a driver running on the node's own system.
    fn running(&self, driver: &str) -> Option<Present> {
        let mut functions = self.subject.facts.iter().flat_map(|facts| &facts.pci);
        let runs = functions.any(|function| function.driver.as_deref() == Some(driver));
        runs.then(|| Present {
            name: format!("the driver {driver} that runs on the node"),
            version: None,
        })
    }

    /// Returns the releases of the present kernels: from the stack's packages, otherwise from the
    /// image or the node.
    pub(super) fn kernels(&self) -> Vec<String> {
        let brought = self.subject.stack.packages.keys().map(String::as_str);
        let locked = self
            .subject
            .stack
            .lock
            .iter()
            .flat_map(|lock| &lock.packages)
            .map(|package| package.name.as_str());
        let mut kernels: Vec<String> = brought.chain(locked).filter_map(release_of).collect();
        // A kernel from the stack will run. Without one, the image's kernel runs, or the present
        // kernel of a system installed without Muster.
        if kernels.is_empty() {
            kernels.extend(self.subject.image.map(|image| image.kernel.clone()));
        }
        if kernels.is_empty() && self.strange() {
            let runs = self.subject.facts.map(|facts| facts.kernel.clone());
            kernels.extend(runs.filter(|kernel| !kernel.is_empty()));
        }
        kernels.sort();
        kernels.dedup();
        kernels
    }

    /// Returns the families of the GPUs: from the node's facts if known, otherwise from the stack's
    /// selector.
    pub(super) fn gpus(&self) -> Vec<String> {
        let seen = self
            .subject
            .facts
            .map(|facts| families(self.book, facts))
            .unwrap_or_default();
        let mut known: Vec<String> = seen.into_iter().flatten().collect();
        known.sort();
        known.dedup();
        match known.is_empty() {
            true => self
                .subject
                .stack
                .selector
                .iter()
                .filter_map(|selector| selector.gpu.clone())
                .collect(),
            false => known,
        }
    }

    /// Returns whether a file with a matching path contains the text outside comments.
    pub(super) fn file_says(&self, path: &str, text: &str) -> bool {
        self.subject
            .stack
            .files
            .iter()
            .filter(|file| glob(path, &file.path))
            .any(|file| {
                let literal: String = file
                    .content
                    .iter()
                    .map(|part| {
                        if let Part::Text(text) = part {
                            text.as_str()
                        } else {
                            "\u{0}"
                        }
                    })
                    .collect();
                literal
                    .lines()
                    .map(str::trim_start)
                    .any(|line| !line.starts_with('#') && line.contains(text))
            })
    }
}

/// Returns the release of a kernel package. `None` for another package, also for a metapackage.
pub(super) fn release_of(name: &str) -> Option<String> {
    let release = name.strip_prefix("linux-image-")?;
    let release = release
        .strip_prefix("unsigned-")
        .unwrap_or(release)
        .trim_end_matches("-unsigned");
    (release.starts_with(|c: char| c.is_ascii_digit()) && !release.contains("-dbg"))
        .then(|| release.to_owned())
}

fn is_of_component(component: &Component, name: &str) -> bool {
    let fits = |patterns: &[String]| patterns.iter().any(|pattern| glob(pattern, name));
    fits(&component.packages) && !fits(&component.except)
}

/// Returns the family of each GPU of a node, by PCI device. `None` for a GPU missing in the book.
pub fn families(book: &Rulebook, facts: &Facts) -> Vec<Option<String>> {
    let bare = |id: &str| id.trim_start_matches("0x").to_ascii_lowercase();
    let gpus = facts.gpus.iter().map(|gpu| {
        facts
            .pci
            .iter()
            .find(|device| device.address == gpu.pci_address)
    });
    gpus.map(|device| {
        let device = device?;
        let (vendor, id) = (bare(&device.vendor), bare(&device.device));
        let known = book
            .gpus
            .iter()
            .find(|models| models.vendor == vendor && models.devices.contains(&id))?;
        Some(known.family.clone())
    })
    .collect()
}
