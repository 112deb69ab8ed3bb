//! Churn for hours: whether memory stays flat, and the cache true.
//!
//! Objects are modified, deleted and created again as fast as the client takes it; its connections are cut and its version
//! expires now and then, and twice in the warm-up its handler stands still while all changes. What it holds is compared with
//! what the server has, every byte of every object, when it has warmed up and at the end; so is its memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::contestant::{self, Team};
use super::number::number;
use super::place::Place;
use super::process::{Process, control};
use crate::Trouble;

/// How long the churn goes on, and of what.
#[derive(clap::Args)]
pub(crate) struct SoakArgs {
    /// How many objects there are at most; an eighth of them is gone at a time.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// After how many events it ends, unless time is up before.
    #[arg(long, default_value_t = 100_000_000)]
    events: usize,
    /// After how many minutes it ends, unless there were enough events before.
    #[arg(long, default_value_t = 120.0)]
    minutes: f64,
    /// How many events a second there are at most, so that the machine has time for something else.
    #[arg(long, default_value_t = f64::INFINITY)]
    rate: f64,
    /// Who is the client, by the name in the tables.
    #[arg(long, default_value = "steadfast, JSON, streamed")]
    contestant: String,
    /// What decides the generated data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the data go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// So many events at most are made before the client is waited for.
const BATCH: usize = 10_000;

/// Into so many batches at least the whole is cut.
const BATCHES: usize = 100;

/// After so many batches all connections are cut: later than a stream counts as healthy, or the patience with a server that
/// keeps breaking (R6) is most of what is measured.
const CUT: usize = 64;

/// After so many batches the version expires, and the client has to relist.
const EXPIRE: usize = 50;

/// The part of the run in which caches and allocator may grow.
const WARM_UP: f64 = 0.1;

/// By what part of itself memory may have grown since.
const FLAT: f64 = 0.03;

/// With fewer events after the warm-up, memory says nothing: an allocator takes as long to find its shape.
const TELLING: usize = 1_000_000;

/// So many times as many changes as there are objects are made while the handler stands still: each changes more than once.
const STALLED: usize = 4;

/// How long memory may settle before it is measured.
const SETTLE: Duration = Duration::from_secs(5);

const MINUTE: Duration = Duration::from_mins(1);

/// Churns, and fails where the client's memory has grown or its cache is not what the server has.
pub(crate) async fn run(args: SoakArgs) -> Result<(), Trouble> {
    let place = Place::prepare(&args.out, args.seed, None).await?;
    let data = place.generate(args.objects).await?;
    let kubeconfig = place.out.join("kubeconfig-soak");
    let (_server, address) = Process::serve(args.objects, &data, &kubeconfig).await?;
    let contestant = contestant::named(&args.contestant)?;
    let mut client = Process::start(contestant.command(&place.programs, &kubeconfig, args.objects)?)?;
    client.answer("synced").await?;
    place.say(&format!("{}: {} objects are synced", contestant.name, number(args.objects as f64)));
    let soak =
        Soak { args, place, address, team: contestant.team, client, begun: Instant::now(), events: 0, batches: 0 };
    soak.run().await
}

struct Soak {
    args: SoakArgs,
    place: Place,
    address: String,
    team: Team,
    client: Process,
    begun: Instant,
    events: usize,
    batches: usize,
}

impl Soak {
    async fn run(mut self) -> Result<(), Trouble> {
        self.stall().await?;
        self.churn(WARM_UP).await?;
        self.stall().await?;
        let warm = self.settled().await?;
        let events = self.events;
        self.place.say(&format!("warm: {} MB, and the cache is true", number(warm / 1e6)));
        self.churn(1.0).await?;
        let end = self.settled().await?;
        let growth = end / warm - 1.0;
        let told = format!(
            "{} events: the cache is true; memory {} MB, {:+.1} % since the warm-up",
            number(self.events as f64),
            number(end / 1e6),
            growth * 100.0
        );
        if self.events - events < TELLING {
            self.place
                .say(&format!("passed. {told}, which is not judged: fewer than {} events", number(TELLING as f64)));
        } else if growth > FLAT {
            return Err(format!("FAILED. {told}: no more than {:.0} % are granted", FLAT * 100.0).into());
        } else {
            self.place.say(&format!("passed. {told}"));
        }
        Ok(())
    }

    /// Has the client keep the most that it ever can: its handler stands still until every object has changed.
    ///
    /// However rarely that happens by itself, an allocator keeps what it once was given. From then on nothing may be added.
    async fn stall(&mut self) -> Result<(), Trouble> {
        if self.team != Team::Steadfast {
            // The others' caches stand still with their handlers, or have no bound to what waits.
            return Ok(());
        }
        self.client.ask("stall").await?;
        let count = STALLED * self.args.objects;
        let version = control(&self.address, &format!("churn {count}")).await?;
        // The cache goes on without the handler.
        let begun = Instant::now();
        while self.client.strays(&self.address).await?.is_some() {
            if begun.elapsed() > MINUTE {
                return Err("FAILED. While the handler stood still the cache did not become what the server has".into());
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.client.ask("go-on").await?;
        self.client.ask(&format!("reached {version}")).await?;
        self.events += count;
        Ok(())
    }

    /// Goes on until that part of the whole is over, and says a line a minute.
    async fn churn(&mut self, part: f64) -> Result<(), Trouble> {
        let (mut told, mut before) = (Instant::now(), self.events);
        while self.part() < part {
            self.batch().await?;
            if told.elapsed() >= MINUTE {
                let rate = (self.events - before) as f64 / told.elapsed().as_secs_f64();
                let resident = self.resident().await?;
                self.place.say(&format!(
                    "{} events, {} a second; {} MB",
                    number(self.events as f64),
                    number(rate),
                    number(resident / 1e6)
                ));
                (told, before) = (Instant::now(), self.events);
            }
        }
        Ok(())
    }

    /// Which part of the whole is over.
    fn part(&self) -> f64 {
        let time = self.begun.elapsed().as_secs_f64() / (self.args.minutes * 60.0);
        time.max(self.events as f64 / self.args.events as f64)
    }

    /// Some events, of which the client sees the last before there are more.
    async fn batch(&mut self) -> Result<(), Trouble> {
        self.batches += 1;
        let count = (self.args.events / BATCHES).clamp(1, BATCH);
        let word = if self.batches.is_multiple_of(EXPIRE) { "churn-and-expire" } else { "churn" };
        let version = control(&self.address, &format!("{word} {count}")).await?;
        if self.batches.is_multiple_of(CUT) {
            control(&self.address, "cut").await?;
        }
        self.client.ask(&format!("reached {version}")).await?;
        self.events += count;
        let due = Duration::try_from_secs_f64(self.events as f64 / self.args.rate)
            .map_err(|_| format!("--rate {} is no number of events a second", self.args.rate))?;
        sleep(due.saturating_sub(self.begun.elapsed())).await;
        Ok(())
    }

    /// What is resident once all is quiet and the cache was found to be true.
    async fn settled(&mut self) -> Result<f64, Trouble> {
        if let Some(objects) = self.client.strays(&self.address).await? {
            let events = number(self.events as f64);
            return Err(format!(
                "FAILED. After {events} events the {objects} objects of the cache are not the server's"
            )
            .into());
        }
        sleep(SETTLE).await;
        self.resident().await
    }

    async fn resident(&mut self) -> Result<f64, Trouble> {
        let memory = self.client.ask("memory").await?;
        memory["resident"].as_f64().ok_or_else(|| Value::to_string(&memory).into())
    }
}
