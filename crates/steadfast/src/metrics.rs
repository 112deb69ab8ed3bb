//! Prometheus metrics of connections, informers and handlers.
//!
//! Each event costs one relaxed atomic addition, also without the feature. Ages are computed during a scrape, by the
//! scraping thread's own clock. A gauge updated by the program would silently become stale in a hanging program.
//! Informers, handlers and connections that have ended are missing from the next scrape.
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
//! | module | content |
//! |---|---|
//! | `call_durations` | histogram of the durations of a handler's calls |
//! | `informer_counters` | counters of one informer |
//! | `request_metrics` | results of an informer's requests, reported to its counters |
//! | `pool_counters` | counters of one connection pool |
//! | `register` | items by label, with ordinals for equal labels |
//! | `observed` | weak references to the running informers, and their current states; `unobserved` without the feature |
//! | `collector`, `families`, `samples` | encoding as Prometheus metric families |

pub(crate) mod informer_counters;
pub(crate) mod pool_counters;
pub(crate) mod request_metrics;

#[cfg(feature = "metrics")]
pub(crate) mod call_durations;
#[cfg(feature = "metrics")]
mod collector;
#[cfg(feature = "metrics")]
mod families;
#[cfg_attr(not(feature = "metrics"), path = "metrics/unobserved.rs")]
pub(crate) mod observed;
#[cfg(feature = "metrics")]
mod register;
#[cfg(feature = "metrics")]
mod samples;

#[cfg(feature = "metrics")]
pub use collector::Metrics;
