//! Families of requests. Each adds its own requests to a script.

use crate::differential::generate::ScriptBuilder;
use crate::differential::{discovery, events, namespaces, patches, reads, refused, watches, writes};

/// Adds one or several requests to a script.
pub type Family = fn(&mut ScriptBuilder);

/// Families with their relative weights.
pub const FAMILIES: &[(usize, Family)] = &[
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
    (8, refused::options),
    (5, refused::places),
    (9, refused::objects),
    (4, refused::bodies),
    (4, refused::deletions),
    (4, refused::types),
    (3, refused::duplicates),
];

/// Adds the requests of a random family.
pub fn add(builder: &mut ScriptBuilder) {
    let total = FAMILIES.iter().map(|(weight, _)| weight).sum();
    let mut drawn = builder.chance.below(total);
    for (weight, family) in FAMILIES {
        if drawn < *weight {
            return family(builder);
        }
        drawn -= weight;
    }
}
