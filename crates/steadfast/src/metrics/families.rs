//! The families: what each is named, and what it says. `docs/operations.md` has them as a table, which a test compares.

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
    plain("steadfast_connections", "Connections that there are, by role (watches, requests), protocol and state");
pub(super) const STREAMS: Family =
    plain("steadfast_connection_streams", "Requests and watches that run on the connections, by role");
pub(super) const DIALS: Family = plain("steadfast_connection_dials", "Connections that were ever dialled");
pub(super) const FAILED_DIALS: Family =
    plain("steadfast_connection_dial_failures", "Connections that never came to be, by cause");
pub(super) const CLOSED: Family =
    plain("steadfast_connections_closed", "Connections that were established and are gone, by cause");
pub(super) const ROUND_TRIP: Family =
    seconds("steadfast_connection_ping_round_trip", "The longest last round trip of a ping, of the living connections");
pub(super) const SILENCE: Family =
    seconds("steadfast_connection_silence", "The longest time since a byte arrived, of the living connections");
pub(super) const RECEIVED: Family = bytes("steadfast_connection_received", "Bytes received, as they are on the wire");
pub(super) const SENT: Family = bytes("steadfast_connection_sent", "Bytes sent, as they are on the wire");
pub(super) const REQUESTS: Family =
    plain("steadfast_requests", "Requests, by verb and by the status of the answer or what kept it away");
pub(super) const DURATION: Family =
    seconds("steadfast_request_duration", "Time from a request to the head of its answer or its failure, by verb");

pub(super) const SYNCED: Family =
    plain("steadfast_informer_synced", "Whether the first complete list is in the cache (1) or not (0)");
pub(super) const FRESHNESS: Family =
    plain("steadfast_informer_freshness", "1 for the state in which the cache is now, 0 for all others");
pub(super) const AGE: Family = seconds(
    "steadfast_informer_freshness_age",
    "Time since the last proof that the cache had everything; absent before the first",
);
pub(super) const DOUBT: Family =
    seconds("steadfast_informer_doubt", "How long the cache has been in a state other than fresh, 0 while it is fresh");
pub(super) const ATTEMPTS: Family = plain(
    "steadfast_informer_failed_attempts",
    "Attempts that failed since the last sign of health: how far back-off is",
);
pub(super) const OBJECTS: Family = plain("steadfast_informer_objects", "Objects in the cache");
pub(super) const MEMORY: Family =
    bytes("steadfast_informer_memory", "What the cache and what waits for its handlers take up, by part");
pub(super) const TAINTED: Family = plain(
    "steadfast_informer_tainted_objects",
    "Objects whose newest state cannot be decoded and that answer as unknown",
);
pub(super) const VERSION: Family =
    plain("steadfast_informer_resource_version", "The resource version held; absent where it is no number");
pub(super) const SENT_REQUESTS: Family =
    plain("steadfast_informer_requests", "Requests made for the cache, by what was requested");
pub(super) const OPENED_REQUESTS: Family = plain(
    "steadfast_informer_requests_opened",
    "Requests whose answer began well; of watches and streamed lists: streams",
);
pub(super) const ENDED_REQUESTS: Family =
    plain("steadfast_informer_requests_ended", "Requests that are over, by what was requested and how they ended");
pub(super) const TRANSFERS: Family = plain(
    "steadfast_informer_full_transfers",
    "Transfers of the whole collection that were begun, by what made them necessary",
);
pub(super) const EVENTS: Family = plain(
    "steadfast_informer_events",
    "Changes of the cache, by type and by how they are known: reported by a watch, or inferred from a list",
);
pub(super) const UNREAD: Family = plain(
    "steadfast_informer_decode_failures",
    "Records that could not be decoded: of a known object, or of none that can be named",
);
pub(super) const NOTES: Family =
    plain("steadfast_informer_notes", "What the informer noted of itself, as its log lines and on_note say it");

pub(super) const CALLS: Family = plain("steadfast_handler_calls", "Calls of the handler, by how they ended");
pub(super) const SKIPPED: Family =
    plain("steadfast_handler_skipped_events", "Events given up after their retries: work that was not done");
pub(super) const MISSED: Family = plain(
    "steadfast_handler_missed_events",
    "Events merged into others though each was to be delivered: more waited than the handler's bound",
);
pub(super) const QUEUE: Family = plain(
    "steadfast_handler_queue_length",
    "Objects with changes that wait for the handler or are being delivered to it",
);
pub(super) const RUNNING: Family =
    plain("steadfast_handler_running_calls", "Calls that have begun and have not returned");
pub(super) const LAG: Family = seconds(
    "steadfast_handler_lag",
    "Age of the oldest change from whose call the handler has not returned, 0 if none",
);
pub(super) const VIEWED: Family = plain(
    "steadfast_handler_synced",
    "Whether the handler has returned from every object that was there when its view began (1) or not (0)",
);
