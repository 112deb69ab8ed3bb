//! Checks of the clauses, one file each. Each check returns the violations of its clause.

mod c01_identity;
mod c02_nothing_lost;
mod c03_order;
mod c04_no_time_travel;
mod c05_old_and_new;
mod c06_store_first;
mod c07_one_at_a_time;
mod c08_isolation;
mod c09_sync;
mod c10_freshness;
mod c11_convergence;
mod c12_read_your_writes;

use crate::case::Case;
use crate::violation::Violation;

/// Returns all violations, in order of detection.
pub(crate) fn judge(case: &Case<'_>) -> Vec<Violation> {
    const CLAUSES: [fn(&Case<'_>, &mut Vec<Violation>); 12] = [
        c01_identity::judge,
        c02_nothing_lost::judge,
        c03_order::judge,
        c04_no_time_travel::judge,
        c05_old_and_new::judge,
        c06_store_first::judge,
        c07_one_at_a_time::judge,
        c08_isolation::judge,
        c09_sync::judge,
        c10_freshness::judge,
        c11_convergence::judge,
        c12_read_your_writes::judge,
    ];
    let mut violations = Vec::new();
    for clause in CLAUSES {
        clause(case, &mut violations);
    }
    // Sorted by time instead of by clause, because the first violation usually causes the others.
    violations.sort_by_key(|violation| violation.moments.1);
    violations
}
