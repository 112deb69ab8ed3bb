package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func as(manager string) metav1.ApplyOptions { return metav1.ApplyOptions{FieldManager: manager} }

// managers describes the managers of an object with their operations and subresources, in the order of their names.
func managers(object metav1.Object) string {
	var all []string
	for _, entry := range object.GetManagedFields() {
		all = append(all, strings.TrimSuffix(fmt.Sprint(entry.Manager, " ", entry.Operation, " ", entry.Subresource), " "))
	}
	sort.Strings(all)
	return strings.Join(all, ", ")
}

// Server-side apply with the typed client, as in a controller without state of its own.
func applies(ctx context.Context, set *kubernetes.Clientset) {
	ctx, stop := context.WithCancel(ctx)
	maps := set.CoreV1().ConfigMaps(namespace)
	log := &eventLog{}
	factory := informers.NewSharedInformerFactoryWithOptions(set, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=applied" }))
	shared := factory.Core().V1().ConfigMaps()
	_, err := shared.Informer().AddEventHandler(log.handler())
	must("a handler", err)
	factory.Start(ctx.Done())
	holds("an informer of the applied objects is synced", cache.WaitForCacheSync(ctx.Done(), shared.Informer().HasSynced), nil)

	wanted := func(data map[string]string) *coreac.ConfigMapApplyConfiguration {
		return coreac.ConfigMap("applied", namespace).WithData(data)
	}
	dry, err := maps.Apply(ctx, wanted(map[string]string{"a": "0"}), metav1.ApplyOptions{FieldManager: "first", DryRun: []string{"All"}})
	must("apply in a dry run", err)
	equal("an apply in a dry run returns the object", dry.Data, map[string]string{"a": "0"})
	_, err = maps.Get(ctx, "applied", metav1.GetOptions{})
	refused("an apply in a dry run stores nothing", apierrors.IsNotFound, err)
	made, err := maps.Apply(ctx, wanted(map[string]string{"a": "1", "b": "1"}).WithLabels(map[string]string{"app": "applied"}), as("first"))
	must("apply", err)
	equal("Apply creates", []any{made.Data, managers(made)}, []any{map[string]string{"a": "1", "b": "1"}, "first Apply"})
	same, err := maps.Apply(ctx, wanted(map[string]string{"a": "1", "b": "1"}).WithLabels(map[string]string{"app": "applied"}), as("first"))
	must("apply", err)
	equal("Apply of the same changes nothing", same.ResourceVersion, made.ResourceVersion)

	_, err = maps.Apply(ctx, wanted(map[string]string{"a": "2"}), as("second"))
	refused("a field of another manager is a conflict", apierrors.IsConflict, err)
	details := err.(apierrors.APIStatus).Status().Details
	holds("the conflict names manager and field", len(details.Causes) == 1 && details.Causes[0].Type == metav1.CauseTypeFieldManagerConflict &&
		details.Causes[0].Field == ".data.a" && strings.Contains(details.Causes[0].Message, `"first"`), details)
	taken, err := maps.Apply(ctx, wanted(map[string]string{"a": "2", "c": "2"}), metav1.ApplyOptions{FieldManager: "second", Force: true})
	must("apply with force", err)
	equal("force takes over the field", []any{taken.Data, managers(taken)},
		[]any{map[string]string{"a": "2", "b": "1", "c": "2"}, "first Apply, second Apply"})

	mine, err := coreac.ExtractConfigMap(taken, "first")
	must("extract", err)
	equal("Extract returns the fields that the first still manages", []any{mine.Data, mine.Labels},
		[]any{map[string]string{"b": "1"}, map[string]string{"app": "applied"}})
	theirs, err := coreac.ExtractConfigMap(taken, "second")
	must("extract", err)
	equal("Extract returns the fields that the second manages", theirs.Data, map[string]string{"a": "2", "c": "2"})
	none, err := coreac.ExtractConfigMap(taken, "nobody")
	must("extract", err)
	holds("Extract returns nothing for an unknown manager", none.Data == nil, none)
	// Extract, change, apply: changes one field without knowledge of the others.
	extended, err := maps.Apply(ctx, mine.WithData(map[string]string{"d": "3"}), as("first"))
	must("apply the extracted fields", err)
	equal("extracted fields can be applied again", extended.Data, map[string]string{"a": "2", "b": "1", "c": "2", "d": "3"})
	less, err := maps.Apply(ctx, wanted(map[string]string{"c": "2"}), as("second"))
	must("apply less", err)
	equal("a field that is no longer applied is removed", less.Data, map[string]string{"b": "1", "c": "2", "d": "3"})
	less.Data["b"] = "4"
	updated, err := maps.Update(ctx, less, metav1.UpdateOptions{FieldManager: "editor"})
	must("update", err)
	equal("an update has a manager too", managers(updated), "editor Update, first Apply, second Apply")
	_, err = maps.Apply(ctx, mine, as("first"))
	refused("an updated field is a conflict", apierrors.IsConflict, err)
	_, err = maps.Apply(ctx, wanted(nil), metav1.ApplyOptions{})
	refused("apply without a manager", apierrors.IsInvalid, err)
	_, err = maps.Apply(ctx, wanted(nil).WithUID("another"), as("first"))
	refused("apply to another object of that name", apierrors.IsInvalid, err)
	must("delete", maps.Delete(ctx, "applied", metav1.DeleteOptions{}))
	eventually("an informer receives each apply that changed the object",
		log.is("added applied", "updated applied", "updated applied", "updated applied", "updated applied", "deleted applied"))
	stop()
	factory.Shutdown()
}

// A workload and its status, each with its own managers. Lists are merged by their keys.
func appliesWorkloads(ctx context.Context, set *kubernetes.Clientset) {
	all := set.AppsV1().Deployments(namespace)
	labels := map[string]string{"app": "applied"}
	container := func(name, image string) *coreac.ContainerApplyConfiguration {
		return coreac.Container().WithName(name).WithImage(image)
	}
	wanted := appsac.Deployment("applied", namespace).WithSpec(appsac.DeploymentSpec().WithReplicas(2).
		WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).
			WithSpec(coreac.PodSpec().WithContainers(container("main", "one").WithPorts(coreac.ContainerPort().WithContainerPort(80))))))
	_, err := all.Apply(ctx, wanted, as("owner"))
	must("apply a deployment", err)
	sidecar := appsac.Deployment("applied", namespace).WithSpec(appsac.DeploymentSpec().
		WithTemplate(coreac.PodTemplateSpec().WithSpec(coreac.PodSpec().WithContainers(container("side", "two")))))
	both, err := all.Apply(ctx, sidecar, as("injector"))
	must("apply a sidecar", err)
	names := func(deployment *appsv1.Deployment) (names []string) {
		for _, container := range deployment.Spec.Template.Spec.Containers {
			names = append(names, container.Name+"="+container.Image)
		}
		return names
	}
	equal("containers are merged by name", names(both), []string{"main=one", "side=two"})

	status := appsac.Deployment("applied", namespace).WithStatus(appsac.DeploymentStatus().WithReplicas(2).WithObservedGeneration(both.Generation).
		WithConditions(appsac.DeploymentCondition().WithType(appsv1.DeploymentAvailable).WithStatus(corev1.ConditionTrue).WithReason("Tested")))
	reported, err := all.ApplyStatus(ctx, status, as("controller"))
	must("apply a status", err)
	equal("ApplyStatus writes the status and nothing else",
		[]any{reported.Status.Replicas, reported.Status.Conditions[0].Reason, reported.Generation, names(reported)},
		[]any{int32(2), "Tested", both.Generation, []string{"main=one", "side=two"}})
	equal("the manager has the subresource status", managers(reported), "controller Apply status, injector Apply, owner Apply")
	extracted, err := appsac.ExtractDeploymentStatus(reported, "controller")
	must("extract the status", err)
	holds("ExtractStatus returns it", extracted.Spec == nil && *extracted.Status.Replicas == 2 && len(extracted.Status.Conditions) == 1, extracted)
	extracted, err = appsac.ExtractDeployment(reported, "injector")
	must("extract", err)
	injected := extracted.Spec.Template.Spec.Containers
	holds("Extract returns one container of two", len(injected) == 1 && *injected[0].Name == "side" && extracted.Spec.Replicas == nil, extracted)

	// An autoscaler uses the scale subresource. Then the owner's own number is a conflict.
	scale, err := all.GetScale(ctx, "applied", metav1.GetOptions{})
	must("get the scale", err)
	equal("the scale as the owner applied it", []any{scale.Spec.Replicas, scale.Status.Selector}, []any{int32(2), "app=applied"})
	scale.Spec.Replicas = 5
	_, err = all.UpdateScale(ctx, "applied", scale, metav1.UpdateOptions{FieldManager: "autoscaler"})
	must("scale", err)
	_, err = all.Apply(ctx, wanted, as("owner"))
	refused("replicas that were scaled are a conflict", apierrors.IsConflict, err)
	wanted.Spec.Replicas = nil
	left, err := all.Apply(ctx, wanted, as("owner"))
	must("apply without replicas", err)
	equal("replicas that are not applied are kept", *left.Spec.Replicas, int32(5))

	before, after := left.DeepCopy(), left.DeepCopy()
	after.Spec.Template.Spec.Containers[1].Image = "three"
	after.Labels = map[string]string{"patched": "yes"}
	old, _ := json.Marshal(before)
	changed, _ := json.Marshal(after)
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, changed, appsv1.Deployment{})
	must("a patch of two versions", err)
	patched, err := all.Patch(ctx, "applied", types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "patcher"})
	must("patch", err)
	equal("a strategic merge patch made of two versions: "+string(patch), []any{names(patched), patched.Labels["patched"]},
		[]any{[]string{"main=one", "side=three"}, "yes"})
	must("delete", all.Delete(ctx, "applied", metav1.DeleteOptions{}))
}

// Custom resources with the dynamic client: apply, its status, and lists that are merged by the keys of the schema.
func appliesCustom(ctx context.Context, config *rest.Config) {
	mine := dynamic.NewForConfigOrDie(config).Resource(gadgets).Namespace(namespace)
	gadget := func(content map[string]any) *unstructured.Unstructured {
		content["apiVersion"], content["kind"] = gadgets.GroupVersion().String(), "Gadget"
		content["metadata"] = map[string]any{"name": "applied"}
		return &unstructured.Unstructured{Object: content}
	}
	part := func(name string) map[string]any { return map[string]any{"name": name} }
	made, err := mine.Apply(ctx, "applied", gadget(map[string]any{
		"spec": map[string]any{"size": int64(3), "parts": []any{part("wheel")}}}), as("first"))
	must("apply", err)
	spec, _, _ := unstructured.NestedMap(made.Object, "spec")
	equal("the dynamic client's Apply creates, with the schema's defaults", spec, map[string]any{
		"size": int64(3), "replicas": int64(1), "mode": "slow", "parts": []any{map[string]any{"name": "wheel", "count": int64(1)}}})
	both, err := mine.Apply(ctx, "applied", gadget(map[string]any{"spec": map[string]any{"parts": []any{part("door")}}}), as("second"))
	must("apply another part", err)
	parts, _, _ := unstructured.NestedSlice(both.Object, "spec", "parts")
	equal("a list is merged by the key of its schema", len(parts), 2)
	_, err = mine.Apply(ctx, "applied", gadget(map[string]any{"spec": map[string]any{"size": int64(4)}}), as("second"))
	refused("a custom resource's field has its manager", apierrors.IsConflict, err)
	_, err = mine.Apply(ctx, "applied", gadget(map[string]any{"spec": map[string]any{"size": int64(0)}}),
		metav1.ApplyOptions{FieldManager: "second", Force: true})
	refused("an apply is validated", apierrors.IsInvalid, err)
	_, err = mine.Apply(ctx, "applied", gadget(map[string]any{"spec": map[string]any{"sizes": int64(1)}}), as("first"))
	refused("a field outside of the schema cannot be applied", apierrors.IsInternalError, err)
	equal("its message", strings.Contains(fmt.Sprint(err), ".spec.sizes: field not declared in schema"), true)
	reported, err := mine.ApplyStatus(ctx, "applied", gadget(map[string]any{
		"spec": map[string]any{"size": int64(9)}, "status": map[string]any{"replicas": int64(1)}}), as("controller"))
	must("apply the status", err)
	size, _, _ := unstructured.NestedInt64(reported.Object, "spec", "size")
	replicas, _, _ := unstructured.NestedInt64(reported.Object, "status", "replicas")
	equal("ApplyStatus writes the status alone", []any{size, replicas, reported.GetGeneration(), managers(reported)},
		[]any{int64(3), int64(1), int64(2), "controller Apply status, first Apply, second Apply"})
	must("delete", mine.Delete(ctx, "applied", metav1.DeleteOptions{}))
}
