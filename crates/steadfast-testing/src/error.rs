//! Errors of the test kit.

use std::error::Error as StdError;
use std::fmt;

/// Error of the test tools: a server, a client or a network of the test failed or could not be created.
///
/// The operator `?` converts this error into `Box<dyn Error>`, with or without `Send + Sync`, and into `anyhow::Error`.
/// The error wraps its cause. The message is that of the cause, and [`source`](StdError::source) returns the next
/// cause.
pub struct TestkitError {
    cause: Box<dyn StdError + Send + Sync>,
}

impl TestkitError {
    /// Returns the wrapped error, for a downcast.
    pub fn get_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.cause
    }
}

impl fmt::Display for TestkitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

// A test that returns this error prints only its `Debug` text, so the text lists all causes.
impl fmt::Debug for TestkitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)?;
        let mut next = self.source();
        while let Some(cause) = next {
            write!(f, ", because: {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}

impl StdError for TestkitError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

impl From<Box<dyn StdError + Send + Sync>> for TestkitError {
    fn from(cause: Box<dyn StdError + Send + Sync>) -> Self {
        // An error that already has this type is not wrapped again, so that causes do not repeat in the message.
        match cause.downcast::<Self>() {
            Ok(testkit_error) => *testkit_error,
            Err(cause) => Self { cause },
        }
    }
}

/// Converts the errors of dependencies.
macro_rules! caused_by {
    ($($cause:ty),* $(,)?) => {
        $(impl From<$cause> for TestkitError {
            fn from(cause: $cause) -> Self {
                Self { cause: cause.into() }
            }
        })*
    };
}

caused_by!(
    &'static str,
    String,
    std::io::Error,
    std::net::AddrParseError,
    std::num::ParseIntError,
    std::time::SystemTimeError,
    kube::Error,
    kube::config::KubeconfigError,
    kube::core::request::Error,
    serde_json::Error,
    steadfast::InformerError,
    steadfast::HandlerError,
    steadfast::NotSynced,
    steadfast::SyncTimeout,
    steadfast::UndecodableObject,
    steadfast::WaitError,
    steadfast::connection::ConnectError,
    steadfast::connection::SendError,
    steadfast_apiserver::StartError,
    steadfast_apiserver::Status,
    steadfast_contract::CheckError,
    tokio::task::JoinError,
    tokio::time::error::Elapsed,
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Requires the bounds of `anyhow::Error` for the conversion by `?`.
    fn is_for_anyhow<E: StdError + Send + Sync + 'static>(_: &E) {}

    fn io_failure() -> Result<(), TestkitError> {
        Err(std::io::Error::other("no socket"))?
    }

    #[test]
    fn error_converts_and_keeps_message_of_cause() {
        let into_box = || -> Result<(), Box<dyn StdError>> { Ok(io_failure()?) };
        let into_shared = || -> Result<(), Box<dyn StdError + Send + Sync>> { Ok(io_failure()?) };
        let (testkit_error, boxed, shared) =
            (io_failure().unwrap_err(), into_box().unwrap_err(), into_shared().unwrap_err());
        is_for_anyhow(&testkit_error);
        assert_eq!([testkit_error.to_string(), boxed.to_string(), shared.to_string()], ["no socket"; 3]);
        assert!(testkit_error.get_ref().is::<std::io::Error>());
        // The conversion into a box and back keeps the cause.
        assert!(TestkitError::from(shared).get_ref().is::<std::io::Error>());
    }

    #[test]
    fn debug_text_lists_all_causes() {
        #[derive(Debug)]
        struct Outer(std::io::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("no server")
            }
        }
        impl StdError for Outer {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(&self.0)
            }
        }
        let cause: Box<dyn StdError + Send + Sync> = Box::new(Outer(std::io::Error::other("no socket")));
        assert_eq!(format!("{:?}", TestkitError::from(cause)), r#""no server", because: no socket"#);
    }
}
