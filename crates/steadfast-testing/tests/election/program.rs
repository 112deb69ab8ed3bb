//! Program of each process: a candidate that writes to one object while it leads, and notices the end of its term
//! late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use steadfast::{Connection, kube};
use steadfast_controller::{Leader, LeaderElection};
use steadfast_core::random::Random;
use tokio::sync::watch;

use crate::process::{Mutant, Process};

/// Name of the object that leaders write to.
pub(crate) const WRITTEN_OBJECT: &str = "written";

/// End of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The program continues.
    #[default]
    None,
    /// Stops the work first, and then the election.
    WorkFirst,
    /// Stops the election while the work continues.
    ElectionFirst,
}

/// A program that runs in a process.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) process: Process,
    pub(crate) election: LeaderElection,
    pub(crate) ending: watch::Sender<Ending>,
    /// Becomes `true` when the program has ended regularly. A killed program stays `false`.
    pub(crate) has_ended: watch::Receiver<bool>,
}

/// State of a running program.
struct RunningProgram {
    process: Process,
    connection: Connection,
    election: LeaderElection,
    ending: watch::Receiver<Ending>,
    /// True if the program continues to write after it has lost the lease.
    writes_after_loss: bool,
    mutant: Option<Mutant>,
    random: Random,
}

impl Program {
    /// Runs the program in `process`.
    pub(crate) fn start(
        process: Process,
        connection: Connection,
        election: LeaderElection,
        mutant: Option<Mutant>,
        mut random: Random,
    ) -> Self {
        let (ending, ending_requests) = watch::channel(Ending::None);
        let (ended_sender, has_ended) = watch::channel(false);
        let writes_after_loss = random.draw().is_multiple_of(2);
        let running_program = RunningProgram {
            process: process.clone(),
            connection,
            election: election.clone(),
            ending: ending_requests,
            writes_after_loss,
            mutant,
            random,
        };
        process.run(async move {
            running_program.run().await;
            ended_sender.send_replace(true);
        });
        Self { process, election, ending, has_ended }
    }
}

impl RunningProgram {
    async fn run(mut self) {
        let mut term_count = 0;
        let mut ending = self.ending.clone();
        while *ending.borrow_and_update() == Ending::None {
            let leader = tokio::select! {
                biased;
                leader = self.election.until_leader() => leader,
                _ = ending.changed() => continue,
            };
            let Some(leader) = leader else { break };
            term_count += 1;
            let holder = format!("{}#{term_count}", self.election.identity());
            self.lead(&leader, &holder).await;
        }
        self.election.stop().await;
    }

    /// Writes as `holder` until the end of the term or of the program.
    async fn lead(&mut self, leader: &Leader, holder: &str) {
        let client = match self.mutant {
            Some(Mutant::OrdinaryClient) => self.connection.client(),
            _ => leader.client(),
        };
        let objects: Api<ConfigMap> = Api::namespaced(client, "default");
        let count = Arc::new(AtomicU64::new(0));
        let mut writers = Vec::new();
        for _ in 0..2 {
            let writer = Writer {
                process: self.process.clone(),
                objects: objects.clone(),
                leader: leader.clone(),
                checks_leadership: self.mutant == Some(Mutant::OrdinaryClient),
                holder: holder.to_owned(),
                count: count.clone(),
                random: Random::new(self.random.draw()),
            };
            writers.push(writer.write());
        }
        let mut ending = self.ending.clone();
        let mut work = Box::pin(futures::future::join_all(writers));
        let end_of_term = async {
            let requested_ending = tokio::select! {
                biased;
                () = leader.until_lost() => Ending::None,
                requested = ending.wait_for(|ending| *ending != Ending::None) => {
                    requested.map_or(Ending::WorkFirst, |requested| *requested)
                }
            };
            match requested_ending {
                Ending::None => {}
                Ending::WorkFirst => return,
                Ending::ElectionFirst => {
                    // Stops the election while the writers still run.
                    let election = self.election.clone();
                    self.process.run(async move {
                        election.stop().await;
                    });
                }
            }
            if self.writes_after_loss {
                self.process.pause(Duration::from_secs(30)).await;
            }
        };
        tokio::select! {
            biased;
            _ = &mut work => {}
            () = end_of_term => {}
        }
    }
}

/// Task that writes the name of its holder repeatedly.
struct Writer {
    process: Process,
    objects: Api<ConfigMap>,
    leader: Leader,
    /// `true` for an ordinary client: the writer must check the leadership before each write. The client of a term
    /// needs no such check.
    checks_leadership: bool,
    holder: String,
    count: Arc<AtomicU64>,
    random: Random,
}

impl Writer {
    async fn write(mut self) {
        loop {
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            // Some patches are large enough to fill the buffers between client and server.
            let length = if self.random.draw().is_multiple_of(8) { 40_000 } else { 20 };
            let data = json!({ "holder": self.holder, "number": number.to_string(), "filling": "x".repeat(length) });
            let patch = Patch::Merge(json!({ "data": data }));
            let timeout = self.random.between(Duration::from_millis(100), Duration::from_secs(20));
            if self.leader.is_leader() || (!self.checks_leadership && self.random.draw().is_multiple_of(2)) {
                let parameters = PatchParams::default();
                let request = self.objects.patch(WRITTEN_OBJECT, &parameters, &patch);
                tokio::select! {
                    biased;
                    _ = request => {}
                    // The writer cancels the request, and its result remains unknown.
                    () = self.process.pause(timeout) => {}
                }
            }
            let pause = self.random.between(Duration::from_millis(1), Duration::from_millis(700));
            self.process.pause(pause).await;
        }
    }
}
