//! Cost limit of evaluations.

/// Cost that evaluations may still spend.
///
/// One unit is roughly one step: a node of the expression, an item that a macro visits, or ten bytes of a processed
/// string. A unit allows less than 100 bytes of new values, so that a budget bounds memory too. One budget can serve
/// several evaluations in turn.
#[derive(Clone, Debug)]
pub struct Budget {
    limit: u64,
    remaining: u64,
}

impl Budget {
    /// Creates a budget of `limit` units.
    pub fn new(limit: u64) -> Self {
        Self { limit, remaining: limit }
    }

    /// Returns the total number of units.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of units left.
    pub fn left(&self) -> u64 {
        self.remaining
    }

    /// Returns the number of units spent.
    pub fn spent(&self) -> u64 {
        self.limit - self.remaining
    }

    /// Spends `cost` units. Returns false if fewer units are left, and then spends all of them.
    pub fn spend(&mut self, cost: u64) -> bool {
        let remaining = self.remaining.checked_sub(cost);
        self.remaining = remaining.unwrap_or(0);
        remaining.is_some()
    }
}
