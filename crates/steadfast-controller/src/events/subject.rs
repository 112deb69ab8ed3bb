//! Subjects of events.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use steadfast::{Cacheable, DynamicType, Object};

/// Subject of an event: an object, an informer's handle, a reference, or an [`Arc`] of these.
///
/// For an object whose kind is known only at run time, pass a reference: `object.object_ref(&resource)`.
///
/// The type parameter distinguishes these forms. Callers never name it.
pub trait Subject<Form> {
    /// Returns the reference for the event.
    fn reference(&self) -> ObjectReference;
}

/// Form of objects.
#[derive(Debug)]
pub struct AsObject;

/// Form of an informer's handles.
#[derive(Debug)]
pub struct AsHandle;

/// Form of references.
#[derive(Debug)]
pub struct AsReference;

/// Form of shared pointers.
#[derive(Debug)]
pub struct AsShared<Form>(Form);

impl<K: Resource<DynamicType: Default>> Subject<AsObject> for K {
    fn reference(&self) -> ObjectReference {
        self.object_ref(&K::DynamicType::default())
    }
}

/// Does not decode the object, which may be stored encoded.
impl<K: Cacheable> Subject<AsHandle> for Object<K>
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
            uid: uid.is_from_server().then(|| uid.as_str().to_owned()),
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
