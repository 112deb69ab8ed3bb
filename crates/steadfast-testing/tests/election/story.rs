//! One random history: candidates, what befalls them, and what the server has accepted in the end.

use std::time::Duration;

use steadfast_apiserver::ApiServer;
use steadfast_controller::LeaderElection;
use steadfast_core::random::Random;
use steadfast_testing::proxy::{Direction, NetworkFaults};
use steadfast_testing::{WorldError, config_map};
use tokio::time::sleep;

use crate::judge::{Reign, reigns, violations};
use crate::mishaps::{Log, REPAIR, SLOW, freeze, slow_writes};
use crate::process::{Mutant, Process};
use crate::program::{Ending, OBJECT, Program};

/// How many things befall them.
const STEPS: usize = 20;

/// What a history came to.
pub(crate) struct Told {
    pub(crate) reigns: Vec<Reign>,
    /// What must not be.
    pub(crate) problems: Vec<String>,
    /// What befell whom, with times.
    pub(crate) log: String,
}

struct Stage {
    server: ApiServer,
    http2: bool,
    mutant: Option<Mutant>,
    random: Random,
    slots: Vec<Program>,
    log: Log,
}

/// Plays what `seed` decides, with what the `mutant` lacks.
pub(crate) async fn play(seed: u64, mutant: Option<Mutant>) -> Result<Told, WorldError> {
    let mut random = Random::new(seed);
    let http2 = !random.draw().is_multiple_of(3);
    let server = ApiServer::builder().in_memory().http2(true).seed(random.draw()).start().await?;
    server.create(&config_map(OBJECT, ""))?;
    let candidates = 2 + random.draw() as usize % 3;
    let mut stage = Stage { server, http2, mutant, random, slots: Vec::new(), log: Log::new() };
    for _ in 0..candidates {
        let program = stage.start().await?;
        stage.slots.push(program);
    }
    for _ in 0..STEPS {
        let pause = stage.random.between(Duration::from_millis(1), Duration::from_secs(12));
        sleep(pause).await;
        stage.befall().await?;
    }
    stage.heal();
    let healed = stage.server.elapsed();
    sleep(REPAIR).await;
    let reigns = reigns(&stage.server);
    let mut problems = violations(&reigns);
    if reigns.last().is_none_or(|reign| reign.last <= healed + REPAIR / 2) {
        problems.push(format!("nobody leads, {REPAIR:?} after all was well: {:?}", reigns.last()));
    }
    Ok(Told { reigns, problems, log: stage.log.text })
}

impl Stage {
    async fn start(&mut self) -> Result<Program, WorldError> {
        let process = Process::start(&self.server, self.random.draw(), self.mutant);
        let connection = process.connection(&self.server, self.http2).await?;
        let builder = LeaderElection::builder(&connection, "default", "it").identity("candidate");
        let election = builder.wall_clock(process.wall_clock()).build()?;
        self.log.note(&format!("{} starts", election.identity()));
        let random = Random::new(self.random.draw());
        Ok(Program::start(process, connection, election, self.mutant, random))
    }

    /// Something befalls somebody, more often the one who leads than not.
    async fn befall(&mut self) -> Result<(), WorldError> {
        let any = self.random.draw() as usize % self.slots.len();
        let slot = self.leading().filter(|_| !self.random.draw().is_multiple_of(3)).unwrap_or(any);
        let Process { network, .. } = self.slots[slot].process.clone();
        let lasts = self.random.between(Duration::from_millis(200), Duration::from_secs(40));
        let few = self.random.draw() % 4000;
        let what = self.random.draw() % 15;
        match what {
            0 | 1 => self.partition(slot, &network, Direction::Both, lasts),
            2 | 3 => self.partition(slot, &network, Direction::ToServer, lasts),
            4 => self.partition(slot, &network, Direction::ToClient, lasts),
            5 | 6 => {
                self.log.note(&format!("{slot} is frozen for {lasts:?}"));
                freeze(&self.slots[slot].process, lasts);
            }
            7 => {
                // The worst of both: what the kernel still has goes out while nothing of the process runs.
                self.partition(slot, &network, Direction::ToServer, lasts);
                let process = self.slots[slot].process.clone();
                let soon = self.random.between(Duration::from_millis(1), Duration::from_secs(3));
                self.log.note(&format!("{slot} is frozen {soon:?} later, for {:?}", 2 * lasts));
                tokio::spawn(async move {
                    sleep(soon).await;
                    process.freeze(true);
                    sleep(2 * lasts).await;
                    process.freeze(false);
                });
            }
            8 => {
                let jump = (self.random.draw() % 2_000_000).cast_signed() - 1_000_000;
                self.log.note(&format!("the wall clock of {slot} jumps to {jump} s"));
                self.slots[slot].process.jump(jump);
            }
            9 => {
                self.log.note(&format!("{slot} loses answers after {few} bytes"));
                network.reset_after(few, Direction::ToClient);
            }
            10 => {
                self.log.note("the server restarts");
                let faults = self.server.faults().clone();
                faults.stop();
                let down = lasts / 4;
                tokio::spawn(async move {
                    sleep(down).await;
                    faults.start();
                });
            }
            11 => {
                let delay = self.random.between(Duration::ZERO, Duration::from_millis(1500));
                self.log.note(&format!("{slot} is {delay:?} away"));
                network.delay(delay);
            }
            12 => {
                let takes = self.random.between(Duration::ZERO, SLOW);
                self.log.note(&format!("the server takes {takes:?} for a write, for {lasts:?}"));
                slow_writes(&self.server, takes, lasts);
            }
            13 => {
                self.log.note(&format!("{slot} is killed"));
                self.slots[slot].process.kill();
                self.slots[slot] = self.start().await?;
            }
            _ => {
                let ending = if few.is_multiple_of(2) { Ending::InOrder } else { Ending::WithoutOrder };
                self.log.note(&format!("{slot} ends {ending:?}"));
                self.slots[slot].ending.send_replace(ending);
                let next = self.start().await?;
                let before = std::mem::replace(&mut self.slots[slot], next);
                tokio::spawn(async move {
                    // It is there as long as it takes, at most for as long as Kubernetes gives it.
                    let mut ended = before.ended.clone();
                    tokio::select! {
                        biased;
                        _ = ended.wait_for(|ended| *ended) => {}
                        () = sleep(Duration::from_secs(30)) => before.process.kill(),
                    }
                });
            }
        }
        Ok(())
    }

    fn partition(&mut self, slot: usize, network: &NetworkFaults, direction: Direction, lasts: Duration) {
        self.log.note(&format!("{slot} is cut off {direction:?} for {lasts:?}"));
        network.black_hole(direction, true);
        let network = network.clone();
        tokio::spawn(async move {
            sleep(lasts).await;
            network.black_hole(direction, false);
        });
    }

    /// Whose election says that it leads.
    fn leading(&self) -> Option<usize> {
        self.slots.iter().position(|program| program.election.is_leader())
    }

    /// All is well.
    fn heal(&mut self) {
        self.log.note("all is well");
        self.server.faults().start();
        self.server.faults().answer_truly();
        for program in &self.slots {
            program.process.network.heal();
            program.process.freeze(false);
        }
    }
}
