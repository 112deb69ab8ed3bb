//! Test kit for informers and controllers: informers on an embedded server, recorders, and a check of the contract.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steadfast::Scope;
//! use steadfast_apiserver::ApiServer;
//! use steadfast_testing::{Recorder, config_map, history, informers};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start().await?;
//! let config_maps = informers(&server).await?.informer::<ConfigMap>(Scope::all())?;
//! let recorder = Recorder::of(&server);
//! let seen = recorder.record(&config_maps);
//!
//! server.create(&config_map("a", "1"))?;
//! recorder.settle(&server).await;
//!
//! assert_eq!(seen.descriptions("default/a").len(), 1);
//! steadfast_contract::check(&history(&server, "", "configmaps")?, &recorder.trace())?;
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! | task | types |
//! |---|---|
//! | connect informers to an embedded server | [`informers`], [`connection`], [`kube_config`], [`InMemory`] |
//! | create objects | [`config_map`], [`config_map_in`], [`labelled_config_map`], [`pod`], [`widget_definition`] |
//! | record informers for the checker | [`Recorder`], [`EventRecording`], [`history()`] |
//! | check the reconciles of a controller | [`ReconcileChecker`], [`ReconcileStats`], [`ReconcileArgument`], [`Children`] |
//! | run a controller with a fault at each request | module `sweep` (feature `sweep`) |
//! | inject faults by a seed | [`FaultSchedule`] |
//! | inject faults into the network | [`proxy::FaultProxy`], [`proxy::NetworkFaults`] |
//! | run the catalog of faults | module `scenarios` (feature `scenarios`) |
//! | run on a real etcd and kube-apiserver | modules `cluster` and `reference` (feature `scenarios`) |
//! | request objects in several forms | [`CachedForm`], [`ConfigMapInForm`], [`CachedConfigMap`], [`builder_with_form`] |
//! | read a scrape of metrics | [`Exposition`], [`MetricFamily`], [`Sample`] |
//! | wait, and report errors | [`until`], [`TestkitError`] |
//!
//! # Features
//!
//! | feature | default | content |
//! |---|---|---|
//! | `scenarios` | no | the catalog of faults, and the clusters that run it |
//! | `sweep` | no | controllers with a fault at each request, in virtual time |
//! | `latest` | no | the newest version of the Kubernetes types |
//!
//! The embedded server has its default features. A test that creates a `CustomResourceDefinition` or applies objects
//! enables the features `crd` or `apply` of `steadfast-apiserver`.
//!
//! # Guides
//!
//! - [Testing](https://github.com/steadfast-rs/steadfast/blob/main/docs/testing.md) of your own informers and controllers
//! - [Embedded server](https://github.com/steadfast-rs/steadfast/blob/main/docs/embedded-server.md)
//! - [Faults](https://github.com/steadfast-rs/steadfast/blob/main/docs/faults.md): the catalog of `scenarios`
//! - [Contract](https://github.com/steadfast-rs/steadfast/blob/main/docs/contract.md): the guarantees that the checker verifies

#![cfg_attr(docsrs, feature(doc_cfg))]

mod cached_form;
mod children;
mod clients;
#[cfg(feature = "scenarios")]
pub mod cluster;
mod convert;
mod error;
mod fault_schedule;
mod history;
mod objects;
mod openmetrics;
pub mod proxy;
mod reconcile_checker;
mod recorder;
#[cfg(feature = "scenarios")]
pub mod reference;
#[cfg(feature = "scenarios")]
pub mod scenarios;
#[cfg(feature = "sweep")]
pub mod sweep;

pub use cached_form::{CachedConfigMap, CachedForm, ConfigMapInForm, InvalidForm, builder_with_form};
pub use children::Children;
pub use clients::{InMemory, TestError, connection, informers, kube_config, until};
pub use error::TestkitError;
pub use fault_schedule::FaultSchedule;
pub use history::history;
pub use objects::{config_map, config_map_in, labelled_config_map, pod, widget_definition};
pub use openmetrics::{Exposition, MetricFamily, Sample};
pub use reconcile_checker::{ReconcileArgument, ReconcileChecker, ReconcileStats};
pub use recorder::{EventRecording, Recorder};
