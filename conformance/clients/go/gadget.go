package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

// Types of definitions/gadgets.yaml, in the layout of kubebuilder.

type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec   `json:"spec"`
	Status            GadgetStatus `json:"status,omitzero"`
}

type GadgetSpec struct {
	Size     int64  `json:"size"`
	Replicas *int32 `json:"replicas,omitempty"`
	Mode     string `json:"mode,omitempty"`
}

type GadgetStatus struct {
	Replicas   int32              `json:"replicas,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Gadget `json:"items"`
}

var (
	gadgets        = schema.GroupVersionResource{Group: "envtest.conformance.example.com", Version: "v1", Resource: "gadgets"}
	gadgetsBuilder = (&scheme.Builder{GroupVersion: gadgets.GroupVersion()}).Register(&Gadget{}, &GadgetList{})
)

func (g *Gadget) DeepCopyObject() runtime.Object {
	copied := *g
	g.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	if g.Spec.Replicas != nil {
		replicas := *g.Spec.Replicas
		copied.Spec.Replicas = &replicas
	}
	copied.Status.Conditions = append([]metav1.Condition(nil), g.Status.Conditions...)
	return &copied
}

func (l *GadgetList) DeepCopyObject() runtime.Object {
	copied := *l
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	copied.Items = nil
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*Gadget))
	}
	return &copied
}
