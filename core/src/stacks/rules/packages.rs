//! What a stack puts on a node: its lock over its image, or what it wants where it has no lock yet; looked at by component.

use std::collections::BTreeMap;

use super::book::{Component, Rulebook};
use super::version::glob;
use crate::facts::Facts;
use crate::images::ImageManifest;
use crate::stacks::{Part, StackSpec};

/// What is judged, with as much beside it as is known.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub stack: &'a StackSpec,
    pub image: Option<&'a ImageManifest>,
    /// Of the node that it is for. With facts and without an image it is a node whose system somebody else installed.
    pub facts: Option<&'a Facts>,
}

/// A package with its version; `None` while the stack leaves it open.
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

    /// Whether the stack knows every package there will be.
    pub(super) fn locked(&self) -> bool {
        self.subject.stack.lock.is_some()
    }

    /// Whether it is for a system that somebody else installed: beside what the stack brings, nobody knows what is there.
    pub(super) fn strange(&self) -> bool {
        self.subject.image.is_none() && self.subject.facts.is_some()
    }

    /// Whether a component is known not to be there, although not every package is known.
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

    /// The exact version of a package that is there.
    pub(super) fn version(&self, name: &str) -> Option<&str> {
        self.present.get(name).and_then(Option::as_deref)
    }

    /// What is there of a component.
    pub(super) fn component(&self, word: &str) -> Vec<Present> {
        let Some(component) = self.book.components.get(word) else {
            return Vec::new();
        };
        let fits = |(name, _): &(&String, &Option<String>)| belongs(component, name);
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

    /// The driver that the node's own system runs.
    fn running(&self, driver: &str) -> Option<Present> {
        let mut functions = self.subject.facts.iter().flat_map(|facts| &facts.pci);
        let runs = functions.any(|function| function.driver.as_deref() == Some(driver));
        runs.then(|| Present {
            name: format!("the driver {driver} that runs on the node"),
            version: None,
        })
    }

    /// Releases of the kernels that are there: those of the packages, and the image's own.
    pub(super) fn kernels(&self) -> Vec<String> {
        let by_release = |name: &str| {
            let release = name.strip_prefix("linux-image-")?;
            let release = release
                .strip_prefix("unsigned-")
                .unwrap_or(release)
                .trim_end_matches("-unsigned");
            (release.starts_with(|c: char| c.is_ascii_digit()) && !release.contains("-dbg"))
                .then(|| release.to_owned())
        };
        let brought = self.subject.stack.packages.keys().map(String::as_str);
        let locked = self
            .subject
            .stack
            .lock
            .iter()
            .flat_map(|lock| &lock.packages)
            .map(|package| package.name.as_str());
        let mut kernels: Vec<String> = brought.chain(locked).filter_map(by_release).collect();
        // A kernel that the stack brings is what runs; otherwise the image's does, or the one of whoever installed the node.
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

    /// The families of the GPUs: the node's where they are known, else the stack's own word.
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

    /// Whether a file that fits the pattern holds the text.
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

fn belongs(component: &Component, name: &str) -> bool {
    let fits = |patterns: &[String]| patterns.iter().any(|pattern| glob(pattern, name));
    fits(&component.packages) && !fits(&component.except)
}

/// The families of a node's GPUs by PCI device; `None` for one that the book does not know.
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
