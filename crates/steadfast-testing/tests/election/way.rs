//! Election scheme: first candidate, or coordinated.

use std::sync::Arc;

use steadfast_apiserver::ApiServer;
use steadfast_controller::{Candidate, ElectionBreach, LeaderElection, LeaderElectionBuilder};
use steadfast_core::random::Random;
use steadfast_testing::WorldError;

use crate::coordinator::Coordinator;

/// Election scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The first candidate leads.
    First,
    /// A coordinator says who leads; candidates may break a rule.
    Named(Option<ElectionBreach>),
}

impl Way {
    /// The coordinator of `server`, where one says who leads.
    pub(crate) fn coordinator(
        self,
        server: &Arc<ApiServer>,
        seeds: &mut Random,
    ) -> Result<Option<Coordinator>, WorldError> {
        match self {
            Self::First => Ok(None),
            Self::Named(_) => Coordinator::start(server.clone(), Random::new(seeds.draw())).map(Some),
        }
    }

    /// A candidate, which stands from now on.
    pub(crate) async fn stand(
        self,
        builder: LeaderElectionBuilder,
        seeds: &mut Random,
    ) -> Result<LeaderElection, WorldError> {
        let Self::Named(breach) = self else { return Ok(builder.start()?) };
        // Some are of one version, and some emulate an older one.
        let binary = 5 + seeds.draw() % 4;
        let emulated = binary - seeds.draw() % 2;
        let candidate = Candidate::new(format!("1.{binary}.0")).emulation_version(format!("1.{emulated}.0"));
        let coordinated = builder.coordinated(candidate);
        let coordinated = match breach {
            Some(breach) => coordinated.breach(breach),
            None => coordinated,
        };
        Ok(coordinated.start().await?)
    }
}
