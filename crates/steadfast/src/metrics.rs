//! Metrics: what connections, informers and handlers have done and how they are, as a scrape of Prometheus reads them.
//!
//! Counting costs one relaxed addition where something happens, and is always done. Everything that has an age is
//! computed when it is requested, by the scraping thread's own clock: a gauge that is pushed would itself be silently
//! stale where the program hangs. Informers, handlers and connections that are gone are gone from the next scrape.
//!
//! With the feature `metrics`:
//!
//! ```no_run
//! # #[cfg(feature = "metrics")]
//! # fn example(connection: &steadfast::Connection) -> Result<String, std::fmt::Error> {
//! let mut registry = prometheus_client::registry::Registry::default();
//! registry.register_collector(Box::new(steadfast::metrics::Metrics::new([connection])));
//!
//! // At each scrape, to be served as `application/openmetrics-text; version=1.0.0; charset=utf-8`:
//! let mut text = String::new();
//! prometheus_client::encoding::text::encode(&mut text, &registry)?;
//! # Ok(text)
//! # }
//! ```
//!
//! | room | what it is |
//! |---|---|
//! | `counted` | the counters of one informer |
//! | `ledger` | what became of each of an informer's requests, reported to its counters |
//! | `traffic` | the counters of one connection's pool |
//! | `register` | items by their labels, numbered where those are the same |
//! | `observed` | which informers there are, by weak references, and how they are now |
//! | `collector`, `families`, `samples` | all of it as families of Prometheus |

pub(crate) mod counted;
pub(crate) mod ledger;
pub(crate) mod traffic;

#[cfg(feature = "metrics")]
mod collector;
#[cfg(feature = "metrics")]
mod families;
#[cfg(feature = "metrics")]
pub(crate) mod observed;
#[cfg(feature = "metrics")]
mod register;
#[cfg(feature = "metrics")]
mod samples;

#[cfg(feature = "metrics")]
pub use collector::Metrics;
