//! Cost limit of evaluations.

/// Cost that evaluations may still spend.
///
/// One unit is roughly one step: a node of the expression, an item that a macro visits, ten bytes of a string that a
/// function reads or builds. A unit allows less than 100 bytes of new values, so that a budget bounds memory too.
/// One budget can serve several evaluations in turn.
#[derive(Clone, Debug)]
pub struct Budget {
    limit: u64,
    left: u64,
}

impl Budget {
    /// A budget of `limit` units.
    pub fn new(limit: u64) -> Self {
        Self { limit, left: limit }
    }

    /// Units in total.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Units that are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Units spent so far.
    pub fn spent(&self) -> u64 {
        self.limit - self.left
    }

    /// Spends `cost` units. Returns false, with nothing left, if fewer are left.
    pub fn spend(&mut self, cost: u64) -> bool {
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}
