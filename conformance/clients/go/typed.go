package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Workloads with controller-runtime's client, which writes built-in kinds in protobuf: objects must be read as they
// were written.
func typed(ctx context.Context, config *rest.Config) {
	writer, err := client.New(config, client.Options{})
	must("a client", err)
	labels := map[string]string{"app": "typed"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "typed", Namespace: namespace}}
	replicas, mode := int32(0), int32(0o400)
	wanted := func() error {
		set.Spec.Replicas = &replicas
		set.Spec.ServiceName = "typed"
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		set.Spec.Template.Labels = labels
		set.Spec.Template.Spec.Volumes = []corev1.Volume{
			{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: &mode}}},
			{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		set.Spec.Template.Spec.Containers = []corev1.Container{{
			Name: "c", Image: "nothing",
			Env: []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("64Mi")}},
			LivenessProbe: &corev1.Probe{PeriodSeconds: 5, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/healthz", Port: intstr.FromString("http")}}},
		}}
		return nil
	}
	result, err := controllerutil.CreateOrUpdate(ctx, writer, set, wanted)
	must("CreateOrUpdate", err)
	equal("CreateOrUpdate of a workload creates it", result, controllerutil.OperationResultCreated)
	read := &appsv1.StatefulSet{}
	must("get", writer.Get(ctx, client.ObjectKeyFromObject(set), read))
	pod, container := read.Spec.Template.Spec, read.Spec.Template.Spec.Containers[0]
	equal("an explicit zero", *read.Spec.Replicas, int32(0))
	equal("volumes by their sources", []any{pod.Volumes[0].Secret.SecretName, *pod.Volumes[0].Secret.DefaultMode, pod.Volumes[1].EmptyDir != nil}, []any{"s", mode, true})
	equal("an environment from a secret", *container.Env[0].ValueFrom.SecretKeyRef, *set.Spec.Template.Spec.Containers[0].Env[0].ValueFrom.SecretKeyRef)
	equal("a quantity", container.Resources.Limits.Memory().String(), "64Mi")
	equal("a probe", []any{container.LivenessProbe.HTTPGet.Path, container.LivenessProbe.HTTPGet.Port.String(), container.LivenessProbe.PeriodSeconds}, []any{"/healthz", "http", int32(5)})

	half := intstr.FromString("50%")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "typed", Namespace: namespace, Labels: labels},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &half, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	must("create", writer.Create(ctx, budget))
	before := budget.DeepCopy()
	budget.Spec.MinAvailable.StrVal = "60%"
	must("patch", writer.Patch(ctx, budget, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	budgets := &policyv1.PodDisruptionBudgetList{}
	must("list", writer.List(ctx, budgets, client.InNamespace(namespace), client.MatchingLabels(labels)))
	holds("a budget, patched by its version", len(budgets.Items) == 1 && budgets.Items[0].Spec.MinAvailable.StrVal == "60%", budgets.Items)
	must("delete", writer.Delete(ctx, budget))
	must("delete", writer.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}
