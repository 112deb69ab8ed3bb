//! Faults as switches: each begins, ends or happens on one replica, in any combination with others.

use std::time::Duration;

use serde_json::json;
use steadfast_apiserver::{Answer, ApiServer, Faults, RequestRule, Spoiling, Status, TooLarge, Verb};
use steadfast_core::random::Random;

use super::fault::Fault;

/// The objects that are written, by number, and the namespace they live in.
pub(super) const NAMES: u64 = 6;

/// The longest object that informers read here, in bytes: a huge one is to be no burden to the machine.
pub(super) const OBJECT_LIMIT: usize = 32 * 1024;

/// The name of the object `number`.
pub(super) fn name(number: u64) -> String {
    format!("c-{number}")
}

/// Whether `fault` can be switched on a server that runs. The others are what clients and writers do themselves, a matter
/// of how a client is set up, or played alone.
pub(super) fn is_switch(fault: Fault) -> bool {
    !matches!(
        fault,
        Fault::IdleFlowDropped
            | Fault::NoBookmarks
            | Fault::EventsLost
            | Fault::CredentialsRotated
            | Fault::HugeList
            | Fault::SlowReader
            | Fault::BadHandler
            | Fault::ShutdownWhileCut
            | Fault::WriteWhileCut
            | Fault::HistoryRestored
            | Fault::ClockJumps
            | Fault::SelectorChurn
    )
}

/// Switches `fault` on or off on one replica of `server`, or has it happen; what of it is left to chance, `random` says.
///
/// Tells what was done: nothing, where it [`is_switch`] no switch.
pub(super) fn strike(fault: Fault, server: &ApiServer, replica: usize, on: bool, random: &mut Random) -> &'static str {
    let faults = server.faults().replica(replica);
    let rule = || RequestRule::any().times(2);
    match fault {
        Fault::ServerAbsent | Fault::RecreatedWhileCut | Fault::DeletedWhileCut => {
            if on {
                faults.cut();
            } else {
                faults.heal();
            }
            "cut"
        }
        Fault::ServerRestarts => {
            faults.restart();
            "restart"
        }
        Fault::ConnectionReset if on => {
            faults.reset_after_bytes(random.draw() % 3000);
            "reset after some bytes"
        }
        Fault::ConnectionReset => {
            faults.reset();
            "reset"
        }
        Fault::BlackHole => {
            faults.black_hole(on);
            "black hole"
        }
        Fault::FrozenServer => {
            faults.freeze(on);
            "freeze"
        }
        Fault::StalledStream => {
            faults.stall_streams(on);
            "stalled streams"
        }
        Fault::GoAway => {
            faults.goaway();
            "goaway"
        }
        Fault::WatchEnded if on => end_with_errors(&faults, random),
        Fault::WatchEnded => {
            faults.end_watches();
            "end of watches"
        }
        Fault::AcceptAndClose => {
            faults.accept_and_close(on);
            "accept and close"
        }
        Fault::HistoryCompacted if on => {
            server.compact();
            faults.expire_events();
            "compaction"
        }
        Fault::HistoryCompacted => {
            faults.expire_events();
            "expired events"
        }
        Fault::ContinueTokenExpired => {
            faults.expire_continue_tokens(u32::from(on));
            "expired continue token"
        }
        Fault::VersionTooLarge => {
            let spellings = [TooLarge::Cause, TooLarge::CauseMessage, TooLarge::Message];
            let answer = Answer::too_large(spellings[random.draw() as usize % spellings.len()]);
            answer_too(&faults, on, rule().verb(Verb::Watch).verb(Verb::List).verb(Verb::StreamedList), answer);
            "too large a version"
        }
        Fault::LaggingReplica => {
            faults.lag(on);
            "lag"
        }
        Fault::StreamedListBroken => {
            faults.refuse_streamed_lists(on);
            "refused streamed lists"
        }
        Fault::EventsRepeated => {
            faults.repeat_events(3);
            "repeated events"
        }
        Fault::ServerBusy => {
            let answer = Answer::code([410, 429, 500, 503, 504][random.draw() as usize % 5]);
            answer_too(&faults, on, rule().verb(any_read(random)), answer);
            "a busy server"
        }
        Fault::ResourceRefused if on && random.share() < 0.5 => hang_lists(&faults, random),
        Fault::ResourceRefused if on => refuse_watches(&faults, random),
        Fault::ResourceRefused | Fault::PermissionRemoved => {
            answer_too(&faults, on, rule().verb(any_read(random)), Answer::Forbidden);
            "forbidden"
        }
        Fault::UndecodableObject => {
            spoil(&faults, on, random.draw());
            "undecodable object"
        }
        Fault::FrozenEtcd => {
            faults.freeze_etcd(on);
            "frozen etcd"
        }
        _ => "nothing",
    }
}

/// Has `rule` answered so, and where it is `on` an object too that is requested between metadata and a relist's end.
fn answer_too(faults: &Faults, on: bool, rule: RequestRule, answer: Answer) {
    if on {
        faults.answer_with(RequestRule::any().verb(Verb::State).times(1), answer.clone());
    }
    faults.answer_with(rule, answer);
}

/// Ends watches with errors that have no status, but an object with a version that the history has not reached.
fn end_with_errors(faults: &Faults, random: &mut Random) -> &'static str {
    let name = name(random.draw() % NAMES);
    let metadata = json!({ "name": name, "namespace": "default", "uid": "none", "resourceVersion": "8000000" });
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
    faults.answer_with(RequestRule::any().verb(Verb::Watch).times(2), Answer::ErrorObject(object));
    faults.end_watches();
    "errors without a status"
}

/// What a dead conversion webhook does to lists.
fn hang_lists(faults: &Faults, random: &mut Random) -> &'static str {
    let verb = [Verb::List, Verb::StreamedList, Verb::Page][random.draw() as usize % 3];
    let wait = Duration::from_secs(random.draw() % 29);
    faults.hang(RequestRule::any().times(1).verb(Verb::State), wait, Answer::code(500));
    faults.hang(RequestRule::any().times(2).verb(verb), wait, Answer::code(500));
    "lists that hang"
}

/// Watches, and perhaps streamed lists, are refused or fail for long enough that lists take their place.
fn refuse_watches(faults: &Faults, random: &mut Random) -> &'static str {
    let code = [403, 404, 405, 500, 501][random.draw() as usize % 5];
    let rule = RequestRule::any().verb(Verb::Watch).times(8);
    let streams = random.share() < 0.5;
    let rule = if streams { rule.verb(Verb::StreamedList) } else { rule };
    let in_stream = Answer::InStream(Status::of_code(500).with_reason("StoreReadError"));
    faults.answer_with(rule, if random.share() < 0.3 { in_stream } else { Answer::code(code) });
    "refused watches"
}

fn any_read(random: &mut Random) -> Verb {
    [Verb::Watch, Verb::List, Verb::StreamedList, Verb::Probe][random.draw() as usize % 4]
}

/// Spoils an object in one of the ways there are, as `drawn` has it.
fn spoil(faults: &Faults, on: bool, drawn: u64) {
    let ways = [Spoiling::WrongTypes, Spoiling::Deep(200), Spoiling::Huge(2 * OBJECT_LIMIT)];
    let way = ways[(drawn / NAMES) as usize % ways.len()];
    faults.spoil("default", &name(drawn % NAMES), on.then_some(way));
}
