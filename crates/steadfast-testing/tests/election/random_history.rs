//! One random history: candidates, injected faults, and the writes that the server accepted.

use std::sync::Arc;
use std::time::Duration;

use steadfast_apiserver::ApiServer;
use steadfast_controller::LeaderElection;
use steadfast_core::random::Random;
use steadfast_testing::proxy::{Direction, NetworkFaults};
use steadfast_testing::{TestError, config_map};
use tokio::time::sleep;

use crate::coordinator::{Coordinator, LEASE};
use crate::election_scheme::ElectionScheme;
use crate::faults::{Log, MAX_RECOVERY_TIME, MAX_WRITE_DURATION, cut_off, freeze, slow_writes};
use crate::harmful_decisions::HarmfulDecisions;
use crate::process::{Mutant, Process};
use crate::program::{Ending, Program, WRITTEN_OBJECT};
use crate::write_check::{WriteRun, transfers_from_active_holders, violations, write_runs};

/// Number of injected faults.
const STEPS: usize = 20;

/// Result of a history.
pub(crate) struct HistoryResult {
    pub(crate) write_runs: Vec<WriteRun>,
    /// Number of lease transfers while the holder still acted.
    pub(crate) transfers_from_active_holders: usize,
    /// Descriptions of the violated guarantees, including a missing leader at the end.
    pub(crate) problems: Vec<String>,
    /// Injected faults with their processes and times.
    pub(crate) log: String,
}

struct HistoryRun {
    server: Arc<ApiServer>,
    http2: bool,
    scheme: ElectionScheme,
    coordinator: Option<Coordinator>,
    mutant: Option<Mutant>,
    random: Random,
    slots: Vec<Program>,
    /// Identities of ended programs.
    ended_identities: Vec<String>,
    log: Log,
}

/// Runs the history of `seed` among candidates in the election scheme `scheme`, without the protection that `mutant`
/// names.
pub(crate) async fn run_history(
    seed: u64,
    scheme: ElectionScheme,
    mutant: Option<Mutant>,
) -> Result<HistoryResult, TestError> {
    let mut random = Random::new(seed);
    let http2 = !random.draw().is_multiple_of(3);
    let server = ApiServer::builder().in_memory().http2(true).seed(random.draw()).start().await?;
    let server = Arc::new(server);
    server.create(&config_map(WRITTEN_OBJECT, ""))?;
    let candidates = 2 + random.draw() as usize % 3;
    let coordinator = scheme.coordinator(&server, &mut random)?;
    let (slots, ended_identities, log) = (Vec::new(), Vec::new(), Log::new());
    let mut history = HistoryRun { server, http2, scheme, coordinator, mutant, random, slots, ended_identities, log };
    for _ in 0..candidates {
        let program = history.start().await?;
        history.slots.push(program);
    }
    for _ in 0..STEPS {
        let pause = history.random.between(Duration::from_millis(1), Duration::from_secs(12));
        sleep(pause).await;
        if !history.run_harmful_decision().await? {
            history.inject_random_fault().await?;
        }
    }
    history.heal();
    let healed_at = history.server.elapsed();
    sleep(MAX_RECOVERY_TIME).await;
    let write_runs = write_runs(&history.server);
    let mut problems = violations(&write_runs);
    if write_runs.last().is_none_or(|run| run.last <= healed_at + MAX_RECOVERY_TIME / 2) {
        problems
            .push(format!("no candidate leads {MAX_RECOVERY_TIME:?} after the last fault: {:?}", write_runs.last()));
    }
    let transfers_from_active_holders = transfers_from_active_holders(&history.server, &write_runs);
    Ok(HistoryResult { write_runs, transfers_from_active_holders, problems, log: history.log.text })
}

impl HistoryRun {
    async fn start(&mut self) -> Result<Program, TestError> {
        let process = Process::start(&self.server, self.random.draw(), self.mutant);
        let connection = process.connection(&self.server, self.http2).await?;
        let builder = LeaderElection::builder(&connection, "default", LEASE).identity("candidate");
        let builder = builder.wall_clock(process.wall_clock());
        let election = self.scheme.start_candidate(builder, &mut self.random).await?;
        self.log.append(&format!("{} starts", election.identity()));
        let random = Random::new(self.random.draw());
        Ok(Program::start(process, connection, election, self.mutant, random))
    }

    /// Runs a harmful decision of the coordinator in half of the calls. Returns `true` if a decision ran. Without a
    /// coordinator, no decision runs.
    async fn run_harmful_decision(&mut self) -> Result<bool, TestError> {
        let Some(coordinator) = &self.coordinator else { return Ok(false) };
        if self.random.draw().is_multiple_of(2) {
            return Ok(false);
        }
        let Self { slots, ended_identities, random, log, .. } = self;
        let ending_slot =
            HarmfulDecisions { coordinator, programs: slots, ended_identities, random, log }.run_random().await?;
        if let Some(slot) = ending_slot {
            self.end(slot, Ending::WorkFirst).await?;
        }
        Ok(true)
    }

    /// Injects a random fault, more often into the leader than into other candidates.
    async fn inject_random_fault(&mut self) -> Result<(), TestError> {
        let random_slot = self.random.draw() as usize % self.slots.len();
        let slot = self.leading_slot().filter(|_| !self.random.draw().is_multiple_of(3)).unwrap_or(random_slot);
        let Process { network, .. } = self.slots[slot].process.clone();
        let duration = self.random.between(Duration::from_millis(200), Duration::from_secs(40));
        let byte_count = self.random.draw() % 4000;
        let fault = self.random.draw() % 15;
        match fault {
            0 | 1 => self.partition(slot, &network, Direction::Both, duration),
            2 | 3 => self.partition(slot, &network, Direction::ToServer, duration),
            4 => self.partition(slot, &network, Direction::ToClient, duration),
            5 | 6 => {
                self.log.append(&format!("{slot} is frozen for {duration:?}"));
                freeze(&self.slots[slot].process, duration);
            }
            7 => {
                // The worst case of a partition and a freeze: the kernel still sends buffered bytes while no task of
                // the process runs.
                self.partition(slot, &network, Direction::ToServer, duration);
                let process = self.slots[slot].process.clone();
                let delay = self.random.between(Duration::from_millis(1), Duration::from_secs(3));
                self.log.append(&format!("{slot} is frozen {delay:?} later, for {:?}", 2 * duration));
                tokio::spawn(async move {
                    sleep(delay).await;
                    process.freeze(true);
                    sleep(2 * duration).await;
                    process.freeze(false);
                });
            }
            8 => {
                let jump_seconds = (self.random.draw() % 2_000_000).cast_signed() - 1_000_000;
                self.log.append(&format!("the wall clock of {slot} is {jump_seconds} s off"));
                self.slots[slot].process.jump(jump_seconds);
            }
            9 => {
                self.log.append(&format!("{slot} loses responses after {byte_count} bytes"));
                network.reset_after(byte_count, Direction::ToClient);
            }
            10 => {
                self.log.append("the server restarts");
                let faults = self.server.faults().clone();
                faults.stop();
                let downtime = duration / 4;
                tokio::spawn(async move {
                    sleep(downtime).await;
                    faults.start();
                });
            }
            11 => {
                let delay = self.random.between(Duration::ZERO, Duration::from_millis(1500));
                self.log.append(&format!("the network delay of {slot} is {delay:?}"));
                network.delay(delay);
            }
            12 => {
                let write_delay = self.random.between(Duration::ZERO, MAX_WRITE_DURATION);
                self.log.append(&format!("the server takes {write_delay:?} for a write, for {duration:?}"));
                slow_writes(&self.server, write_delay, duration);
            }
            13 => {
                self.log.append(&format!("{slot} is killed"));
                self.slots[slot].process.kill();
                self.ended_identities.push(self.slots[slot].election.identity().to_owned());
                self.slots[slot] = self.start().await?;
            }
            _ => {
                let ending = if byte_count.is_multiple_of(2) { Ending::WorkFirst } else { Ending::ElectionFirst };
                self.end(slot, ending).await?;
            }
        }
        Ok(())
    }

    /// Ends the program in `slot`, and starts another one.
    async fn end(&mut self, slot: usize, ending: Ending) -> Result<(), TestError> {
        self.log.append(&format!("{slot} ends {ending:?}"));
        self.slots[slot].ending.send_replace(ending);
        let next = self.start().await?;
        let replaced = std::mem::replace(&mut self.slots[slot], next);
        self.ended_identities.push(replaced.election.identity().to_owned());
        tokio::spawn(async move {
            // The program may take as long as it needs, up to the grace period of Kubernetes.
            let mut has_ended = replaced.has_ended.clone();
            tokio::select! {
                biased;
                _ = has_ended.wait_for(|has_ended| *has_ended) => {}
                () = sleep(Duration::from_secs(30)) => replaced.process.kill(),
            }
        });
        Ok(())
    }

    fn partition(&mut self, slot: usize, network: &NetworkFaults, direction: Direction, duration: Duration) {
        self.log.append(&format!("{slot} is disconnected {direction:?} for {duration:?}"));
        cut_off(network, direction, duration);
    }

    /// Returns the slot of the candidate that claims to lead.
    fn leading_slot(&self) -> Option<usize> {
        self.slots.iter().position(|program| program.election.is_leader())
    }

    /// Ends all injected faults.
    fn heal(&mut self) {
        self.log.append("all faults have ended");
        self.server.faults().start();
        self.server.faults().clear_rules();
        for program in &self.slots {
            program.process.network.heal();
            program.process.freeze(false);
        }
        if let Some(coordinator) = &self.coordinator {
            coordinator.repair();
        }
    }
}
