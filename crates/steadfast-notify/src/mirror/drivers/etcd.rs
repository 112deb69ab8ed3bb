//! Keys of etcd.

use std::time::Duration;

use steadfast_outside::Settings;
use steadfast_outside::etcd::{Etcd, EtcdError, Text};

use crate::config::mirrors;
use crate::mirror::driver::{AnyDriver, Driver, Refused, ready};
use crate::shape::{FieldKind, KEY, READY, Shape, needed};

pub(crate) const SHAPE: Shape = &[KEY, needed("value", FieldKind::Text), READY];

/// `compare` is how often it is looked, where that is said: what keeps the lease alive.
pub(super) fn open(config: &mirrors::Etcd, compare: Option<Duration>) -> Result<Box<dyn AnyDriver>, Refused> {
    let endpoints: Vec<_> = config.endpoints.iter().map(String::as_str).collect();
    let target = Etcd::new(&endpoints, &config.prefix, &config.mark).map_err(|error| match error {
        EtcdError::Empty => Refused::at("etcd.prefix", error, "say under what its keys are, and whose they are"),
        _ => Refused::at("etcd.endpoints", error, "name its client URLs"),
    })?;
    let target = match &config.lease {
        None => target,
        Some(lease) => target.lasting(lease.0),
    };
    if target.lasts() < 2 * compare.unwrap_or(Settings::default().compare) {
        let what = "the lease could end between two looks, which keep it alive";
        return Err(Refused::at("etcd.lease", what, "have it last at least twice as long as `compare` says"));
    }
    // An entry that is not ready is not registered.
    let values = ready(|entry| Ok((entry.key.clone(), Text(entry.text("value").unwrap_or_default().to_owned()))));
    Ok(Box::new(Driver { target, values }))
}
