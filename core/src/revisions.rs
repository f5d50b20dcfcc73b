//! Revisions of a pool: the documents installed on a node of the pool. A revision never changes.

use std::collections::BTreeSet;

use crate::effects::{self, Effect};
use crate::images::ImageManifest;
use crate::network::NetworkProfile;
use crate::stacks::diff::{self, Class, Difference};
use crate::stacks::{LockedPackage, StackSpec};
use crate::values::Digest;

/// Full copies of the documents, as of one change.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    pub image: ImageManifest,
    pub stack: StackSpec,
    /// Absent: one address, on the provisioning interface.
    pub network_profile: Option<NetworkProfile>,
}

impl Revision {
    /// Returns why no node can install the revision: image and stack do not fit each other.
    pub fn find_mismatch(&self) -> Option<String> {
        match &self.stack.lock {
            None => Some("the stack is not locked: run `muster stack lock`".to_owned()),
            Some(lock) if lock.image_digest != self.image.digest => Some(
                "the stack is locked against another image: lock the stack again, and publish it"
                    .to_owned(),
            ),
            Some(_) => None,
        }
    }

    /// Returns the impact of moving a node to another revision: the highest impact of image, stack
    /// and network profile.
    pub fn effect_to(&self, other: &Self) -> Effect {
        // The network is written with the image.
        let network = match self.network_profile == other.network_profile {
            true => Effect::None,
            false => Effect::Reinstall,
        };
        effects::of_image(&self.image, &other.image)
            .max(diff::effect_of(&self.stack, &self.stack_of(other)))
            .max(network)
    }

    /// Returns the bytes that a node receives to reach the revision: the packages of the lock that the
    /// node lacks, and with a reinstall the compressed image. `former`: the revision of the node, if
    /// known.
    pub fn count_bytes(&self, former: Option<&Self>, effect: Effect) -> u64 {
        let (image, present): (u64, BTreeSet<_>) = match effect {
            Effect::None => return 0,
            Effect::InPlace | Effect::Reboot => {
                let locked = former.map_or(&[][..], Self::packages).iter();
                let keys = locked.map(|one| (&one.name, &one.version, &one.arch));
                (0, keys.collect())
            }
            Effect::Reinstall | Effect::Wipe => {
                let installed = self.image.packages.iter();
                let keys = installed.map(|one| (&one.name, &one.version, &one.arch));
                (self.image.size, keys.collect())
            }
        };
        let is_missing =
            |one: &&LockedPackage| !present.contains(&(&one.name, &one.version, &one.arch));
        let missing = self.packages().iter().filter(is_missing);
        missing.map(|one| one.size).fold(image, u64::saturating_add)
    }

    /// Returns the packages of the lock.
    fn packages(&self) -> &[LockedPackage] {
        let lock = self.stack.lock.as_ref();
        lock.map_or(&[], |lock| &lock.packages)
    }

    /// Returns whether both revisions have the same image and stack. Another network profile brings no
    /// other software.
    pub fn has_software_of(&self, other: &Self) -> bool {
        (&self.image.digest, &self.image.raw_digest)
            == (&other.image.digest, &other.image.raw_digest)
            && self.stack == self.stack_of(other)
    }

    /// The stack of `other` under the present image name. Only the manifests decide about the
    /// image, by digest.
    fn stack_of(&self, other: &Self) -> StackSpec {
        StackSpec {
            image: self.stack.image.clone(),
            ..other.stack.clone()
        }
    }
    /// Lists the items differing from another revision, the most disruptive class first. Network
    /// profiles are named by digest.
    pub fn list_differences(&self, other: &Self) -> Vec<Difference> {
        let mut found = diff::diff(&self.stack, &self.stack_of(other)).differences;
        if self.image.raw_digest != other.image.raw_digest {
            found.push(reinstalling(
                "image",
                Some(self.image.raw_digest),
                Some(other.image.raw_digest),
            ));
        }
        if self.network_profile != other.network_profile {
            let digest = |profile: &NetworkProfile| {
                let document = serde_json::to_vec(profile).expect("a network profile is JSON");
                Digest::of(&document)
            };
            found.push(reinstalling(
                "network profile",
                self.network_profile.as_ref().map(digest),
                other.network_profile.as_ref().map(digest),
            ));
        }
        found.sort_by(|a, b| b.class.cmp(&a.class).then_with(|| a.item.cmp(&b.item)));
        found
    }
}

fn reinstalling(item: &str, before: Option<Digest>, after: Option<Digest>) -> Difference {
    Difference {
        item: item.to_owned(),
        before: before.map(|digest| digest.to_string()),
        after: after.map(|digest| digest.to_string()),
        class: Class::Reinstall,
    }
}
