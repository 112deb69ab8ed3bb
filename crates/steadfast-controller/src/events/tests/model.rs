//! What is recorded at random, beside a naive recorder with lists that are searched and a server that keeps what it is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::super::answer::{Answer, Refusal};
use super::super::correlate::Recorded;
use super::super::draft::EventDraft;
use super::super::key::Key;
use super::super::series::Order;
use super::super::settings::EventSettings;
use super::{Script, pod};

const SETTINGS: EventSettings = EventSettings {
    queue: 4,
    series: 5,
    finish: Duration::from_secs(6),
    refresh: Duration::from_secs(30),
    similar: 3,
    similar_within: Duration::from_secs(10),
    burst: 4,
    refill: Duration::from_secs(5),
    tries: 4,
    first_wait: Duration::from_secs(1),
    longest_wait: Duration::from_secs(4),
    concurrency: 3,
};

#[derive(Clone, Debug)]
enum Step {
    /// An event about one of some objects, of one of some reasons, with one of some notes.
    Record(u8, u8, u8),
    /// The requests are made that are to be made.
    Send,
    /// One of those under way is answered.
    Answer(usize, Fate),
    /// The server forgets one of its events.
    Forget(usize),
    Flush,
    Pass(u64),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Done,
    /// It is done, and the answer is lost.
    AnswerLost,
    RequestLost,
    Busy,
    Refused,
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![
        12 => Just(Fate::Done),
        2 => Just(Fate::AnswerLost),
        2 => Just(Fate::RequestLost),
        1 => Just(Fate::Busy),
        1 => Just(Fate::Refused),
    ];
    prop_oneof![
        40 => (0..7_u8, 0..3_u8, 0..5_u8).prop_map(|(about, reason, note)| Step::Record(about, reason, note)),
        30 => (0..2_u8).prop_map(|about| Step::Record(about, 0, 0)),
        30 => Just(Step::Send),
        40 => (any::<usize>(), fate).prop_map(|(which, fate)| Step::Answer(which, fate)),
        2 => any::<usize>().prop_map(Step::Forget),
        2 => Just(Step::Flush),
        20 => (1..4_u64).prop_map(Step::Pass),
        2 => (5..40_u64).prop_map(Step::Pass),
    ]
}

/// The events that a server has, by their names: what was counted in them last.
#[derive(Default)]
struct Server {
    events: BTreeMap<String, i32>,
    /// The greatest count that any event of that name ever had, and of how many it was made.
    told: BTreeMap<String, i32>,
}

impl Server {
    fn act(&mut self, order: &Order) -> Answer {
        let (name, count) = match order {
            Order::Create(event) => {
                let name = event.metadata.name.clone().expect("it has a name");
                if self.events.contains_key(&name) {
                    return Answer::Exists;
                }
                (name, event.series.as_ref().map_or(1, |series| series.count))
            }
            Order::Patch { name, series, .. } => {
                if !self.events.contains_key(name) {
                    return Answer::Missing;
                }
                (name.clone(), series.count)
            }
        };
        self.events.insert(name.clone(), count);
        let told = self.told.entry(name).or_default();
        *told = count.max(*told);
        Answer::Accepted
    }
}

/// Of what is recorded, which is which event, by lists.
#[derive(Default)]
struct Model {
    /// Open series: what they are of, when the last was recorded, how many; the last one used is last.
    open: Vec<Series>,
    /// The notes of similar events that are events of their own, and when the last similar one was recorded.
    similar: Vec<((u8, u8), Vec<u8>, u64)>,
    /// When tokens were taken about an object, the latest last; that used last is last.
    tokens: Vec<(u8, Vec<u64>)>,
    filtered: u64,
    dropped: u64,
    combined: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Series {
    about: u8,
    reason: u8,
    /// None of those that are combined.
    note: Option<u8>,
    last: u64,
}

/// Removes what `is_it`, to be put behind all others again.
fn taken<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool) -> Option<T> {
    list.iter().position(is_it).map(|at| list.remove(at))
}

fn push<T>(list: &mut Vec<T>, most: usize, value: T) {
    if list.len() == most {
        list.remove(0);
    }
    list.push(value);
}

impl Model {
    /// What has to become of a recording; `is_full` says whether too many wait.
    fn record(&mut self, about: u8, reason: u8, note: u8, now: u64, is_full: bool) -> &'static str {
        self.open.retain(|series| now < series.last + SETTINGS.finish.as_secs());
        let (key, mut own, last) = taken(&mut self.similar, |similar| similar.0 == (about, reason)).unwrap_or((
            (about, reason),
            Vec::new(),
            now,
        ));
        if now - last > SETTINGS.similar_within.as_secs() {
            own.clear();
        }
        let is_combined = !own.contains(&note) && own.len() + 1 >= SETTINGS.similar;
        if !is_combined && !own.contains(&note) {
            own.push(note);
        }
        push(&mut self.similar, SETTINGS.series, (key, own, now));
        self.combined += u64::from(is_combined);
        let new = Series { about, reason, note: (!is_combined).then_some(note), last: now };
        if taken(&mut self.open, |series| Series { last: now, ..*series } == new).is_some() {
            self.open.push(new);
            return "counted";
        }
        if is_full {
            self.dropped += 1;
            return "dropped";
        }
        let (_, mut tokens) = taken(&mut self.tokens, |tokens| tokens.0 == about).unwrap_or_default();
        let is_allowed = Self::tokens_left(&tokens, now) > 0;
        if is_allowed {
            tokens.push(now);
        }
        push(&mut self.tokens, SETTINGS.series, (about, tokens));
        if !is_allowed {
            self.filtered += 1;
            return "filtered";
        }
        push(&mut self.open, SETTINGS.series, new);
        "new"
    }

    /// How many tokens there are, by all that were ever taken: second by second.
    fn tokens_left(taken: &[u64], now: u64) -> u64 {
        let (burst, refill) = (u64::from(SETTINGS.burst), SETTINGS.refill.as_secs());
        let Some(first) = taken.first() else { return burst };
        // In seconds' worth of tokens.
        let mut worth = burst * refill;
        for second in *first..=now {
            if second > *first {
                worth = (worth + 1).min(burst * refill);
            }
            let then = taken.iter().filter(|at| **at == second).count() as u64;
            worth -= then * refill;
        }
        worth / refill
    }

    /// A series was given up: the next one of these is another event.
    fn forget(&mut self, about: u8, reason: u8, note: Option<u8>) {
        taken(&mut self.open, |series| (series.about, series.reason, series.note) == (about, reason, note));
    }
}

/// Which event is of this key: object, reason, note.
fn subject(key: &Key) -> (u8, u8, Option<u8>) {
    let digit = |text: &str| text.bytes().last().map_or(u8::MAX, |byte| byte - b'0');
    let Key { likeness, note } = key;
    (digit(&likeness.regarding.name), digit(&likeness.reason), note.as_deref().map(digit))
}

struct World {
    script: Script,
    server: Server,
    model: Model,
    recorded: u64,
    refused: u64,
}

impl World {
    fn new() -> Self {
        let (server, model) = (Server::default(), Model::default());
        Self { script: Script::with(SETTINGS), server, model, recorded: 0, refused: 0 }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Record(about, reason, note) => {
                self.recorded += 1;
                // Series that are over are to be told of first: they may fill the queue.
                let now = self.script.now();
                self.script.correlator.end_overdue(now);
                let is_full = self.script.correlator.figures().queued >= SETTINGS.queue;
                let draft = EventDraft::normal(format!("Reason{reason}"), "Acting").note(format!("note {note}"));
                let recorded = self.script.publish(&pod(&format!("pod-{about}")), draft);
                let expected = self.model.record(about, reason, note, self.script.seconds, is_full);
                let is_expected = match recorded {
                    Recorded::Queued => matches!(expected, "new" | "counted"),
                    Recorded::Counted => expected == "counted",
                    Recorded::Filtered => expected == "filtered",
                    Recorded::Dropped => expected == "dropped",
                    Recorded::Invalid(_) => false,
                };
                prop_assert!(is_expected, "{recorded:?} in place of {expected}");
            }
            Step::Send => drop(self.script.sent()),
            Step::Answer(which, fate) => {
                let under_way = self.script.under_way.len();
                if under_way > 0 {
                    self.answer(which % under_way, fate);
                }
            }
            Step::Forget(which) => {
                let names: Vec<_> = self.server.events.keys().cloned().collect();
                if !names.is_empty() {
                    self.server.events.remove(&names[which % names.len()]);
                }
            }
            Step::Flush => drop(self.script.correlator.flush()),
            Step::Pass(seconds) => self.script.pass(seconds),
        }
        self.check()
    }

    fn answer(&mut self, which: usize, fate: Fate) {
        let (number, order) = self.script.under_way.remove(which);
        let answer = match fate {
            Fate::Done => self.server.act(&order),
            Fate::AnswerLost => {
                self.server.act(&order);
                Answer::Later { code: Some(504), asked: None }
            }
            Fate::RequestLost => Answer::Later { code: None, asked: None },
            Fate::Busy => Answer::Later { code: Some(429), asked: Some(Duration::from_secs(2)) },
            Fate::Refused => Answer::Refused(Refusal { code: 403, ..Refusal::default() }),
        };
        let open = self.script.correlator.open().find(|(open, _)| *open == number);
        let subject = open.map(|(_, key)| subject(key));
        let now = self.script.now();
        if let Some(given_up) = self.script.correlator.answered(number, answer, now, u64::MAX) {
            self.refused += given_up.count;
            if let Some((about, reason, note)) = subject {
                self.model.forget(about, reason, note);
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let figures = self.script.correlator.figures();
        let settled = figures.delivered + figures.filtered + figures.dropped + figures.failed;
        prop_assert_eq!(figures.recorded, self.recorded);
        prop_assert_eq!(figures.waiting + settled, self.recorded, "what was recorded is somewhere");
        prop_assert_eq!(figures.filtered, self.model.filtered);
        prop_assert_eq!(figures.dropped, self.model.dropped);
        prop_assert_eq!(figures.combined, self.model.combined);
        prop_assert_eq!(figures.failed, self.refused);
        // Those that are over may still be there until somebody looks.
        let is_over = |series: &Series| series.last + SETTINGS.finish.as_secs() <= self.script.seconds;
        let open: Vec<_> = self.script.correlator.open().map(|(_, key)| subject(key)).collect();
        let known = self.model.open.iter().map(|series| ((series.about, series.reason, series.note), is_over(series)));
        let known: Vec<_> = known.filter(|(key, is_over)| !is_over || open.contains(key)).map(|(key, _)| key).collect();
        prop_assert_eq!(known, open);
        let (series, similar, allowances) = self.script.correlator.remembered();
        prop_assert!(series <= SETTINGS.series + SETTINGS.queue + SETTINGS.concurrency + 1, "{series} series");
        prop_assert!(similar <= SETTINGS.series && allowances <= SETTINGS.series);
        prop_assert!(self.script.under_way.len() <= SETTINGS.concurrency);
        Ok(())
    }

    /// The server is well, and all that can be sent is.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..10_000 {
            if !self.script.under_way.is_empty() {
                self.answer(0, Fate::Done);
            }
            self.script.sent();
            if self.script.under_way.is_empty() {
                if self.script.correlator.left() == 0 {
                    return self.check();
                }
                self.script.correlator.flush();
                self.script.pass(1);
            }
        }
        Err(TestCaseError::fail(format!("{} are left", self.script.correlator.left())))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Each recorded event is in the count of exactly one event of the server, or was filtered, dropped or given up as the
    /// figures say: the sum of all counts is neither less nor more. One that was given up may have been counted all the same,
    /// where nobody knows what became of the last requests.
    #[test]
    fn every_recorded_event_is_counted_once_or_told_of(steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step)?;
        }
        world.settle()?;
        let figures = world.script.correlator.figures();
        prop_assert_eq!(figures.waiting, 0);
        let counted: i32 = world.server.told.values().sum();
        let (counted, delivered) = (u64::from(counted.unsigned_abs()), figures.delivered);
        let most = delivered + figures.failed;
        prop_assert!((delivered..=most).contains(&counted), "{counted} counted, {delivered} to {most} expected");
    }
}
