//! Election scheme: first candidate, or coordinated.

use std::sync::Arc;

use steadfast_apiserver::ApiServer;
use steadfast_controller::{CandidateVersions, InjectedElectionFault, LeaderElection, LeaderElectionBuilder};
use steadfast_core::random::Random;
use steadfast_testing::TestError;

use crate::coordinator::Coordinator;

/// Election scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElectionScheme {
    /// The first candidate leads.
    FirstCandidate,
    /// A coordinator chooses the leader. With an injected fault, the candidates violate a rule of the protocol.
    Coordinated(Option<InjectedElectionFault>),
}

impl ElectionScheme {
    /// Starts the coordinator of `server`, in the coordinated scheme.
    pub(crate) fn coordinator(
        self,
        server: &Arc<ApiServer>,
        seeds: &mut Random,
    ) -> Result<Option<Coordinator>, TestError> {
        match self {
            Self::FirstCandidate => Ok(None),
            Self::Coordinated(_) => Coordinator::start(server.clone(), Random::new(seeds.draw())).map(Some),
        }
    }

    /// Starts a candidate.
    pub(crate) async fn start_candidate(
        self,
        builder: LeaderElectionBuilder,
        seeds: &mut Random,
    ) -> Result<LeaderElection, TestError> {
        let Self::Coordinated(fault) = self else { return Ok(builder.start()?) };
        // Versions differ, and some candidates emulate the previous version.
        let binary_version = 5 + seeds.draw() % 4;
        let emulation_version = binary_version - seeds.draw() % 2;
        let candidate = CandidateVersions::new(format!("1.{binary_version}.0"))
            .emulation_version(format!("1.{emulation_version}.0"));
        let builder = builder.coordinated(candidate);
        let builder = match fault {
            Some(fault) => builder.inject_fault(fault),
            None => builder,
        };
        Ok(builder.start().await?)
    }
}
