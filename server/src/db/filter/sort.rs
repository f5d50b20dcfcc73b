//! The order of a list, and how many rows it counts.

/// The column for sorting: unique in the list and served by an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Name,
    /// The time of creation: ids grow with time.
    Id,
}

/// A column and a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub key: Key,
    pub order: Order,
}

impl Sort {
    /// Returns the keyword used in a request: `name`, `-name`, `created_at`, `-created_at`.
    pub fn word(self) -> &'static str {
        match (self.key, self.order) {
            (Key::Name, Order::Up) => "name",
            (Key::Name, Order::Down) => "-name",
            (Key::Id, Order::Up) => "created_at",
            (Key::Id, Order::Down) => "-created_at",
        }
    }
}

/// The direction of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Up,
    Down,
}

/// Both directions by name.
pub const BY_NAME: [Sort; 2] = [NAME_UP, NAME_DOWN];
pub(super) const NAME_UP: Sort = Sort {
    key: Key::Name,
    order: Order::Up,
};
pub(super) const NAME_DOWN: Sort = Sort {
    key: Key::Name,
    order: Order::Down,
};
/// By time of creation.
pub const OLDEST_FIRST: Sort = Sort {
    key: Key::Id,
    order: Order::Up,
};
pub(super) const NEWEST_FIRST: Sort = Sort {
    key: Key::Id,
    order: Order::Down,
};

/// How the rows of a whole list are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Exact,
    /// An estimate by the planner, from the database's statistics.
    Estimate,
    None,
}
