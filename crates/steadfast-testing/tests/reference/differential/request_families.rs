//! Families of requests. Each adds its own requests to a script.

use crate::differential::generate::ScriptBuilder;
use crate::differential::{discovery, events, namespaces, patches, reads, rejected, watches, writes};

/// Adds one or several requests to a script.
pub type RequestFamily = fn(&mut ScriptBuilder);

/// Families with their relative weights.
pub const FAMILIES: &[(usize, RequestFamily)] = &[
    (15, writes::create),
    (11, writes::update),
    (9, patches::patch),
    (9, patches::strategic),
    (8, patches::operations),
    (9, writes::delete),
    (3, writes::delete_collection),
    (8, reads::get),
    (15, reads::list),
    (9, watches::watch),
    (2, discovery::discovery),
    (2, namespaces::add_lifecycle),
    (4, events::add_lifecycle),
    (8, rejected::add_odd_options),
    (5, rejected::add_invalid_path),
    (9, rejected::add_invalid_object),
    (4, rejected::add_invalid_body),
    (4, rejected::add_odd_deletion),
    (4, rejected::add_wrong_type),
    (3, rejected::add_duplicate_fields),
];

/// Adds the requests of a random family.
pub fn add(builder: &mut ScriptBuilder) {
    let total = FAMILIES.iter().map(|(weight, _)| weight).sum();
    let mut remaining_weight = builder.rng.below(total);
    for (weight, add_requests) in FAMILIES {
        if remaining_weight < *weight {
            return add_requests(builder);
        }
        remaining_weight -= weight;
    }
}
