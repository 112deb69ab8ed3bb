//! Catalog of faults, and the syntax that switches a fault: `NAME[=VALUE][,OPTION=VALUE]…`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use steadfast_apiserver::{Faults, InjectedResponse, RequestRule, Verb};

use crate::duration;

/// One fault: name, syntax and effect.
pub(crate) struct FaultDefinition {
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    pub(crate) effect: &'static str,
    action: Action,
}

/// Type of a fault's value, and the function that applies the fault.
enum Action {
    /// One-time effect, without a value.
    Once(fn(&Faults)),
    /// Stays active until switched off.
    Switch(fn(&Faults, bool)),
    /// Takes a number as its value.
    Number(fn(&Faults, u64)),
    /// Takes a duration as its value; zero switches the fault off.
    Delay(fn(&Faults, Duration)),
    /// Returns an error status for matching requests.
    Respond,
    /// Ends all active faults.
    Clear,
}

const fn once(name: &'static str, effect: &'static str, action: fn(&Faults)) -> FaultDefinition {
    FaultDefinition { name, usage: name, effect, action: Action::Once(action) }
}

const fn switch(
    name: &'static str,
    usage: &'static str,
    effect: &'static str,
    action: fn(&Faults, bool),
) -> FaultDefinition {
    FaultDefinition { name, usage, effect, action: Action::Switch(action) }
}

const fn number(
    name: &'static str,
    usage: &'static str,
    effect: &'static str,
    action: fn(&Faults, u64),
) -> FaultDefinition {
    FaultDefinition { name, usage, effect, action: Action::Number(action) }
}

/// All faults, in the order of the help.
pub(crate) const CATALOG: &[FaultDefinition] = &[
    once("stop", "a replica's process ends: connections are reset, and new connections are rejected", Faults::stop),
    once("start", "a stopped replica starts, with an empty watch cache", Faults::start),
    once("restart", "a replica stops, and starts again immediately", Faults::restart),
    switch("refuse", "refuse[=off]", "new connections are rejected", Faults::refuse),
    switch(
        "accept-and-close",
        "accept-and-close[=off]",
        "new connections are accepted and closed",
        Faults::accept_and_close,
    ),
    once("reset", "all connections are reset", Faults::reset),
    number(
        "reset-after",
        "reset-after=BYTES",
        "connections are reset after this many bytes",
        Faults::reset_after_bytes,
    ),
    switch("black-hole", "black-hole[=off]", "packets in both directions are dropped silently", Faults::black_hole),
    once("cut", "connections are reset, and new connections are rejected until `heal`", Faults::cut),
    once("heal", "ends `cut` and all other faults of connections", Faults::heal),
    once("goaway", "HTTP/2 connections receive a GOAWAY", Faults::goaway),
    switch("freeze", "freeze[=off]", "the server responds to pings only", Faults::freeze),
    switch("stall-streams", "stall-streams[=off]", "open watches deliver nothing", Faults::stall_streams),
    once("end-watches", "open watches end cleanly", Faults::end_watches),
    FaultDefinition {
        name: "delay",
        usage: "delay=DURATION",
        effect: "each response starts this much later; 0s switches it off",
        action: Action::Delay(Faults::delay),
    },
    switch("no-bookmarks", "no-bookmarks[=off]", "watches have no bookmarks", Faults::no_bookmarks),
    switch(
        "refuse-streamed-lists",
        "refuse-streamed-lists[=off]",
        "streamed lists are rejected with 422",
        Faults::refuse_streamed_lists,
    ),
    number(
        "expire-continue-tokens",
        "expire-continue-tokens=COUNT",
        "the next continue tokens have expired",
        |faults, count| faults.expire_continue_tokens(u32::try_from(count).unwrap_or(u32::MAX)),
    ),
    number(
        "split-bodies",
        "split-bodies=BYTES",
        "bodies arrive in pieces of this size; 0 switches it off",
        |faults, bytes| {
            faults.split_bodies(usize::try_from(bytes).unwrap_or(usize::MAX));
        },
    ),
    switch("lag", "lag[=off]", "the watch cache of a replica is no longer updated", Faults::lag),
    switch(
        "freeze-etcd",
        "freeze-etcd[=off]",
        "the store is frozen: no writes, no consistent reads, no events",
        Faults::freeze_etcd,
    ),
    once("expire-events", "watches from older versions get 410 Expired", Faults::expire_events),
    number("repeat-events", "repeat-events=COUNT", "the next watches repeat this many events", |faults, count| {
        faults.repeat_events(usize::try_from(count).unwrap_or(usize::MAX));
    }),
    number("restore", "restore=REVISION", "the history is restored from a backup of this revision", Faults::restore),
    FaultDefinition {
        name: "respond",
        usage: "respond=CODE[,resource=NAME][,namespace=NAME][,verb=VERB][,times=N][,retry-after=DURATION]",
        effect: "matching requests get this status instead of the real response",
        action: Action::Respond,
    },
    once("respond-truly", "ends all faults `respond`", Faults::clear_rules),
    FaultDefinition { name: "none", usage: "none", effect: "ends all faults that are on", action: Action::Clear },
];

/// Verbs of the option `verb` of `respond`, by their names in Kubernetes authorization.
const VERBS_BY_NAME: [(&str, &[Verb]); 8] = [
    ("get", &[Verb::Get]),
    // The server records several kinds of LIST and watch separately; authorization has one verb for each group.
    ("list", &[Verb::List, Verb::Page, Verb::Probe, Verb::ListByName]),
    ("watch", &[Verb::Watch, Verb::StreamedList]),
    ("create", &[Verb::Create]),
    ("update", &[Verb::Update]),
    ("patch", &[Verb::Patch]),
    ("delete", &[Verb::Delete]),
    ("deletecollection", &[Verb::DeleteCollection]),
];

/// Parsed fault with its value and replica.
pub(crate) struct FaultSpec {
    definition: &'static FaultDefinition,
    replica: Option<usize>,
    value: FaultValue,
}

enum FaultValue {
    None,
    On(bool),
    Number(u64),
    Duration(Duration),
    Respond(RequestRule, InjectedResponse),
}

impl fmt::Debug for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultSpec({})", self.definition.name)
    }
}

impl FromStr for FaultSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error_of = |reason: String| Err(format!("fault {text:?}: {reason}"));
        let mut arguments = text.split(',').map(|argument| match argument.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (argument.trim(), None),
        });
        let (name, value) = arguments.next().unwrap_or_default();
        let Some(definition) = CATALOG.iter().find(|definition| definition.name == name) else {
            return error_of(format!("unknown fault {name:?}; `steadfast fault --list` shows all"));
        };
        let (mut replica, mut options) = (None, Vec::new());
        for (key, value) in arguments {
            let Some(value) = value else { return error_of(format!("option {key:?} needs a value, as in {key}=…")) };
            match key {
                // The number has no upper bound here, because only the server knows its number of replicas.
                "replica" => match value.parse() {
                    Ok(number) => replica = Some(number),
                    Err(_) => return error_of(format!("replica {value:?} is not a number")),
                },
                _ if matches!(definition.action, Action::Respond) => options.push((key, value)),
                _ => return error_of(format!("unknown option {key:?}; {name} takes: replica")),
            }
        }
        let missing_value = || format!("it needs a value: {}", definition.usage);
        let value = match (&definition.action, value) {
            (Action::Once(_) | Action::Clear, None) => Ok(FaultValue::None),
            (Action::Once(_) | Action::Clear, Some(_)) => Err("it takes no value".to_owned()),
            (Action::Switch(_), None | Some("on")) => Ok(FaultValue::On(true)),
            (Action::Switch(_), Some("off")) => Ok(FaultValue::On(false)),
            (Action::Switch(_), Some(other)) => Err(format!("{other:?} is neither on nor off")),
            (Action::Number(_), Some(number)) => {
                number.parse().map(FaultValue::Number).map_err(|_| format!("{number:?} is not a number"))
            }
            (Action::Delay(_), Some(text)) => duration(text).map(FaultValue::Duration),
            (Action::Respond, Some(code)) => parse_response(code, &options),
            (Action::Number(_) | Action::Delay(_) | Action::Respond, None) => Err(missing_value()),
        };
        match value {
            Ok(value) => Ok(Self { definition, replica, value }),
            Err(reason) => error_of(reason),
        }
    }
}

impl FaultSpec {
    /// Switches the fault on a server of `replicas` replicas.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not have the replica.
    pub(crate) fn apply(&self, faults: &Faults, replicas: usize) -> Result<(), String> {
        let faults = match self.replica {
            Some(replica) if replica >= replicas => {
                return Err(format!("no replica {replica}: the server has replicas 0 to {}", replicas - 1));
            }
            Some(replica) => faults.replica(replica),
            None => faults.clone(),
        };
        match (&self.definition.action, &self.value) {
            (Action::Once(apply), _) => apply(&faults),
            (Action::Switch(apply), FaultValue::On(is_on)) => apply(&faults, *is_on),
            (Action::Number(apply), FaultValue::Number(number)) => apply(&faults, *number),
            (Action::Delay(apply), FaultValue::Duration(delay)) => apply(&faults, *delay),
            (Action::Respond, FaultValue::Respond(rule, response)) => faults.respond(rule.clone(), response.clone()),
            (Action::Clear, _) => clear_all(&faults),
            // The parser creates no other combination.
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the fault stays active after it was applied.
    pub(crate) fn remains_active(&self) -> bool {
        match (&self.definition.action, &self.value) {
            (Action::Switch(_), FaultValue::On(is_on)) => *is_on,
            (Action::Delay(_), FaultValue::Duration(delay)) => !delay.is_zero(),
            // All other faults with a number act once or are used up. The server does not report that end.
            (Action::Number(_), FaultValue::Number(number)) => *number > 0 && self.definition.name == "split-bodies",
            (Action::Respond, _) => true,
            _ => matches!(self.definition.name, "stop" | "cut"),
        }
    }

    /// Returns whether this fault ends the effect of `earlier`.
    pub(crate) fn ends_fault(&self, earlier: &Self) -> bool {
        // A command for one replica does not end a fault of all replicas: the fault is still active on the other
        // replicas.
        let covers_replica = self.replica.is_none() || self.replica == earlier.replica;
        let ended_faults: &[&str] = match self.definition.name {
            "none" => return covers_replica,
            "start" | "restart" => &["stop"],
            "heal" => &["cut", "refuse", "accept-and-close", "black-hole"],
            // Several rules may be active at once, for different requests.
            "respond" => &[],
            "respond-truly" => &["respond"],
            name => return covers_replica && name == earlier.definition.name,
        };
        covers_replica && ended_faults.contains(&earlier.definition.name)
    }
}

fn clear_all(faults: &Faults) {
    // `start` and `heal` cover stopped processes and connections; the loop below covers all switches.
    faults.start();
    faults.heal();
    faults.clear_rules();
    faults.delay(Duration::ZERO);
    faults.split_bodies(0);
    for definition in CATALOG {
        if let Action::Switch(apply) = definition.action {
            apply(faults, false);
        }
    }
}

fn parse_response(code: &str, options: &[(&str, &str)]) -> Result<FaultValue, String> {
    // A status below 300 without the true body would look like a success to the client.
    let code = code.parse().ok().filter(|code| (300..600).contains(code));
    let code: u16 = code.ok_or("the status must be a number from 300 to 599")?;
    let (mut rule, mut response) = (RequestRule::any(), InjectedResponse::code(code));
    for (key, value) in options {
        match *key {
            "resource" => rule = rule.resource(value),
            "namespace" => rule = rule.namespace(value),
            "times" => rule = rule.times(value.parse().map_err(|_| format!("times {value:?} is not a number"))?),
            "retry-after" => response = InjectedResponse::retry_after(code, duration(value)?),
            "verb" => {
                let Some((_, verbs)) = VERBS_BY_NAME.iter().find(|(name, _)| name == value) else {
                    let known_verbs: Vec<_> = VERBS_BY_NAME.iter().map(|(name, _)| *name).collect();
                    return Err(format!("unknown verb {value:?}; known are {}", known_verbs.join(", ")));
                };
                rule = verbs.iter().fold(rule, |rule, verb| rule.verb(*verb));
            }
            _ => return Err(format!("unknown option {key:?}")),
        }
    }
    Ok(FaultValue::Respond(rule, response))
}

fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| format!("{text:?} is not a duration, as in 200ms, 5s or 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        text.parse::<FaultSpec>().expect_err(text)
    }

    #[test]
    fn each_example_of_the_catalog_parses() {
        for definition in CATALOG {
            let usage = definition.usage.split('[').next().unwrap_or_default();
            let text = usage.replace("BYTES", "10").replace("COUNT", "2").replace("REVISION", "5");
            let text = text.replace("DURATION", "200ms").replace("CODE", "503");
            let spec = text.parse::<FaultSpec>().unwrap_or_else(|reason| panic!("{reason}"));
            assert_eq!(spec.definition.name, definition.name);
        }
    }

    #[test]
    fn parse_error_names_wrong_part() {
        assert!(reason("lagg").contains("unknown fault \"lagg\""));
        assert!(reason("lag=maybe").contains("neither on nor off"));
        assert!(reason("lag,replica=x").contains("replica \"x\" is not a number"));
        assert!(reason("lag,times=3").contains("unknown option \"times\""));
        assert!(reason("delay").contains("delay=DURATION"));
        assert!(reason("delay=soon").contains("not a duration"));
        assert!(reason("respond=200").contains("300 to 599"));
        assert!(reason("respond=503,verb=read").contains("unknown verb \"read\""));
        assert!(reason("reset=1").contains("takes no value"));
        assert!(reason("").contains("unknown fault"));
    }

    #[test]
    fn switch_off_ends_earlier_fault() {
        let spec = |text: &str| text.parse::<FaultSpec>().expect(text);
        assert!(spec("lag").remains_active() && !spec("lag=off").remains_active() && !spec("reset").remains_active());
        assert!(spec("lag=off").ends_fault(&spec("lag,replica=1")));
        assert!(!spec("lag=off,replica=0").ends_fault(&spec("lag,replica=1")));
        assert!(
            spec("none").ends_fault(&spec("respond=503")) && spec("respond-truly").ends_fault(&spec("respond=503"))
        );
        assert!(!spec("respond=500").ends_fault(&spec("respond=503")));
        assert!(spec("start").ends_fault(&spec("stop")) && spec("heal").ends_fault(&spec("black-hole")));
    }
}
