//! The types of `k8s-openapi` that have an `apiVersion` and a `kind`.

use std::collections::BTreeMap;

use k8s_openapi::Resource;
use serde::de::DeserializeOwned;

use crate::protobuf_types::sample::{Error, Sample};

/// Compares a sample as its type.
pub(crate) type Compare = fn(&Sample<'_>) -> Result<bool, Error>;

fn entry<T: Resource + DeserializeOwned + PartialEq>() -> ((&'static str, &'static str), Compare) {
    ((T::API_VERSION, T::KIND), |sample| sample.compare::<T>())
}

macro_rules! kinds {
    ($($($group:ident)::+ { $($kind:ident)+ })+) => {
        /// Returns all types, by `apiVersion` and `kind`.
        pub(crate) fn all() -> BTreeMap<(&'static str, &'static str), Compare> {
            let mut all = BTreeMap::new();
            $({
                use k8s_openapi::$($group)::+ as group;
                all.extend([$(entry::<group::$kind>()),+]);
            })+
            all
        }
    };
}

kinds! {
    api::admissionregistration::v1 {
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration ValidatingAdmissionPolicy
        ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
    }
    api::admissionregistration::v1alpha1 { MutatingAdmissionPolicy MutatingAdmissionPolicyBinding }
    api::admissionregistration::v1beta1 { MutatingAdmissionPolicy MutatingAdmissionPolicyBinding }
    api::apiserverinternal::v1alpha1 { StorageVersion }
    api::apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
    api::authentication::v1 { SelfSubjectReview TokenRequest TokenReview }
    api::authorization::v1 {
        LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
    }
    api::autoscaling::v1 { HorizontalPodAutoscaler Scale }
    api::autoscaling::v2 { HorizontalPodAutoscaler }
    api::batch::v1 { CronJob Job }
    api::certificates::v1 { CertificateSigningRequest ClusterTrustBundle PodCertificateRequest }
    api::certificates::v1beta1 { ClusterTrustBundle PodCertificateRequest }
    api::coordination::v1 { Lease }
    api::coordination::v1alpha2 { LeaseCandidate }
    api::coordination::v1beta1 { LeaseCandidate }
    api::core::v1 {
        Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
        PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
    }
    api::discovery::v1 { EndpointSlice }
    api::events::v1 { Event }
    api::flowcontrol::v1 { FlowSchema PriorityLevelConfiguration }
    api::lifecycle::v1alpha1 { Eviction EvictionRequest }
    api::networking::v1 { IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR }
    api::node::v1 { RuntimeClass }
    api::policy::v1 { Eviction PodDisruptionBudget }
    api::rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
    api::resource::v1 { DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice }
    api::resource::v1alpha3 { DeviceTaintRule ResourcePoolStatusRequest }
    api::resource::v1beta1 { DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice }
    api::resource::v1beta2 { DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice }
    api::scheduling::v1 { PriorityClass }
    api::scheduling::v1alpha3 { CompositePodGroup PodGroup Workload }
    api::scheduling::v1beta1 { PodGroup Workload }
    api::storage::v1 { CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass }
    api::storagemigration::v1 { StorageVersionMigration }
    api::storagemigration::v1beta1 { StorageVersionMigration }
    apiextensions_apiserver::pkg::apis::apiextensions::v1 { CustomResourceDefinition }
    apimachinery::pkg::apis::meta::v1 { Status }
    kube_aggregator::pkg::apis::apiregistration::v1 { APIService }
}
