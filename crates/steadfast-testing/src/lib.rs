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
//! assert_eq!(seen.in_words("default/a").len(), 1);
//! steadfast_contract::check(&history(&server, "", "configmaps")?, &recorder.trace())?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod children;
pub mod cluster;
mod convert;
mod error;
mod fault_schedule;
mod form;
mod history;
mod objects;
mod openmetrics;
pub mod proxy;
mod reconcile_checker;
mod recorder;
pub mod reference;
pub mod scenarios;
#[cfg(feature = "sweep")]
pub mod sweep;
mod world;

pub use children::Children;
pub use error::Error;
pub use fault_schedule::FaultSchedule;
pub use form::{CachedConfigMap, ConfigMapInForm, Form, InvalidForm, build_in_form};
pub use history::history;
pub use objects::{config_map, config_map_in, labelled_config_map, pod, widget_definition};
pub use openmetrics::{Exposition, Family, Sample};
pub use reconcile_checker::{ReconcileChecker, ReconcileStats, Subject};
pub use recorder::{Recorder, Recording};
pub use world::{InMemory, WorldError, connection, informers, kube_config, until};
