//! An item of a plan: the wanted and the found state. The same list is made before and after the
//! work.

/// The wanted state of an item that must not exist.
pub(super) const ABSENT: &str = "absent";

/// An observed item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// `package slurmd`, `file /etc/chrony/chrony.conf`, `sysctl vm.swappiness`…
    pub name: String,
    pub wanted: String,
    /// The observed state; `None` when the item does not exist.
    pub found: Option<String>,
    pub fits: bool,
    /// Whether the item, once configured, needs a reboot to match.
    pub by_reboot: bool,
    /// Whether modules and services must wait for the reboot, because the old kernel or module is
    /// still loaded.
    pub holds_back: bool,
}

impl Item {
    /// Builds an item that matches when the found text equals the wanted text.
    pub(super) fn new(
        name: impl Into<String>,
        wanted: impl Into<String>,
        found: Option<String>,
    ) -> Self {
        let (name, wanted) = (name.into(), wanted.into());
        let fits = found.as_ref() == Some(&wanted);
        Self {
            name,
            wanted,
            found,
            fits,
            by_reboot: false,
            holds_back: false,
        }
    }

    /// Marks the item: matches only after a reboot, and holds back modules and services.
    pub(super) fn held_until_boot(self) -> Self {
        Self {
            by_reboot: true,
            holds_back: true,
            ..self
        }
    }
}

/// Whether a reboot is due before modules may be loaded or services started.
pub(super) fn held_back(items: &[Item]) -> bool {
    items.iter().any(|item| !item.fits && item.holds_back)
}

/// Describes the difference in words.
pub(super) fn difference(item: &Item) -> String {
    format!(
        "{} is {}, wanted {}",
        item.name,
        item.found.as_deref().unwrap_or("absent"),
        item.wanted
    )
}
