//! The ledger of disruption: whether a serving node may be taken out of service now. Every member out
//! for any reason counts, and slots are taken singly. The ledger holds no counter between calls: each
//! call opens a new ledger from the rows.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use jiff::Timestamp;

use super::fleet::{Budget, Member, Service};
use crate::ids::NodeId;

/// The accounts of the pool and of its domains at a time.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: Account,
    /// Axis and account by the domain's id.
    domains: BTreeMap<String, (String, Account)>,
    /// Nodes out of service, and nodes taken in this call.
    out: BTreeSet<NodeId>,
}

/// The nodes of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Members that count: once in service, and not written off.
    pub counted: u32,
    /// Members out now, for any reason.
    pub out: u32,
    /// The budget in nodes.
    pub max: u32,
}

/// A granted act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The node serves, and the act takes a slot of the pool and of each domain.
    Taken,
    /// The node is out of service already, or was never in service.
    NotNeeded,
}

/// A refused act: the exhausted budget, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub of: Exhausted,
    /// Members out now, for any reason.
    pub out: u32,
    /// Members allowed out at a time.
    pub max: u32,
    /// Members that count.
    pub counted: u32,
}

/// The budget that refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exhausted {
    Pool,
    Domain { id: String, axis: String },
}

impl Ledger {
    /// Opens the accounts from the members at `now`. A node listed twice counts once.
    pub fn open<'a>(
        budget: &Budget,
        members: impl IntoIterator<Item = &'a Member>,
        now: Timestamp,
    ) -> Self {
        Self::open_beside(budget, members, 0, now)
    }

    /// Opens the accounts as [`Ledger::open`]. `serving`: further members of the pool, which all
    /// serve and belong to no domain of the act.
    pub fn open_beside<'a>(
        budget: &Budget,
        members: impl IntoIterator<Item = &'a Member>,
        serving: u32,
        now: Timestamp,
    ) -> Self {
        let domains = budget.domains.iter().map(|domain| {
            let account = (domain.axis.clone(), Account::default());
            (domain.id.clone(), account)
        });
        let mut ledger = Self {
            pool: Account::default(),
            domains: domains.collect(),
            out: BTreeSet::new(),
        };
        let mut seen = HashSet::new();
        for member in members {
            if seen.insert(member.node) {
                ledger.count(member, now);
            }
        }
        ledger.pool.counted += serving;
        ledger.pool.max = budget.max_unavailable.of(ledger.pool.counted);
        for domain in &budget.domains {
            if let Some((_, account)) = ledger.domains.get_mut(&domain.id) {
                account.max = domain.max_unavailable.of(account.counted);
            }
        }
        ledger
    }

    /// Returns the account of the pool.
    pub fn pool(&self) -> Account {
        self.pool
    }

    /// Returns the account of a failure domain, if the budget names the domain.
    pub fn domain(&self, id: &str) -> Option<Account> {
        self.domains.get(id).map(|(_, account)| *account)
    }

    /// Returns whether a node is out of service, written off or not.
    pub fn is_out(&self, node: NodeId) -> bool {
        self.out.contains(&node)
    }

    /// Checks whether a member may be taken out of service, without taking the slot.
    ///
    /// # Errors
    /// Returns the first exhausted budget: the pool, then the domains by id.
    pub fn check(&self, member: &Member) -> Result<Slot, Refusal> {
        let needed = self.needs_slot(member);
        self.check_room(needed.then_some(member))?;
        match needed {
            true => Ok(Slot::Taken),
            false => Ok(Slot::NotNeeded),
        }
    }

    /// Takes a member out of service: the slot counts for every later check of the ledger.
    ///
    /// # Errors
    /// Returns the first exhausted budget, and takes no slot.
    pub fn take(&mut self, member: &Member) -> Result<Slot, Refusal> {
        let slot = self.check(member)?;
        if slot == Slot::Taken {
            self.out.insert(member.node);
            self.for_each_account(member, |account| account.out += 1);
        }
        Ok(slot)
    }

    /// Checks whether all members may be taken out of service together, without taking the slots.
    ///
    /// # Errors
    /// Returns the first budget without room for all: the pool, then the domains by id.
    pub(super) fn check_all<'a>(
        &self,
        members: impl IntoIterator<Item = &'a Member>,
    ) -> Result<(), Refusal> {
        let mut seen = BTreeSet::new();
        let needed = members
            .into_iter()
            .filter(|member| self.needs_slot(member) && seen.insert(member.node));
        self.check_room(needed)
    }

    /// Takes all members out of service, or none. The slots are in the order of the members.
    ///
    /// # Errors
    /// Returns the first budget without room for all: the pool, then the domains by id. The numbers
    /// are from before the act, and no slot is taken.
    pub fn take_all(&mut self, members: &[&Member]) -> Result<Vec<Slot>, Refusal> {
        self.check_all(members.iter().copied())?;
        members.iter().map(|member| self.take(member)).collect()
    }

    /// Checks whether all members may be out at the same time if no other member is out.
    ///
    /// # Errors
    /// Returns the first budget that is smaller than the number of members.
    pub(super) fn check_size(&self, members: &[&Member]) -> Result<(), Refusal> {
        let emptied = Self {
            pool: self.pool.emptied(),
            domains: self
                .domains
                .iter()
                .map(|(id, (axis, account))| (id.clone(), (axis.clone(), account.emptied())))
                .collect(),
            out: BTreeSet::new(),
        };
        emptied.check_room(members.iter().copied())
    }

    fn needs_slot(&self, member: &Member) -> bool {
        is_serving(member) && !self.out.contains(&member.node)
    }

    /// Checks each account for slots for all members.
    fn check_room<'a>(&self, members: impl IntoIterator<Item = &'a Member>) -> Result<(), Refusal> {
        let mut pool = 0;
        let mut domains: Vec<&str> = Vec::new();
        for member in members {
            pool += u32::from(member.in_pool);
            domains.extend(member.domains.iter().map(String::as_str));
        }
        self.pool.check(pool, || Exhausted::Pool)?;
        domains.sort_unstable();
        for same in domains.chunk_by(|one, next| one == next) {
            if let Some((axis, account)) = self.domains.get(same[0]) {
                let needed = u32::try_from(same.len()).unwrap_or(u32::MAX);
                account.check(needed, || Exhausted::Domain {
                    id: same[0].to_owned(),
                    axis: axis.clone(),
                })?;
            }
        }
        Ok(())
    }

    fn count(&mut self, member: &Member, now: Timestamp) {
        let out = is_out(member);
        if out {
            self.out.insert(member.node);
        }
        let written_off = member.service != Service::Taken
            && out
            && member.written_off_until.is_some_and(|until| until > now);
        if member.service == Service::Joining || written_off {
            return;
        }
        self.for_each_account(member, |account| {
            account.counted += 1;
            account.out += u32::from(out);
        });
    }

    fn for_each_account(&mut self, member: &Member, act: impl Fn(&mut Account)) {
        if member.in_pool {
            act(&mut self.pool);
        }
        for id in &member.domains {
            if let Some((_, account)) = self.domains.get_mut(id) {
                act(account);
            }
        }
    }
}

impl Account {
    fn emptied(self) -> Self {
        Self { out: 0, ..self }
    }

    fn check(&self, needed: u32, of: impl FnOnce() -> Exhausted) -> Result<(), Refusal> {
        match needed == 0 || needed <= self.max.saturating_sub(self.out) {
            true => Ok(()),
            false => Err(Refusal {
                of: of(),
                out: self.out,
                max: self.max,
                counted: self.counted,
            }),
        }
    }
}

/// Returns whether a member was in service and is not now.
fn is_out(member: &Member) -> bool {
    match member.service {
        Service::Serving => member.others_drain.is_some(),
        Service::Taken | Service::Out | Service::Unknown => true,
        Service::Joining => false,
    }
}

fn is_serving(member: &Member) -> bool {
    member.service == Service::Serving && !is_out(member)
}

impl Refusal {
    /// Returns the code for programs.
    pub fn code(&self) -> &'static str {
        match self.of {
            Exhausted::Pool => "pool_budget",
            Exhausted::Domain { .. } => "domain_budget",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            of,
            out,
            max,
            counted,
        } = self;
        match of {
            Exhausted::Pool => write!(f, "the pool"),
            Exhausted::Domain { id, .. } => write!(f, "the failure domain {id}"),
        }?;
        write!(
            f,
            " has {out} of {counted} nodes out, and {max} may be out at a time"
        )
    }
}
