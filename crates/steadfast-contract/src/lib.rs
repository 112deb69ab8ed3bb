//! Checker of the informer contract: compares a recorded trace with the server's history, clause by clause.
//!
//! A [`History`] is the server's record of one resource type: every change with its version, in order. A [`Trace`] is
//! the recording of a program under test: handler calls, the contents of the cache, transitions of freshness, reads.
//! [`check`] compares both and reports each violation of a [`Clause`] (C1 to C12), with the object and the times of
//! the two contradicting facts.
//!
//! The checker shares no code with the library under test: it has its own parser of selectors, order of versions and
//! derivation of stays. It does no I/O and reads no clock, so a trace can be checked in the recording process, or
//! later.
//!
//! # Types
//!
//! | task | types |
//! |---|---|
//! | record the server's side | [`History`], [`Change`], [`Restore`] |
//! | record the program's side | [`Trace`], [`Entry`], [`Record`], [`HandlerEvent`], [`StoreContent`], [`Freshness`], [`WaitOutcome`], [`WaitTarget`] |
//! | identify objects and their states | [`Key`], [`ObjectVersionRef`], [`digest`], [`Certainty`], [`Reason`] |
//! | describe an informer's objects | [`Scope`], [`SelectorError`] |
//! | check a trace | [`check`], [`report()`], [`Bounds`] |
//! | read the result | [`CheckError`], [`Violation`], [`Clause`], [`Inconclusive`], [`Malformed`], [`Report`], [`Verdict`], [`HandlerCounts`] |
//!
//! This crate has no Cargo features.
//!
//! # Guides
//!
//! - [Contract](https://github.com/steadfast-rs/steadfast/blob/main/docs/contract.md): the clauses and their bounds
//! - [Testing](https://github.com/steadfast-rs/steadfast/blob/main/docs/testing.md) of your own informers; the crate
//!   `steadfast-testing` records traces
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use serde_json::json;
//! use steadfast_contract::{Change, Clause, HandlerEvent, History, Record, ObjectVersionRef, Scope, StoreContent,
//! Trace, check};
//!
//! let ms = Duration::from_millis;
//! let object = |version: &str, uid: &str| ObjectVersionRef::new(Some("default"), "a", uid, version);
//!
//! // "a" was created, deleted, and created again.
//! let history: History = [
//!     Change::new(5, "u1", Some("default"), "a", json!({})).at(ms(10)),
//!     Change::deleted(6, "u1", Some("default"), "a").at(ms(20)),
//!     Change::new(7, "u2", Some("default"), "a", json!({})).at(ms(30)),
//! ]
//! .into_iter()
//! .collect();
//!
//! // The handler received an update instead.
//! let mut trace = Trace::new();
//! trace.record(ms(0), Record::informer("pods", Scope::all()));
//! trace.record(ms(0), Record::registered("h", "pods"));
//! let added = HandlerEvent::Added { object: object("5", "u1"), initial: false };
//! trace.record(ms(15), Record::entered("h", 1, added, StoreContent::NotRead));
//! trace.record(ms(16), Record::returned("h", 1));
//! let updated = HandlerEvent::Updated { old: object("5", "u1"), new: object("7", "u2") };
//! trace.record(ms(40), Record::entered("h", 2, updated, StoreContent::NotRead));
//! trace.record(ms(41), Record::returned("h", 2));
//!
//! let error = check(&history, &trace).unwrap_err();
//! assert!(error.violations_of(Clause::C1).next().is_some());
//! ```

mod bounds;
mod clause;
mod clauses;
mod counts;
mod entry_points;
mod history;
mod nanos;
mod objects;
mod parsed_trace;
mod scope;
mod selector;
mod sufficiency;
mod trace;
mod verdict;
mod view;
mod violation;

pub use bounds::Bounds;
pub use clause::Clause;
pub use entry_points::{check, report};
pub use history::{Change, History, Restore};
pub use objects::{Certainty, HandlerEvent, Key, ObjectVersionRef, Reason, StoreContent, digest};
pub use scope::Scope;
pub use selector::SelectorError;
pub use trace::{Entry, Freshness, Record, Trace, WaitOutcome, WaitTarget};
pub use verdict::{HandlerCounts, Report, Verdict};
pub use violation::{CheckError, Inconclusive, Malformed, Violation};

/// The contract page for users. The attribute runs its example as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/contract.md")]
struct ContractPage;
