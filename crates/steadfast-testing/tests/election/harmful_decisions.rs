//! Harmful decisions of a coordinator: transfers of the lease while its holder acts, at the worst times.

use std::time::Duration;

use steadfast_core::random::Random;
use steadfast_testing::TestError;
use steadfast_testing::proxy::Direction;
use tokio::time::sleep;

use crate::coordinator::{Coordinator, MAX_WALL_CLOCK_ERROR_SECONDS};
use crate::faults::{Log, cut_off};
use crate::program::Program;

/// Source of harmful decisions.
pub(crate) struct HarmfulDecisions<'a> {
    pub(crate) coordinator: &'a Coordinator,
    pub(crate) programs: &'a [Program],
    /// Identities of ended programs, which the coordinator may mistake for running ones.
    pub(crate) ended_identities: &'a [String],
    pub(crate) random: &'a mut Random,
    pub(crate) log: &'a mut Log,
}

impl HarmfulDecisions<'_> {
    /// Runs a random decision. Returns the slot of a program that must end now, if any.
    pub(crate) async fn run_random(mut self) -> Result<Option<usize>, TestError> {
        let coordinator = self.coordinator.clone();
        if self.random.draw().is_multiple_of(2) {
            self.wait_for_a_leader().await;
        }
        let holder = self.holder()?;
        let other = self.other_than(holder);
        let duration = self.random.between(Duration::from_millis(200), Duration::from_secs(40));
        match self.random.draw() % 13 {
            0 | 1 => self.give(other)?,
            2 => {
                // Both transfers may happen between two reads of the lease by a candidate.
                self.give(other)?;
                sleep(self.random.between(Duration::ZERO, Duration::from_secs(2))).await;
                self.give(holder.unwrap_or(other))?;
            }
            3 => {
                self.give(other)?;
                if self.random.draw().is_multiple_of(2) {
                    sleep(self.random.between(Duration::ZERO, Duration::from_secs(4))).await;
                }
                let third = self.other_than(Some(other));
                self.give(third)?;
            }
            4 => self.recreate_lease(other).await?,
            5 => {
                let unknown_identity = "nobody".to_owned();
                let index = self.random.draw() as usize % self.ended_identities.len().max(1);
                let ended_identity = self.ended_identities.get(index).unwrap_or(&unknown_identity).clone();
                if self.random.draw().is_multiple_of(2) {
                    self.log.append(&format!("the lease is given to {ended_identity}, which has ended"));
                    coordinator.give(&ended_identity)?;
                } else if coordinator.holder()?.is_some() {
                    self.log.append(&format!("the coordinator prefers {ended_identity}, which has ended"));
                    coordinator.prefer(&ended_identity)?;
                }
            }
            6 => {
                self.log.append(&format!("the coordinator is suspended for {duration:?}"));
                coordinator.suspend_for(duration);
            }
            7 => {
                let jump_seconds = (self.random.draw() % (2 * MAX_WALL_CLOCK_ERROR_SECONDS.unsigned_abs()))
                    .cast_signed()
                    - MAX_WALL_CLOCK_ERROR_SECONDS;
                self.log.append(&format!("the wall clock of the coordinator jumps to {jump_seconds} s"));
                coordinator.jump(jump_seconds);
            }
            8 => {
                if coordinator.holder()?.is_some() {
                    self.log.append(&format!("the coordinator prefers {other}"));
                    coordinator.prefer(self.programs[other].election.identity())?;
                }
            }
            9 | 10 => return self.give_through_ended_program(holder, other).await,
            _ => {
                // The returning candidate may be the previous leader.
                let candidate = holder.filter(|_| self.random.draw().is_multiple_of(2)).unwrap_or(other);
                self.give_to_returning_candidate(candidate, duration.max(Duration::from_secs(12)));
            }
        }
        Ok(None)
    }

    /// Waits up to 20 s for a leader, because decisions are most harmful while a leader acts.
    async fn wait_for_a_leader(&self) {
        for _ in 0..20 {
            if self.programs.iter().any(|program| program.election.is_leader()) {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Returns the slot of the lease holder, if its program runs.
    fn holder(&self) -> Result<Option<usize>, TestError> {
        let holder = self.coordinator.holder()?;
        let is_holder = |program: &Program| holder.as_deref() == Some(program.election.identity());
        Ok(self.programs.iter().position(is_holder))
    }

    fn other_than(&mut self, slot: Option<usize>) -> usize {
        let count = self.programs.len();
        let step = self.random.draw() as usize;
        slot.map_or(step % count, |slot| (slot + 1 + step % (count - 1)) % count)
    }

    fn give(&mut self, to: usize) -> Result<(), TestError> {
        self.log.append(&format!("the lease is given to {to}"));
        self.coordinator.give(self.programs[to].election.identity())
    }

    /// Deletes the lease, and gives a new lease of the same name to `to`.
    async fn recreate_lease(&mut self, to: usize) -> Result<(), TestError> {
        // A candidate that has never seen the lease cannot know its holder. The protocol does not protect from this
        // case.
        if self.programs.iter().any(|program| program.election.holder().is_none())
            || self.coordinator.holder()?.is_none()
        {
            return Ok(());
        }
        self.log.append("the lease is deleted");
        self.coordinator.delete()?;
        if self.random.draw().is_multiple_of(2) {
            sleep(self.random.between(Duration::ZERO, Duration::from_secs(4))).await;
        }
        self.give(to)
    }

    /// Gives the lease to `other` while the holder is disconnected. Then ends `other` before it leads, and gives the
    /// lease to a third candidate. The third candidate must wait for the first holder too, and not only for `other`.
    async fn give_through_ended_program(
        &mut self,
        holder: Option<usize>,
        other: usize,
    ) -> Result<Option<usize>, TestError> {
        if let Some(holder) = holder {
            let duration = self.random.between(Duration::from_secs(5), Duration::from_secs(15));
            let direction = if self.random.draw().is_multiple_of(4) { Direction::Both } else { Direction::ToClient };
            self.log.append(&format!("{holder} is disconnected {direction:?} for {duration:?}"));
            cut_off(&self.programs[holder].process.network, direction, duration);
        }
        self.give(other)?;
        // In most cases, `other` has acquired the lease by then.
        sleep(self.random.between(Duration::from_secs(1), Duration::from_secs(3))).await;
        let third = (0..self.programs.len()).find(|third| *third != other && Some(*third) != holder);
        if let Some(third) = third {
            let delay = self.random.between(Duration::from_millis(100), Duration::from_secs(1));
            self.log.append(&format!("the lease is given to {third} in {delay:?}"));
            let third = self.programs[third].election.identity().to_owned();
            let coordinator = self.coordinator.clone();
            tokio::spawn(async move {
                sleep(delay).await;
                if !coordinator.is_repaired() {
                    coordinator.give(&third).expect("the embedded server accepts a coordinator's writes");
                }
            });
        }
        Ok(Some(other))
    }

    /// Disconnects a candidate until its last observation of the holder is outdated. After the reconnect, gives the
    /// candidate the current or a new lease, and hides this from the holder.
    fn give_to_returning_candidate(&mut self, candidate: usize, duration: Duration) {
        let program = self.programs[candidate].clone();
        let deletes_lease = self.random.draw().is_multiple_of(2) && program.election.holder().is_some();
        let on_return = if deletes_lease { "given another" } else { "given the lease" };
        self.log.append(&format!("{candidate} is disconnected for {duration:?}, and {on_return} then"));
        let networks = self.programs.iter().map(|program| (program.election.clone(), program.process.network.clone()));
        let networks: Vec<_> = networks.collect();
        let holder_cut = self.random.between(Duration::ZERO, Duration::from_secs(12));
        let delay = self.random.between(Duration::ZERO, Duration::from_secs(1));
        let coordinator = self.coordinator.clone();
        cut_off(&program.process.network, Direction::Both, duration + delay);
        tokio::spawn(async move {
            sleep(duration).await;
            let Some(holder) = coordinator
                .holder()
                .expect("the embedded server returns the lease")
                .filter(|_| !coordinator.is_repaired())
            else {
                return;
            };
            let holder_network = networks.iter().find(|(election, _)| election.identity() == holder);
            if let Some((_, network)) = holder_network.filter(|_| holder != program.election.identity()) {
                cut_off(network, Direction::ToClient, holder_cut);
            }
            if deletes_lease {
                coordinator.delete().expect("the embedded server has the lease");
            }
            coordinator.give(program.election.identity()).expect("the embedded server accepts a coordinator's writes");
        });
    }
}
