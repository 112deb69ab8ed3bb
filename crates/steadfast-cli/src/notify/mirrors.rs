//! The mirrors of a configuration at work; what they would do; approvals.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use steadfast_notify::config::sinks::Sink;
use steadfast_notify::state::{self, State};
use steadfast_notify::{Approvals, Ask, How, Keeper, Memory, Openings, Plan, Seen, View, previewed};
use tokio::time::{Instant, sleep};

use super::follow::views;
use super::places::{PATIENCE, Places, connected, sources};
use super::standing::Asking;
use crate::aside::{self, print};
use crate::failure::Failure;

/// How long a program that runs may take to take an approval.
const TAKEN_WITHIN: Duration = Duration::from_secs(3);

/// The mirrors at work, and what they remember.
pub(super) struct Mirrors {
    keepers: Vec<Keeper>,
    /// None before there is something to remember, and where it is all only played.
    state: Option<State>,
    is_played: bool,
}

impl Mirrors {
    /// None yet; with `is_played`, none of them will do what it says.
    pub(super) fn new(is_played: bool) -> Self {
        Self { keepers: Vec::new(), state: None, is_played }
    }

    /// Makes sure that what no restart may forget is in the hands of this program, where there is such a thing.
    pub(super) fn prepare(&mut self, plan: &Plan, openings: &Openings) -> Result<(), Failure> {
        if (plan.keeps || !openings.is_empty()) && !self.is_played && self.state.is_none() {
            self.state = Some(State::take(&plan.state).map_err(Failure::run)?);
        }
        Ok(())
    }

    /// Keeps the mirrors that were opened, in the place of those before; what is in those that are no more stays there.
    pub(super) async fn keep(&mut self, openings: Openings, views: BTreeMap<String, Vec<View>>) {
        // Never two at one target.
        self.stop().await;
        let how = How {
            memory: self.state.as_ref().map_or_else(Memory::volatile, |state| state.memory().clone()),
            approvals: self.state.as_ref().map(State::approvals),
            say: self.is_played.then(|| Arc::new(played) as Arc<_>),
            tell: Arc::new(aside::say),
        };
        self.keepers = Keeper::start_all(openings, views, &how);
    }

    /// What tells how each stands.
    pub(super) fn standing(&self) -> Vec<(String, Asking)> {
        self.keepers.iter().map(|keeper| (keeper.name().to_owned(), keeper.standing())).collect()
    }

    /// What no restart may forget.
    pub(super) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Ends them, when what they are doing is done.
    pub(super) async fn stop(&mut self) {
        for keeper in self.keepers.drain(..) {
            keeper.stop().await;
        }
    }
}

fn played(mirror: &str, words: Vec<String>) {
    for line in words {
        aside::say(format_args!("{mirror} | {line}"));
    }
}

/// Prints what each mirror would do now.
pub(super) async fn dry_run(file: &Path) -> Result<ExitCode, Failure> {
    let plan = Plan::load(file).map_err(Failure::config)?;
    let openings = Openings::of(&plan).await.map_err(Failure::config)?;
    if openings.is_empty() {
        return Err(Failure::usage(format!(
            "{} has no mirror, and --dry-run is for those; `explain` says what rules send to streams",
            file.display()
        )));
    }
    let places = connected(&plan, None, Places::new(), Some(PATIENCE)).await?;
    let sources = sources(&plan, &places).await.map_err(Failure::config)?;
    let memory = state::remembered(&plan.state).map_err(Failure::run)?;
    let views = views(&plan, &places, &sources)?;
    let (mut text, mut blind) = (String::new(), Vec::new());
    for (name, seen) in previewed(&openings, views, &memory, PATIENCE).await {
        match seen {
            Ok(seen) => text.push_str(&told(&name, &seen)),
            Err(why) => blind.push(format!("mirror {name}: {why}")),
        }
    }
    let printed = print(&text)?;
    if blind.is_empty() { Ok(printed) } else { Err(Failure::run(blind.join("\n"))) }
}

fn told(name: &str, seen: &Seen) -> String {
    let Seen { steps, words, kept, ask, doubt } = seen;
    let mut text = match steps {
        0 => format!("mirror {name}: nothing is to be done\n"),
        1 => format!("mirror {name}: one step\n"),
        steps => format!("mirror {name}: {steps} steps\n"),
    };
    for line in words {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(why) = doubt {
        let _ = writeln!(text, "  nothing is taken out, since this is in doubt: {why}");
    }
    for (entry, why) in kept {
        let _ = writeln!(text, "  {entry} stays as it is: {why}");
    }
    if let Some(Ask { id, names, of }) = ask {
        let _ = writeln!(text, "  {} of {of} would be taken out, which asks for an approval ({id})", names.len());
    }
    text
}

/// Approves of what mirrors ask for.
pub(super) async fn approve(file: &Path, sink: Option<&str>) -> Result<ExitCode, Failure> {
    let plan = Plan::load(file).map_err(Failure::config)?;
    if let Some(sink) = sink.filter(|sink| !plan.sinks.get(*sink).is_some_and(Sink::is_mirror)) {
        let mirrors = plan.sinks.iter().filter(|(_, sink)| sink.is_mirror()).map(|(name, _)| name.as_str());
        let mirrors = mirrors.collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("there is no mirror {sink:?}; there are {mirrors}")));
    }
    let asks = || state::remembered(&plan.state).map(|memory| memory.asks()).map_err(Failure::run);
    let mut asked = asks()?;
    asked.retain(|mirror, _| sink.is_none_or(|sink| sink == mirror));
    if asked.is_empty() {
        return Err(Failure::run("nothing waits to be approved of"));
    }
    let approvals = Approvals::at(&plan.state);
    for (mirror, Ask { id, names, of }) in &asked {
        approvals.give(mirror, id).map_err(Failure::run)?;
        let (count, names) = (names.len(), names.join(", "));
        aside::say(format_args!("mirror {mirror}: {count} of {of} may be taken out: {names}"));
    }
    let until = Instant::now() + TAKEN_WITHIN;
    let mut now = asks()?;
    // Taken first, and then remembered, which takes a moment.
    let is_open = |(mirror, ask): (&String, &Ask), now: &BTreeMap<String, Ask>| {
        approvals.waits(mirror) || now.get(mirror).is_some_and(|now| now.id == ask.id)
    };
    while asked.iter().any(|one| is_open(one, &now)) && Instant::now() < until {
        sleep(Duration::from_millis(50)).await;
        now = asks()?;
    }
    let mut others = Vec::new();
    for mirror in asked.keys() {
        if approvals.waits(mirror) {
            aside::say(format_args!(
                "mirror {mirror}: nobody acts by {} now; it counts when somebody does",
                file.display()
            ));
        } else if let Some(ask) = now.get(mirror) {
            others.push(format!(
                "mirror {mirror}: what it asks for has changed meanwhile ({}); look, and approve again",
                ask.id
            ));
        }
    }
    if others.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::run(others.join("\n"))) }
}
