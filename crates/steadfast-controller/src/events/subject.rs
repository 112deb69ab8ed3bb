//! What an event can be about.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use steadfast::{DynamicType, Kept, Object};

/// What an event can be about: an object, an informer's handle of one, a reference to one, an [`Arc`] of any of these.
///
/// An object whose kind is known at run time alone has a reference: `object.object_ref(&resource)`.
///
/// The parameter only tells these forms from each other; nobody has to name it.
pub trait Subject<Form> {
    /// Who that is.
    fn reference(&self) -> ObjectReference;
}

/// The form of objects.
#[derive(Debug)]
pub struct AsObject;

/// The form of an informer's handles.
#[derive(Debug)]
pub struct AsHandle;

/// The form of references.
#[derive(Debug)]
pub struct AsReference;

/// The form of what is shared.
#[derive(Debug)]
pub struct AsShared<Form>(Form);

impl<K: Resource<DynamicType: Default>> Subject<AsObject> for K {
    fn reference(&self) -> ObjectReference {
        self.object_ref(&K::DynamicType::default())
    }
}

/// Without a look at the object itself, which may be kept encoded.
impl<K: Kept> Subject<AsHandle> for Object<K>
where
    DynamicType<K>: Default,
{
    fn reference(&self) -> ObjectReference {
        let kind = DynamicType::<K>::default();
        let uid = &self.identity().uid;
        ObjectReference {
            api_version: Some(K::Resource::api_version(&kind).into_owned()),
            kind: Some(K::Resource::kind(&kind).into_owned()),
            namespace: self.key().namespace().map(str::to_owned),
            name: Some(self.key().name().to_owned()),
            uid: uid.is_given().then(|| uid.as_str().to_owned()),
            ..ObjectReference::default()
        }
    }
}

impl Subject<AsReference> for ObjectReference {
    fn reference(&self) -> ObjectReference {
        self.clone()
    }
}

impl<S: Subject<Form>, Form> Subject<AsShared<Form>> for Arc<S> {
    fn reference(&self) -> ObjectReference {
        (**self).reference()
    }
}
