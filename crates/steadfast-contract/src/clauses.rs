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

use crate::parsed_trace::ParsedTrace;
use crate::violation::Violation;

/// Returns all violations, in the order of the later of their times.
pub(crate) fn check(parsed: &ParsedTrace<'_>) -> Vec<Violation> {
    const CLAUSES: [fn(&ParsedTrace<'_>, &mut Vec<Violation>); 12] = [
        c01_identity::check,
        c02_nothing_lost::check,
        c03_order::check,
        c04_no_time_travel::check,
        c05_old_and_new::check,
        c06_store_first::check,
        c07_one_at_a_time::check,
        c08_isolation::check,
        c09_sync::check,
        c10_freshness::check,
        c11_convergence::check,
        c12_read_your_writes::check,
    ];
    let mut violations = Vec::new();
    for clause in CLAUSES {
        clause(parsed, &mut violations);
    }
    // Sorted by time instead of by clause, because the first violation usually causes the others.
    violations.sort_by_key(|violation| violation.times.1);
    violations
}
