//! The table of all scenarios, by the document that tells of them.

mod cache_loss;
mod failures;
mod pitfalls;

use super::scenario::{Scenario, Source};

/// All scenarios, in the order in which they are told.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "no-server-at-sync",
        source: Source::FailureScenarios(1),
        story: "No server runs while a program waits for its first sync. The wait ends at its deadline and names what \
                is missing and why, and the sync follows as soon as the server is there.",
        slow: false,
        play: || Box::pin(failures::no_server_at_sync()),
    },
    Scenario {
        name: "request-after-shutdown",
        source: Source::FailureScenarios(2),
        story: "The informers are shut down and the client is used on, before and after its idle connections were \
                closed. The watches end, the connections close, and every request is answered.",
        slow: false,
        play: || Box::pin(failures::request_after_shutdown()),
    },
    Scenario {
        name: "shutdown-while-cut",
        source: Source::FailureScenarios(3),
        story: "The informers are shut down while the server is cut off, once with connections refused and once with \
                packets swallowed. Both shutdowns are prompt and no attempt follows.",
        slow: false,
        play: || Box::pin(failures::shutdown_while_cut()),
    },
    Scenario {
        name: "create-while-cut",
        source: Source::FailureScenarios(4),
        story: "An object is created while the server is cut off, once with connections refused and once with packets \
                swallowed. Both end within the deadline with an error that names server and cause, and nothing is \
                created twice.",
        slow: true,
        play: || Box::pin(failures::create_while_cut()),
    },
    Scenario {
        name: "recreate-while-cut",
        source: Source::FailureScenarios(5),
        story: "An object is deleted and created anew during a cut, and the history between is compacted. Two \
                informers tell the end of the old one and the beginning of the new one, not an update.",
        slow: false,
        play: || Box::pin(failures::recreate_while_cut()),
    },
    Scenario {
        name: "watch-closed",
        source: Source::WatchPitfalls,
        story: "The server ends the watch in good order, ten times over. The stream of events goes on each time, \
                without a list and without a change lost.",
        slow: false,
        play: || Box::pin(pitfalls::watch_closed()),
    },
    Scenario {
        name: "connection-killed",
        source: Source::WatchPitfalls,
        story: "The connection is reset in the middle of an object, again and again, while objects change. The watch \
                goes on from where it was, without a list, and nothing is lost or told twice.",
        slow: false,
        play: || Box::pin(pitfalls::connection_killed()),
    },
    Scenario {
        name: "no-spin",
        source: Source::WatchPitfalls,
        story: "For four seconds every connection is accepted and closed at once. The attempts stay few, and the \
                watch is back soon after.",
        slow: true,
        play: || Box::pin(pitfalls::no_spin()),
    },
    Scenario {
        name: "events-in-the-gap",
        source: Source::WatchPitfalls,
        story: "Objects are created, changed, deleted and recreated while the watch is cut, once with the history \
                kept and once with it compacted. The first gap costs no list, the second one, and every deletion is \
                told.",
        slow: false,
        play: || Box::pin(pitfalls::events_in_the_gap()),
    },
    Scenario {
        name: "quiet-for-long",
        source: Source::WatchPitfalls,
        story: "Nothing changes for so long that the server ends idle watches several times. No doubt worth the name \
                arises, and the first change after the silence arrives at once.",
        slow: true,
        play: || Box::pin(pitfalls::quiet_for_long()),
    },
    Scenario {
        name: "stop-when-told",
        source: Source::WatchPitfalls,
        story: "A watch is told to stop while it waits between attempts, and another while its packets are swallowed. \
                Both end at once, and so does the stream of events.",
        slow: false,
        play: || Box::pin(pitfalls::stop_when_told()),
    },
    Scenario {
        name: "undecodable-object",
        source: Source::WatchPitfalls,
        story: "One object comes with a field of the wrong type, in the watch and in a list. It alone is unknown and \
                named as such, the others go on, and it is known again with its next good state.",
        slow: false,
        play: || Box::pin(pitfalls::undecodable_object()),
    },
    Scenario {
        name: "apiserver-restart",
        source: Source::InformerCacheLoss,
        story: "The server restarts under fifty informers on one HTTP/2 connection, with changes meanwhile and an \
                empty watch window. All are fresh again with at most one full transfer each, at most four at once.",
        slow: true,
        play: || Box::pin(cache_loss::apiserver_restart()),
    },
    Scenario {
        name: "replica-change",
        source: Source::InformerCacheLoss,
        story: "One of two replicas stops under fifty informers, and a balancer sends them to the other one, which \
                holds their versions. All go on from where they were, without a single list.",
        slow: false,
        play: || Box::pin(cache_loss::replica_change()),
    },
    Scenario {
        name: "dead-connection",
        source: Source::InformerCacheLoss,
        story: "The server restarts and each request after that is answered; then packets vanish without a word. The \
                dead connection is noticed within 15 s, and no request is ever put on it again.",
        slow: true,
        play: || Box::pin(cache_loss::dead_connection()),
    },
    Scenario {
        name: "time-travel",
        source: Source::InformerCacheLoss,
        story: "The replica in use stops, and the one that takes over lags behind what was seen, once at a resume and \
                once at a relist. Neither the cache nor a handler goes back, and all is there once the replica has \
                caught up.",
        slow: true,
        play: || Box::pin(cache_loss::time_travel()),
    },
    Scenario {
        name: "no-events-for-a-while",
        source: Source::InformerCacheLoss,
        story: "Behind a connection that answers pings the server freezes, with a period of one second. Freshness \
                tells it within two periods, and what changed meanwhile arrives when the server thaws.",
        slow: true,
        play: || Box::pin(cache_loss::no_events_for_a_while()),
    },
];
