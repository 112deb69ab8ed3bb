//! The catalog of faults: failures of real clusters, run against the library, timed and checked.
//!
//! A [`Scenario`] covers one or more [`CatalogFault`]s. It runs on a [`ScenarioTarget`]: in memory and in virtual time,
//! or over TCP and TLS in real time. In virtual time, minutes of silence cost nothing, and each run is the same.
//!
//! The result is [`ScenarioFindings`]. It contains the report of the contract checker and the unmet expectations beyond
//! the contract. It also contains the cost for the server, and the times until an observer of the freshness noticed the
//! fault and the recovery. A scenario asserts nothing, so a test can also show that a scenario fails if a fault is
//! injected into the library.
//!
//! ```
//! use steadfast_testing::scenarios::{CatalogFault, ScenarioTarget, catalog};
//!
//! # fn main() -> Result<(), steadfast_testing::TestkitError> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! for scenario in catalog::of(CatalogFault::WatchEnded) {
//!     let findings = scenario.run(ScenarioTarget::in_memory(7)).await?;
//!     assert!(findings.problems().is_empty(), "{}: {:#?}", scenario.name, findings.problems());
//!     assert_eq!(findings.cost.lists, 0);
//! }
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! | module | content |
//! |---|---|
//! | `catalog_fault` | the faults by number |
//! | `scenario` | a scenario: a name, a summary, its bounds, a function |
//! | [`catalog`] | all scenarios, by family |
//! | `target` | the environment of a run, and the faults that are injected into library and server |
//! | `settings` | the settings of the server, of connections and of informers |
//! | `scenario_run` | a run: a server, a connection, informers, a recorder |
//! | `freshness_observer` | observes an informer's freshness, and records the times of its changes |
//! | `fault_injector`, `combined` | faults as switches; several concurrent faults, selected by a seed |
//! | `unread` | watches that no client reads, next to those of the informers |
//! | `checks` | expectations of a scenario beyond the contract |
//! | `findings` | the result of a run |
//! | `timeline` | the course of a run: faults, freshness, events and requests with their times |

pub mod catalog;
mod catalog_fault;
mod checks;
mod combined;
mod fault_injector;
mod findings;
mod freshness_observer;
mod scenario;
mod scenario_run;
mod settings;
mod target;
mod timeline;
mod unread;

pub use catalog_fault::CatalogFault;
pub use combined::{CombinedFindings, run_combined};
pub use findings::{Cost, ScenarioFindings};
pub use scenario::{Scenario, ScenarioBounds, ScenarioSource};
pub use settings::ScenarioSettings;
pub use target::ScenarioTarget;
pub use timeline::{
    FaultInterval, FreshnessChange, HandlerEventKind, InformerTimeline, TimedEvent, TimedRequest, Timeline,
};
