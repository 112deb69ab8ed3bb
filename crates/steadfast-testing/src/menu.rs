//! The menu of faults: what goes wrong in clusters, played against the library, dated and judged.
//!
//! A [`Scenario`] tells of one or more [`Fault`]s. It plays on a [`Ground`]: in memory in virtual time, where minutes of
//! silence cost nothing and each run is the same, or over TCP and TLS in real time. What it finds are [`Findings`]: what
//! the checker of the contract says, when an observer that sees nothing but an informer's freshness noticed, when
//! everything was there again, what it cost the server, and what was expected beyond the contract and not met. It
//! asserts nothing itself, so that a library that is broken on purpose can be seen to fail.
//!
//! ```
//! use steadfast_testing::menu::{Fault, Ground, scenarios};
//!
//! # fn main() -> Result<(), steadfast_testing::menu::Trouble> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! for scenario in scenarios::of(Fault::WatchEnded) {
//!     let findings = scenario.play(Ground::in_memory(7)).await?;
//!     assert!(findings.problems().is_empty(), "{}: {:#?}", scenario.name, findings.problems());
//!     assert_eq!(findings.cost.lists, 0);
//! }
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! | room | what it is |
//! |---|---|
//! | `fault` | the faults by number |
//! | `scenario` | what a scenario is: a name, a summary, its bounds, a function |
//! | [`scenarios`] | all of them, by family |
//! | `ground` | where they play, and what is broken there on purpose |
//! | `plan` | with what they are played: settings of the server, of connections and of informers |
//! | `stage` | one under way: a server, a connection, informers, a recorder |
//! | `onlooker` | sees nothing but an informer's freshness, and dates its changes |
//! | `strike`, `together` | faults as switches; several of them at once, as a seed says |
//! | `unread` | watches that nobody reads, beside the informers' |
//! | `checks` | what a scenario expects beside the contract |
//! | `findings` | what came of it |

mod checks;
mod fault;
mod findings;
mod ground;
mod onlooker;
mod plan;
mod scenario;
pub mod scenarios;
mod stage;
mod strike;
mod together;
mod unread;

pub use fault::Fault;
pub use findings::{Cost, Findings};
pub use ground::Ground;
pub use plan::Plan;
pub use scenario::{Bounds, Scenario, Source, Trouble};
pub use together::{Together, together};
