//! Audits of an embedded server with several replicas, in virtual time.

mod faults;
mod fixture;
mod no_alarm;
mod random_faults;
