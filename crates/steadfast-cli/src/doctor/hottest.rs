//! Check `changes`: changes per minute of each resource, and objects that change often.

use std::time::Duration;

use serde_json::json;
use steadfast::unstable::catalog::ServedResource;

use super::finding::Finding;
use super::requests::RequestError;
use super::watch_sample::{ObjectChanges, WatchSample};

/// Name of the check.
pub(super) const CHECK: &str = "changes";

/// Changes of one object per minute from which the object is reported.
const HOT_CHANGES_PER_MINUTE: f64 = 60.0;

/// Minimum number of observed changes of a reported object.
const MIN_OBSERVED_CHANGES: usize = 5;

/// Maximum number of reported objects of a resource.
const MAX_REPORTED_OBJECTS: usize = 5;

/// Evaluates the short watches.
pub(super) fn findings(samples: &[(ServedResource, Result<WatchSample, RequestError>)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (resource, result) in samples {
        match result {
            Ok(sample) => findings.extend(check_resource(resource, sample)),
            Err(error) => findings.push(Finding::not_checked(CHECK, resource, error)),
        }
    }
    findings
}

fn check_resource(resource: &ServedResource, sample: &WatchSample) -> Vec<Finding> {
    let mut hottest: Vec<(&String, &ObjectChanges)> = sample.objects.iter().collect();
    hottest.sort_by_key(|(_, object)| std::cmp::Reverse(object.changes));
    hottest.truncate(MAX_REPORTED_OBJECTS);
    let rate = per_minute(sample.events, sample.duration);
    let most = hottest.first().map(|(name, object)| format!(", most of {name} ({})", managers(object)));
    let objects: Vec<_> = hottest
        .iter()
        .map(|(name, object)| json!({"name": name, "changes": object.changes, "managers": object.managers}))
        .collect();
    let data = json!({"changesPerMinute": rate, "hottest": objects});
    let message = format!("{rate:.0} changes per minute{}", most.unwrap_or_default());
    let mut findings = vec![Finding::ok(CHECK, resource, message).with_data(data)];
    for (name, object) in hottest {
        let rate = per_minute(object.changes, sample.duration);
        if rate >= HOT_CHANGES_PER_MINUTE && object.changes >= MIN_OBSERVED_CHANGES {
            findings.push(Finding::warning(
                CHECK,
                format!("{resource} {name}"),
                format!("{rate:.0} changes per minute by {}", managers(object)),
                "each change is sent to every watch of the resource, and shortens the history of all objects",
                "find out what these field managers write: often a status with a timestamp, or two controllers that \
                 undo each other; `steadfast watch --diff` shows the changes",
            ));
        }
    }
    findings
}

fn per_minute(number: usize, duration: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let number = number as f64;
    number * 60.0 / duration.as_secs_f64().max(1.0)
}

fn managers(object: &ObjectChanges) -> String {
    let mut managers: Vec<(&String, &usize)> = object.managers.iter().collect();
    managers.sort_by_key(|(_, changes)| std::cmp::Reverse(**changes));
    match managers.as_slice() {
        [] => "an unknown field manager".to_owned(),
        all => all.iter().take(3).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingSeverity;
    use super::*;
    use crate::discovery::default_resources;

    #[test]
    fn hot_object_is_reported_with_manager() {
        let pods = default_resources(None).remove(0);
        let object = |changes: usize| ObjectChanges { changes, managers: [("flipper".to_owned(), changes)].into() };
        let mut sample = WatchSample { events: 14, duration: Duration::from_secs(10), ..WatchSample::default() };
        sample.objects = [("default/hot".to_owned(), object(12)), ("default/calm".to_owned(), object(2))].into();
        let findings = check_resource(&pods, &sample);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert_eq!(findings[0].message, "84 changes per minute, most of default/hot (flipper)");
        assert_eq!(findings[1].severity, FindingSeverity::Warning);
        assert_eq!(findings[1].message, "72 changes per minute by flipper");
    }
}
