//! The catalog of faults: failures of real clusters, run against the library, timed and checked.
//!
//! A [`Scenario`] covers one or more [`Fault`]s. It runs on a [`Target`]: in memory and in virtual time, or over TCP
//! and TLS in real time. In virtual time, minutes of silence cost nothing, and each run is the same.
//!
//! The result is [`Findings`]. It contains the report of the contract checker and the unmet expectations beyond the
//! contract. It also contains the cost for the server, and the times until an observer of the freshness noticed the
//! fault and the recovery. A scenario asserts nothing, so a test can also show that a scenario fails if a fault is
//! injected into the library.
//!
//! ```
//! use steadfast_testing::scenarios::{Fault, Target, catalog};
//!
//! # fn main() -> Result<(), steadfast_testing::Error> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! for scenario in catalog::of(Fault::WatchEnded) {
//!     let findings = scenario.run(Target::in_memory(7)).await?;
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
//! | `fault` | the faults by number |
//! | `scenario` | a scenario: a name, a summary, its bounds, a function |
//! | [`catalog`] | all scenarios, by family |
//! | `target` | the environment of a run, and the faults that are injected into library and server |
//! | `plan` | the settings of the server, of connections and of informers |
//! | `scenario_run` | a run: a server, a connection, informers, a recorder |
//! | `freshness_observer` | observes an informer's freshness, and records the times of its changes |
//! | `fault_injector`, `combined` | faults as switches; several faults at once, selected by a seed |
//! | `unread` | watches that no client reads, next to those of the informers |
//! | `checks` | expectations of a scenario beyond the contract |
//! | `findings` | the result of a run |

pub mod catalog;
mod checks;
mod combined;
mod fault;
mod fault_injector;
mod findings;
mod freshness_observer;
mod plan;
mod scenario;
mod scenario_run;
mod target;
mod unread;

pub use combined::{CombinedFindings, run_combined};
pub use fault::Fault;
pub use findings::{Cost, Findings};
pub use plan::Plan;
pub use scenario::{Bounds, Scenario, Source};
pub use target::Target;
