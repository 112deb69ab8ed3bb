//! Names and descriptions of the metric families. A test compares them with the table in `docs/operations.md`.

use prometheus_client::registry::Unit;

use super::samples::Family;

const fn plain(name: &'static str, help: &'static str) -> Family {
    Family { name, unit: None, help }
}

const fn seconds(name: &'static str, help: &'static str) -> Family {
    Family { name, unit: Some(Unit::Seconds), help }
}

const fn bytes(name: &'static str, help: &'static str) -> Family {
    Family { name, unit: Some(Unit::Bytes), help }
}

pub(super) const CONNECTIONS: Family =
    plain("steadfast_connections", "Current connections, by role (watches, requests), protocol and state");
pub(super) const STREAMS: Family =
    plain("steadfast_connection_streams", "Requests and watches in flight, by role of their connection");
pub(super) const DIALS: Family = plain("steadfast_connection_dials", "Connection attempts");
pub(super) const FAILED_DIALS: Family =
    plain("steadfast_connection_dial_failures", "Connections that could not be established, by cause");
pub(super) const CLOSED: Family =
    plain("steadfast_connections_closed", "Established connections that have ended, by cause");
pub(super) const ROUND_TRIP: Family = seconds(
    "steadfast_connection_ping_round_trip",
    "Maximum over the open connections of the most recent ping round-trip time",
);
pub(super) const SILENCE: Family = seconds(
    "steadfast_connection_silence",
    "Maximum over the open connections of the time since the last received byte",
);
pub(super) const RECEIVED: Family = bytes("steadfast_connection_received", "Bytes received on the wire");
pub(super) const SENT: Family = bytes("steadfast_connection_sent", "Bytes sent on the wire");
pub(super) const REQUESTS: Family =
    plain("steadfast_requests", "Requests, by verb and by the status of the response or the failure");
pub(super) const DURATION: Family =
    seconds("steadfast_request_duration", "Time from a request to its response headers or its failure, by verb");

pub(super) const SYNCED: Family =
    plain("steadfast_informer_synced", "1 if the first complete list is in the cache, 0 if not");
pub(super) const FRESHNESS: Family =
    plain("steadfast_informer_freshness", "1 for the current state of the cache, 0 for all others");
pub(super) const AGE: Family = seconds(
    "steadfast_informer_freshness_age",
    "Time since the last proof that the cache was current; absent before the first",
);
pub(super) const DOUBT: Family =
    seconds("steadfast_informer_doubt", "Time since the cache left the state fresh, 0 while it is fresh");
pub(super) const ATTEMPTS: Family = plain(
    "steadfast_informer_failed_attempts",
    "Failed attempts plus relists; a proof resets the former, a stream that has been open for 5 s resets both",
);
pub(super) const OBJECTS: Family = plain("steadfast_informer_objects", "Objects in the cache");
pub(super) const MEMORY: Family =
    bytes("steadfast_informer_memory", "Memory of the cache and of pending changes, by part");
pub(super) const TAINTED: Family =
    plain("steadfast_informer_tainted_objects", "Objects whose newest state cannot be decoded; reads return an error");
pub(super) const VERSION: Family =
    plain("steadfast_informer_resource_version", "Resource version of the cache; absent if it is not a number");
pub(super) const SENT_REQUESTS: Family = plain("steadfast_informer_requests", "Requests for the cache, by kind");
pub(super) const OPENED_REQUESTS: Family = plain(
    "steadfast_informer_requests_opened",
    "Requests that received successful response headers, by kind; includes opened watches and streamed lists",
);
pub(super) const ENDED_REQUESTS: Family =
    plain("steadfast_informer_requests_ended", "Finished requests, by kind and outcome");
pub(super) const TRANSFERS: Family =
    plain("steadfast_informer_full_transfers", "Started transfers of the whole collection, by cause");
pub(super) const EVENTS: Family = plain(
    "steadfast_informer_events",
    "Changes of the cache, by type and source: reported by a watch, or inferred from a list",
);
pub(super) const DECODE_FAILURES: Family = plain(
    "steadfast_informer_decode_failures",
    "Records that could not be decoded, by record: of a known object (object), or of an unknown one (unidentified)",
);
pub(super) const DIAGNOSTICS: Family =
    plain("steadfast_informer_diagnostics", "Diagnostics of the informer, as in its log lines and in on_diagnostic");

pub(super) const CALLS: Family = plain("steadfast_handler_calls", "Calls of the handler, by result");
pub(super) const CALL_DURATION: Family =
    seconds("steadfast_handler_call_duration", "Durations of finished calls of the handler, panics included");
pub(super) const SKIPPED: Family =
    plain("steadfast_handler_skipped_events", "Events skipped after their retries: work not done");
pub(super) const MISSED: Family = plain(
    "steadfast_handler_missed_events",
    "Events that a handler did not receive separately, because its limit of pending events was reached",
);
pub(super) const QUEUE: Family =
    plain("steadfast_handler_queue_length", "Objects with changes that are pending for the handler or in delivery");
pub(super) const RUNNING: Family = plain("steadfast_handler_running_calls", "Calls in progress");
pub(super) const LAG: Family =
    seconds("steadfast_handler_lag", "Age of the oldest change that the handler has not finished, 0 if none");
pub(super) const HANDLER_SYNCED: Family =
    plain("steadfast_handler_synced", "1 if the handler has finished every object of its initial list, 0 if not");
