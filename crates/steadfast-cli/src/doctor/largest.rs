//! Check `large objects`: objects whose changes are expensive to send and to store.

use serde_json::json;

use super::finding::Finding;
use super::list_sample::{ListSamples, json_sizes};
use super::watch_sample::name;

/// Name of the check.
pub(super) const CHECK: &str = "large objects";

/// Size in bytes from which an object is reported. etcd accepts 1.5 MiB.
const LARGE_BYTES: usize = 512 << 10;

/// Maximum number of reported objects.
const MAX_REPORTED_OBJECTS: usize = 10;

/// Evaluates the pages of objects.
pub(super) fn findings(samples: &ListSamples) -> Vec<Finding> {
    let mut all: Vec<(usize, String, String)> = Vec::new();
    for (resource, sample) in samples {
        for object in sample.iter().flat_map(|sample| &sample.objects) {
            let (bytes, fields) = json_sizes(object);
            let most = fields.iter().max_by_key(|(_, bytes)| **bytes).map_or("", |(name, _)| *name);
            all.push((bytes, format!("{resource} {}", name(object)), most.to_owned()));
        }
    }
    all.sort_by_key(|(bytes, _, _)| std::cmp::Reverse(*bytes));
    all.truncate(MAX_REPORTED_OBJECTS);
    let large: Vec<Finding> = all.iter().filter(|(bytes, _, _)| *bytes >= LARGE_BYTES).map(finding).collect();
    match (all.first(), large.is_empty()) {
        (Some((bytes, subject, _)), true) => {
            let message = format!("the largest object of the sample has {bytes} bytes");
            vec![Finding::ok(CHECK, subject, message).with_data(json!({"bytes": bytes}))]
        }
        (None, _) => vec![Finding::ok(CHECK, "sample", "the sample has no objects")],
        _ => large,
    }
}

fn finding((bytes, subject, most): &(usize, String, String)) -> Finding {
    Finding::warning(
        CHECK,
        subject,
        format!("the object has {} KiB, most of it in the field {most}", bytes >> 10),
        "each change sends the whole object to every watch, and etcd rejects objects above 1.5 MiB",
        "split the object, or store its content elsewhere",
    )
    .with_data(json!({"bytes": bytes, "largestField": most}))
}
