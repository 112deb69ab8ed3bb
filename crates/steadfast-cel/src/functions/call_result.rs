//! Result of a function.

use crate::error::CelErrorKind;
use crate::value::CelValue;

/// Result of a function; `Ok(None)` if the function has no definition for the types of the arguments.
pub(super) type CallResult<'a> = Result<Option<CelValue<'a>>, CelErrorKind>;
