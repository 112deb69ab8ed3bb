//! Faults as switches: each can start, end or occur once on one replica, in any combination with other faults.

use std::time::Duration;

use serde_json::json;
use steadfast_apiserver::{
    ApiServer, Faults, InjectedResponse, ObjectCorruption, RequestRule, Status, TooLargeVersionForm, Verb,
};
use steadfast_core::random::Random;

use super::catalog_fault::CatalogFault;

/// Number of objects that are written.
pub(super) const NAME_COUNT: u64 = 6;

/// Maximum size of an object that informers read here, in bytes. It is low, so that a huge object costs little.
pub(super) const OBJECT_LIMIT_BYTES: usize = 32 * 1024;

/// Returns the name of the object `number`.
pub(super) fn object_name(number: u64) -> String {
    format!("c-{number}")
}

/// Returns `true` if `fault` can be switched on a running server. Other faults are actions of clients and writers,
/// depend on the setup of a client, or run alone.
pub(super) fn is_switch(fault: CatalogFault) -> bool {
    !matches!(
        fault,
        CatalogFault::IdleFlowDropped
            | CatalogFault::NoBookmarks
            | CatalogFault::EventsLost
            | CatalogFault::CredentialsRotated
            | CatalogFault::HugeList
            | CatalogFault::SlowReader
            | CatalogFault::BadHandler
            | CatalogFault::ShutdownWhileCut
            | CatalogFault::WriteWhileCut
            | CatalogFault::HistoryRestored
            | CatalogFault::ClockJumps
            | CatalogFault::SelectorChurn
    )
}

/// Switches `fault` on or off on one replica of `server`, or triggers it. `random` makes the random choices.
///
/// Returns a description of the action: `nothing` if `fault` is not a switch (see [`is_switch`]).
pub(super) fn inject(
    fault: CatalogFault,
    server: &ApiServer,
    replica: usize,
    on: bool,
    random: &mut Random,
) -> &'static str {
    let faults = server.faults().replica(replica);
    // The rule applies to few requests: a rule that never expires would make every run end in endless relists.
    let rule = || RequestRule::any().times(2);
    let cut = || if on { faults.cut() } else { faults.heal() };
    match fault {
        CatalogFault::ServerAbsent | CatalogFault::RecreatedWhileCut | CatalogFault::DeletedWhileCut => {
            cut();
            "cut"
        }
        CatalogFault::ServerRestarts => {
            faults.restart();
            "restart"
        }
        // Positions up to 3000 bytes can fall into headers, within an event, or between two events.
        CatalogFault::ConnectionReset if on => {
            faults.reset_after_bytes(random.draw() % 3000);
            "reset after some bytes"
        }
        CatalogFault::ConnectionReset => {
            faults.reset();
            "reset"
        }
        CatalogFault::BlackHole => {
            faults.black_hole(on);
            "black hole"
        }
        CatalogFault::FrozenServer => {
            faults.freeze(on);
            "freeze"
        }
        CatalogFault::StalledStream => {
            faults.stall_streams(on);
            "stalled streams"
        }
        CatalogFault::GoAway => {
            faults.goaway();
            "goaway"
        }
        CatalogFault::WatchEnded if on => end_with_errors(&faults, random),
        CatalogFault::WatchEnded => {
            faults.end_watches();
            "ended watches"
        }
        CatalogFault::AcceptAndClose => {
            faults.accept_and_close(on);
            "accept and close"
        }
        CatalogFault::HistoryCompacted if on => {
            // Compaction alone does not affect watch caches. Their events must expire too. Otherwise clients would
            // resume without a relist.
            server.compact();
            faults.expire_events();
            "compaction"
        }
        CatalogFault::HistoryCompacted => {
            faults.expire_events();
            "expired events"
        }
        CatalogFault::ContinueTokenExpired => {
            faults.expire_continue_tokens(u32::from(on));
            "expired continue token"
        }
        CatalogFault::VersionTooLarge => {
            // API servers report a too large version in three ways, and clients must recognise each of them.
            let spellings =
                [TooLargeVersionForm::Cause, TooLargeVersionForm::CauseMessage, TooLargeVersionForm::Message];
            let response = InjectedResponse::too_large(spellings[random.draw() as usize % spellings.len()]);
            respond_also(&faults, on, rule().verb(Verb::Watch).verb(Verb::List).verb(Verb::StreamedList), response);
            "too large a version"
        }
        CatalogFault::LaggingReplica => {
            faults.lag(on);
            "lag"
        }
        CatalogFault::StreamedListBroken => {
            faults.refuse_streamed_lists(on);
            "rejected streamed lists"
        }
        CatalogFault::EventsRepeated => {
            faults.repeat_events(3);
            "repeated events"
        }
        CatalogFault::ServerBusy => {
            let response = InjectedResponse::code([410, 429, 500, 503, 504][random.draw() as usize % 5]);
            respond_also(&faults, on, rule().verb(any_read(random)), response);
            "a busy server"
        }
        CatalogFault::ResourceRefused if on && random.fraction() < 0.5 => hang_lists(&faults, random),
        CatalogFault::ResourceRefused if on => refuse_watches(&faults, random),
        CatalogFault::ResourceRefused | CatalogFault::PermissionRemoved => {
            respond_also(&faults, on, rule().verb(any_read(random)), InjectedResponse::Forbidden);
            "forbidden"
        }
        CatalogFault::UndecodableObject => {
            corrupt(&faults, on, random.draw());
            "undecodable object"
        }
        CatalogFault::FrozenEtcd => {
            faults.freeze_etcd(on);
            "frozen etcd"
        }
        _ => "nothing",
    }
}

/// Applies `response` to requests that match `rule`. If `on`, `response` also applies to one request for a single
/// object during a delta relist.
fn respond_also(faults: &Faults, on: bool, rule: RequestRule, response: InjectedResponse) {
    // A delta relist requests single objects, and one of these requests receives the response as well.
    if on {
        faults.respond(RequestRule::any().verb(Verb::ListByName).times(1), response.clone());
    }
    faults.respond(rule, response);
}

/// Ends watches with errors that contain no status. They contain an object with a version that the history has not
/// reached.
fn end_with_errors(faults: &Faults, random: &mut Random) -> &'static str {
    let name = object_name(random.draw() % NAME_COUNT);
    // The version is far beyond the history. A client that adopted this version would resume from a version that does
    // not exist yet.
    let metadata = json!({ "name": name, "namespace": "default", "uid": "none", "resourceVersion": "8000000" });
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
    faults.respond(RequestRule::any().verb(Verb::Watch).times(2), InjectedResponse::ErrorObject(object));
    faults.end_watches();
    "errors without a status"
}

/// Simulates the effect of a dead conversion webhook on lists.
fn hang_lists(faults: &Faults, random: &mut Random) -> &'static str {
    let verb = [Verb::List, Verb::StreamedList, Verb::Page][random.draw() as usize % 3];
    // The delay is up to 28 s, so that some lists fail early and others late.
    let delay = Duration::from_secs(random.draw() % 29);
    faults.respond_after(RequestRule::any().times(1).verb(Verb::ListByName), delay, InjectedResponse::code(500));
    faults.respond_after(RequestRule::any().times(2).verb(verb), delay, InjectedResponse::code(500));
    "hanging lists"
}

/// Rejects or fails watches, and possibly streamed lists, for long enough that clients replace them with lists.
fn refuse_watches(faults: &Faults, random: &mut Random) -> &'static str {
    let code = [403, 404, 405, 500, 501][random.draw() as usize % 5];
    let rule = RequestRule::any().verb(Verb::Watch).times(8);
    let rejects_streams = random.fraction() < 0.5;
    let rule = if rejects_streams { rule.verb(Verb::StreamedList) } else { rule };
    let in_stream = InjectedResponse::InStream(Status::of_code(500).with_reason("StoreReadError"));
    faults.respond(rule, if random.fraction() < 0.3 { in_stream } else { InjectedResponse::code(code) });
    "rejected watches"
}

fn any_read(random: &mut Random) -> Verb {
    [Verb::Watch, Verb::List, Verb::StreamedList, Verb::Probe][random.draw() as usize % 4]
}

/// Corrupts an object in the way that `random_number` selects.
fn corrupt(faults: &Faults, on: bool, random_number: u64) {
    let corruptions =
        [ObjectCorruption::WrongTypes, ObjectCorruption::Deep(200), ObjectCorruption::Huge(2 * OBJECT_LIMIT_BYTES)];
    // The quotient selects the kind of corruption, and the remainder selects the name. Both choices are independent.
    let corruption = corruptions[(random_number / NAME_COUNT) as usize % corruptions.len()];
    faults.corrupt_object("default", &object_name(random_number % NAME_COUNT), on.then_some(corruption));
}
