//! Shares of a limit between namespaces, so that one namespace cannot use all of it.

/// Returns true if a namespace that uses `own` of the `total` units may add a unit. With `other_namespaces` further
/// namespaces, its share of `max` is `max / (other_namespaces + 2)`: one share stays free for a namespace that has no
/// units yet. Units beyond a reduced share stay, but the total stays below twice `max`.
pub(crate) fn has_share(own: usize, total: usize, other_namespaces: usize, max: usize) -> bool {
    let share = (max / (other_namespaces + 2)).max(1);
    own < share && total < max.saturating_mul(2)
}
