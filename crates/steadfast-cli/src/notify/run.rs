//! Acts until requested to stop; reads its configuration anew when requested.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use steadfast_notify::sink::Stream;
use steadfast_notify::sink::stdout::Lines;
use steadfast_notify::{Engine, Openings, Plan};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::doubts::{Doubts, LOOK_EVERY};
use super::follow::{Followed, follow, forget_rules, views};
use super::mirrors::Mirrors;
use super::places::{PATIENCE, Places, connected, keep, sources};
use super::standing::{Known, Looking, Standing};
use crate::aside;
use crate::cli::NotifyArgs;
use crate::endpoint;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::signals::{Again, Stop};

/// How long the embedded fleet is shown.
const SHOWN: Duration = Duration::from_secs(10);

/// Why nothing more is acted on.
enum End {
    /// It was requested, or is over.
    Done,
    /// Standard output cannot be written to.
    Output(io::Error),
}

/// All that is at work.
struct Acting {
    file: PathBuf,
    plan: Plan,
    fleet: Option<Fleet>,
    stdout: Arc<dyn Stream>,
    places: Places,
    engine: Engine,
    followed: Vec<Followed>,
    mirrors: Mirrors,
    standing: Standing,
}

/// Acts by the configuration until requested to stop.
pub(super) async fn run(args: NotifyArgs) -> Result<ExitCode, Failure> {
    let mut stop = Stop::listen()?;
    let mut again = Again::listen()?;
    let file = args.config.unwrap_or_default();
    let (closed, mut output) = unbounded_channel();
    let stdout = Lines::new(io::stdout(), move |error| drop(closed.send(error)));
    let began = tokio::select! {
        biased;
        () = stop.told() => return Ok(ExitCode::SUCCESS),
        began = Acting::begin(file, args.embedded, args.metrics, Arc::new(stdout)) => began,
    };
    let mut acting = began?;
    let lasts = args.lasts.map(Duration::from_secs).or(args.embedded.then_some(SHOWN));
    let ended = acting.until_the_end(&mut stop, &mut again, &mut output, lasts).await;
    if let End::Output(error) = ended {
        // Whoever closed the pipe does not want the rest.
        return match error.kind() {
            ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            _ => Err(Failure::run(format!("standard output cannot be written to: {error}"))),
        };
    }
    acting.finish(Duration::from_secs(args.drain), &mut stop).await
}

impl Acting {
    async fn begin(
        file: PathBuf,
        embedded: bool,
        metrics: Option<SocketAddr>,
        stdout: Arc<dyn Stream>,
    ) -> Result<Self, Failure> {
        let plan = load(&file)?;
        let streams = plan.open(&stdout).await.map_err(Failure::config)?;
        let openings = Openings::of(&plan).await.map_err(Failure::config)?;
        let mut mirrors = Mirrors::new(embedded);
        mirrors.prepare(&plan, &openings)?;
        let standing = Standing::default();
        if let Some(address) = metrics {
            let address = endpoint::serve(address, standing.clone()).await?;
            if let Some(state) = mirrors.state() {
                state.tells_at(address).map_err(Failure::run)?;
            }
        }
        let fleet = if embedded { Some(Fleet::start(None).await?) } else { None };
        let mut places = connected(&plan, fleet.as_ref(), Places::new(), None).await?;
        if let Some(state) = mirrors.state().filter(|_| plan.keeps) {
            keep(&mut places, state)?;
        }
        let sources = sources(&plan, &places).await.map_err(Failure::config)?;
        let engine = Engine::start(&plan, streams, seed(), aside::say);
        let (rules, sinks) = (plan.rules.len(), plan.sinks.len());
        aside::say(format_args!("acting by {}: {rules} rules, {sinks} sinks", file.display()));
        let followed = follow(&plan, &places, &engine, Vec::new(), sources.clone())?;
        let views = views(&plan, &places, &sources)?;
        mirrors.keep(openings, views).await;
        let acting = Self { file, plan, fleet, stdout, places, engine, followed, mirrors, standing };
        acting.tell_standing();
        Ok(acting)
    }

    fn tell_standing(&self) {
        self.standing.is(Known {
            engine: self.engine.clone(),
            connections: self.places.values().map(|place| place.connection.clone()).collect(),
            sources: self.followed.iter().map(Looking::from).collect(),
            mirrors: self.mirrors.standing(),
        });
    }

    async fn until_the_end(
        &mut self,
        stop: &mut Stop,
        again: &mut Again,
        output: &mut UnboundedReceiver<io::Error>,
        lasts: Option<Duration>,
    ) -> End {
        let mut doubts = Doubts::default();
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let over = async {
            match lasts {
                Some(lasts) => sleep(lasts).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = stop.told() => return End::Done,
                Some(error) = output.recv() => return End::Output(error),
                () = &mut over => return End::Done,
                () = again.told() => {
                    match self.reload(stop).await {
                        Ok(true) => {}
                        Ok(false) => return End::Done,
                        Err(why) => aside::say(format_args!("the configuration stays as it was: {why}")),
                    }
                }
                _ = look.tick() => {
                    doubts.look(&self.followed);
                    forget_rules(&self.followed);
                }
            }
        }
    }

    /// Reads the configuration anew, all of it before anything is changed. Tells whether to go on: it may be requested to
    /// stop while a server is waited for.
    async fn reload(&mut self, stop: &mut Stop) -> Result<bool, Failure> {
        let plan = load(&self.file)?;
        let dead_letters = |plan: &Plan| (plan.dead_letters.clone(), plan.most_dead_letters);
        if dead_letters(&plan) != dead_letters(&self.plan) {
            return Err(Failure::config("dead letters are moved by a restart alone; leave `dead_letters` as it was"));
        }
        if (&plan.state, plan.keeps) != (&self.plan.state, self.plan.keeps) {
            return Err(Failure::config("the state is moved by a restart alone; leave `state` as it was"));
        }
        let before = &self.plan.clusters;
        let differs = plan.clusters.iter().find(|(name, now)| {
            before.get(*name).is_some_and(|before| before.is_same_place(now) && before.audit != now.audit)
        });
        if let Some((name, _)) = differs {
            let why = "is changed by a restart alone; leave it as it was";
            return Err(Failure::config(format!("`clusters.{name}.audit` {why}")));
        }
        let streams = plan.open(&self.stdout).await.map_err(Failure::config)?;
        let openings = Openings::of(&plan).await.map_err(Failure::config)?;
        self.mirrors.prepare(&plan, &openings)?;
        // Connections are cheap to clone; those that are needed no more end with what is dropped below.
        let before = self.places.iter().map(|(name, place)| (name.clone(), place.again())).collect();
        let asked = async {
            let places = connected(&plan, self.fleet.as_ref(), before, Some(PATIENCE)).await?;
            let sources = sources(&plan, &places).await.map_err(Failure::config)?;
            Ok::<_, Failure>((places, sources))
        };
        let (mut places, sources) = tokio::select! {
            biased;
            () = stop.told() => return Ok(false),
            asked = asked => asked?,
        };
        if let Some(state) = self.mirrors.state().filter(|_| plan.keeps) {
            keep(&mut places, state)?;
        }
        // A cluster that is another one now is looked at anew.
        let is_kept = |name: &str| match (self.places.get(name), places.get(name)) {
            (Some(before), Some(now)) => before.is(now),
            _ => false,
        };
        let views = views(&plan, &places, &sources)?;
        self.followed.retain(|followed| is_kept(&followed.source.cluster));
        self.places = places;
        self.plan = plan;
        self.engine.act_by(&self.plan, streams);
        let before = std::mem::take(&mut self.followed);
        self.followed = follow(&self.plan, &self.places, &self.engine, before, sources)?;
        self.mirrors.keep(openings, views).await;
        self.tell_standing();
        let (rules, sinks) = (self.plan.rules.len(), self.plan.sinks.len());
        aside::say(format_args!("acting by {} as it is now: {rules} rules, {sinks} sinks", self.file.display()));
        Ok(true)
    }

    /// Looks at nothing more, and delivers what waits.
    async fn finish(mut self, deadline: Duration, stop: &mut Stop) -> Result<ExitCode, Failure> {
        self.mirrors.stop().await;
        let until = Instant::now() + deadline;
        let drained = async {
            // Also what they are owed is told, and what is settled is written down.
            let factories = self.places.values().map(|place| place.lookout.factory.shutdown_drained(deadline));
            join_all(factories).await;
            self.engine.drain(until.saturating_duration_since(Instant::now())).await
        };
        let left = tokio::select! {
            biased;
            // Whoever asks twice is in a hurry.
            () = stop.told() => self.engine.drain(Duration::ZERO).await,
            left = drained => left,
        };
        let counts = self.engine.counts();
        let sum = |of: fn(&steadfast_notify::SinkCounts) -> u64| counts.sinks.values().map(of).sum::<u64>();
        let (delivered, dead) = (sum(|sink| sink.delivered), sum(|sink| sink.given_up));
        let (changes, failed) = (counts.changes, counts.failed.values().sum::<u64>());
        let unchanged = counts.unchanged;
        aside::say(format_args!(
            "{changes} changes looked at, {delivered} messages delivered, {unchanged} not sent again since nothing in them \
             changed, {dead} dead letters, {failed} failed expressions"
        ));
        if left > 0 {
            let rest = if self.plan.keeps && self.mirrors.state().is_some() {
                "the next start sends them; --drain gives them longer"
            } else {
                "--drain gives them longer"
            };
            let why = format!("{left} messages were not delivered within {} s; {rest}", deadline.as_secs());
            return Err(Failure::run(why));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn load(file: &Path) -> Result<Plan, Failure> {
    Plan::load(file).map_err(Failure::config)
}

/// A number that nobody expects, so that many programs that were started together do not try again together.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
