//! Check `bookmarks`: tests that the server sends bookmarks to watches that allow them.

use std::time::Duration;

use steadfast::unstable::catalog::ServedResource;

use super::finding::Finding;
use super::requests::RequestError;
use super::watch_sample::WatchSample;

/// Name of the check.
pub(super) const CHECK: &str = "bookmarks";

/// Minimum duration of a sample. API servers send a last bookmark 2 s before the timeout of a watch. A shorter sample may
/// end before that bookmark arrives.
const MIN_SAMPLE: Duration = Duration::from_secs(5);

/// Evaluates the short watches.
pub(super) fn findings(
    samples: &[(ServedResource, Result<WatchSample, RequestError>)],
    sample: Duration,
) -> Vec<Finding> {
    samples.iter().map(|(resource, result)| evaluate(resource, result, sample)).collect()
}

fn evaluate(resource: &ServedResource, result: &Result<WatchSample, RequestError>, length: Duration) -> Finding {
    let watched = match result {
        Ok(watched) => watched,
        Err(error) => return Finding::not_checked(CHECK, resource, error),
    };
    if let Some(error) = &watched.error {
        return Finding::warning(
            CHECK,
            resource,
            format!("the server ended a watch of {:.0} s early: {error}", length.as_secs_f64()),
            "informers reconnect each time, and may have to list again",
            "read the logs of the API server for this watch",
        );
    }
    if let Some(first) = watched.bookmarks.first() {
        let period = watched.bookmarks.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
        let period = period.map(|period| format!(", then every {:.1} s", period.as_secs_f64())).unwrap_or_default();
        return Finding::ok(CHECK, resource, format!("first bookmark after {:.1} s{period}", first.as_secs_f64()));
    }
    if length < MIN_SAMPLE {
        let reason = format!("a watch of {:.0} s is too short; use --sample 10s", length.as_secs_f64());
        return Finding::not_checked(CHECK, resource, reason);
    }
    // An API server drops bookmarks that are not above the version at which the watch started.
    if !watched.has_advanced {
        let reason =
            format!("nothing changed in the cluster within {:.0} s, so no bookmark was due", length.as_secs_f64());
        return Finding::not_checked(CHECK, resource, reason);
    }
    Finding::warning(
        CHECK,
        resource,
        format!("no bookmark arrived within {:.0} s", watched.duration.as_secs_f64()),
        "a quiet watch does not learn newer versions: after an interruption its version may be too old, and the informer \
         lists again",
        "check whether a proxy removes the parameter allowWatchBookmarks or buffers responses; aggregated APIs must \
         implement bookmarks",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingSeverity;
    use super::*;
    use crate::discovery::default_resources;

    #[test]
    fn missing_bookmark_needs_newer_version() {
        let pods = default_resources(None).remove(0);
        let length = Duration::from_secs(10);
        let severity = |sample: WatchSample, length| evaluate(&pods, &Ok(sample), length).severity;
        let quiet = WatchSample { duration: length, ..WatchSample::default() };
        let advanced = WatchSample { has_advanced: true, ..quiet.clone() };
        let marked = WatchSample { bookmarks: vec![Duration::from_secs(8)], ..quiet.clone() };
        assert_eq!(severity(quiet, length), FindingSeverity::NotChecked);
        assert_eq!(severity(advanced.clone(), length), FindingSeverity::Warning);
        assert_eq!(severity(advanced, Duration::from_secs(2)), FindingSeverity::NotChecked);
        assert_eq!(severity(marked, length), FindingSeverity::Ok);
    }
}
