//! In which form objects come and are kept: the one parameter that tests take.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{InformerBuilder, InformerFactory, Kept, Lazy, Scope};
use steadfast_core::decode::{DecodeError, Decoder, RawObject};

use crate::error::Error;

/// What informers keep of objects, and in what they request them.
///
/// `STEADFAST_FORM` says it to tests that know no better; its words are those of [`Display`](fmt::Display).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Whether objects are kept as the server wrote them, and decoded when they are read.
    pub lazy: bool,
    /// Whether they are requested in protobuf, before JSON.
    pub protobuf: bool,
}

/// What is no form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoForm(String);

impl fmt::Display for NoForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, fourth] = Form::ALL;
        write!(f, "{:?} is no form; those are {first}, {second}, {third} and {fourth}", self.0)
    }
}

impl std::error::Error for NoForm {}

impl Form {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [
        Self { lazy: false, protobuf: false },
        Self { lazy: true, protobuf: false },
        Self { lazy: false, protobuf: true },
        Self { lazy: true, protobuf: true },
    ];

    /// What `STEADFAST_FORM` says; none where it says nothing.
    ///
    /// # Errors
    ///
    /// Where it says what is no form.
    pub fn said() -> Result<Option<Self>, Error> {
        let said = std::env::var("STEADFAST_FORM").ok().filter(|form| !form.is_empty());
        said.map(|form| form.parse().map_err(|no_form: NoForm| format!("STEADFAST_FORM: {no_form}").into())).transpose()
    }

    /// The form of this run: what `STEADFAST_FORM` says, and otherwise the default one.
    ///
    /// # Panics
    ///
    /// Where `STEADFAST_FORM` says what is no form: nothing should pass for having been tried in it.
    pub fn of_this_run() -> Self {
        static FORM: LazyLock<Form> =
            LazyLock::new(|| Form::said().unwrap_or_else(|error| panic!("{error}")).unwrap_or_default());
        *FORM
    }
}

/// An informer of `factory` to be started, of config maps in the [form of this run](Form::of_this_run). Its lists are
/// streamed in each of them, though in JSON pages cost a server less.
pub fn build_in_form(factory: &InformerFactory, scope: Scope) -> InformerBuilder<'_, InForm> {
    factory.build(scope).protobuf(Form::of_this_run().protobuf).streamed_lists(true)
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.lazy { "lazy" } else { "typed" };
        write!(f, "{kept}-{}", if self.protobuf { "protobuf" } else { "json" })
    }
}

impl FromStr for Form {
    type Err = NoForm;

    fn from_str(text: &str) -> Result<Self, NoForm> {
        let found = Self::ALL.into_iter().find(|form| form.to_string() == text);
        found.ok_or_else(|| NoForm(text.to_owned()))
    }
}

/// What informers keep of a config map.
pub trait Held: Kept<Resource = ConfigMap> {
    /// The config map, where it can be read.
    fn config_map(&self) -> Option<Arc<ConfigMap>>;

    /// One of its data.
    fn value(&self, key: &str) -> Option<String> {
        self.config_map()?.data.as_ref()?.get(key).cloned()
    }
}

impl Held for ConfigMap {
    fn config_map(&self) -> Option<Arc<ConfigMap>> {
        Some(Arc::new(self.clone()))
    }
}

impl Held for Lazy<ConfigMap> {
    fn config_map(&self) -> Option<Arc<ConfigMap>> {
        self.get().ok()
    }
}

/// A config map as it is kept in the [form of this run](Form::of_this_run): the tests that are about anything but what is
/// kept are the same in all forms.
///
/// An informer knows nothing but [`Kept`] of what it keeps, so that to it this is the one or the other.
pub enum InForm {
    /// Decoded as it came.
    Typed(Box<ConfigMap>),
    /// Kept as the server wrote it.
    Lazy(Lazy<ConfigMap>),
}

impl Kept for InForm {
    type Resource = ConfigMap;

    fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        if Form::of_this_run().lazy {
            Lazy::decode(raw, decoder).map(Self::Lazy)
        } else {
            <ConfigMap as Kept>::decode(raw, decoder).map(Box::new).map(Self::Typed)
        }
    }

    fn read_whole<T>(&self, read: impl FnOnce(&ConfigMap) -> T) -> Result<T, DecodeError> {
        match self {
            Self::Typed(object) => (**object).read_whole(read),
            Self::Lazy(object) => object.read_whole(read),
        }
    }

    fn metadata_only() -> bool {
        <ConfigMap as Kept>::metadata_only()
    }

    fn is_dear() -> bool {
        if Form::of_this_run().lazy { Lazy::<ConfigMap>::is_dear() } else { ConfigMap::is_dear() }
    }

    fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>> {
        match self {
            Self::Typed(object) => Kept::labels(&**object),
            Self::Lazy(object) => Kept::labels(object),
        }
    }
}

impl Held for InForm {
    fn config_map(&self) -> Option<Arc<ConfigMap>> {
        match self {
            Self::Typed(object) => object.config_map(),
            Self::Lazy(object) => object.config_map(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Form;

    #[test]
    fn a_form_is_read_as_it_is_written() {
        for form in Form::ALL {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        let refused = "lazy".parse::<Form>().expect_err("half of one").to_string();
        assert!(refused.contains("lazy-protobuf"), "{refused}");
        assert_eq!(Form::default(), Form::ALL[0]);
    }
}
