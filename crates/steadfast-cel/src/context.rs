//! Names that are bound for one evaluation.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::time::CelTimestamp;
use crate::value::CelValue;

/// Function defined by the caller. Receives the target of a member call as the first argument.
type Function<'a> = dyn Fn(&[CelValue<'a>], &mut Meter) -> Result<CelValue<'a>, CelErrorKind> + Send + Sync + 'a;

/// Variables and functions of an evaluation, by name.
#[derive(Default)]
pub struct Context<'a> {
    variables: BTreeMap<&'a str, CelValue<'a>>,
    functions: BTreeMap<&'a str, Box<Function<'a>>>,
    now: Option<Timestamp>,
}

impl<'a> Context<'a> {
    /// Creates a context without names. The standard functions of CEL need no binding.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds a variable.
    pub fn variable(&mut self, name: &'a str, value: CelValue<'a>) {
        self.variables.insert(name, value);
    }

    /// Binds a function; the standard functions take precedence. A function must charge its own cost to the [`Meter`]
    /// if the cost depends on the arguments.
    pub fn function(
        &mut self,
        name: &'a str,
        function: impl Fn(&[CelValue<'a>], &mut Meter) -> Result<CelValue<'a>, CelErrorKind> + Send + Sync + 'a,
    ) {
        self.functions.insert(name, Box::new(function));
    }

    /// Binds the variable `now`. Comparisons with values derived from the variable determine
    /// [`Evaluation::recheck_at`](crate::Evaluation::recheck_at).
    pub fn now(&mut self, instant: Timestamp) {
        self.now = Some(instant);
        // One value of `now` serves the whole evaluation, so that two uses of `now` are equal.
        self.variables.insert("now", CelValue::Timestamp(CelTimestamp { instant, clock_rate: 1 }));
    }

    pub(crate) fn get(&self, name: &str) -> Option<&CelValue<'a>> {
        self.variables.get(name)
    }

    pub(crate) fn call(
        &self,
        name: &str,
        arguments: &[CelValue<'a>],
        meter: &mut Meter,
    ) -> Option<Result<CelValue<'a>, CelErrorKind>> {
        self.functions.get(name).map(|function| function(arguments, meter))
    }

    pub(crate) fn instant(&self) -> Option<Timestamp> {
        self.now
    }
}
