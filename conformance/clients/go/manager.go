package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = group + "/cleanup"

// Keeps a ConfigMap for each Widget through the manager's cache. Its content is the widget's size.
type reconciler struct {
	client.Client
	log *eventLog
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	widget := newWidget("", 0)
	if err := r.Get(ctx, request.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !widget.GetDeletionTimestamp().IsZero() {
		if controllerutil.RemoveFinalizer(widget, finalizer) {
			r.log.add("cleaned", widget.GetName())
			return ctrl.Result{}, r.Update(ctx, widget)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(widget, finalizer) {
		return ctrl.Result{}, r.Update(ctx, widget)
	}
	size, _, err := unstructured.NestedInt64(widget.Object, "spec", "size")
	if err != nil {
		return ctrl.Result{}, err
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: widget.GetName(), Namespace: widget.GetNamespace()}}
	result, err := controllerutil.CreateOrUpdate(ctx, r.Client, made, func() error {
		made.Data = map[string]string{"size": fmt.Sprint(size)}
		return controllerutil.SetControllerReference(widget, made, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if result != controllerutil.OperationResultNone {
		r.log.add(string(result), widget.GetName())
	}
	before := widget.DeepCopy()
	if err := unstructured.SetNestedField(widget.Object, true, "status", "ready"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Patch(ctx, widget, client.MergeFrom(before))
}

func manage(ctx context.Context, config *rest.Config) {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := context.WithCancel(ctx)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                 server.Options{BindAddress: "0"},
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Client:                  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		LeaderElection:          true,
		LeaderElectionID:        "manager",
		LeaderElectionNamespace: namespace,
		// The next run does not wait for the expiry of this lease.
		LeaderElectionReleaseOnCancel: true,
	})
	must("a manager", err)
	log := &eventLog{}
	must("an index", manager.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "size", func(object client.Object) []string {
		return []string{object.(*corev1.ConfigMap).Data["size"]}
	}))
	err = ctrl.NewControllerManagedBy(manager).For(newWidget("", 0)).Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{Client: manager.GetClient(), log: log})
	succeeds("a controller finds its kinds by discovery", err)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	select {
	case <-manager.Elected():
		passed("a manager is elected")
	case err := <-ended:
		fail("a manager is elected", "it ended: %v", err)
	}
	holds("a manager's cache is in sync", manager.GetCache().WaitForCacheSync(ctx), nil)

	cached := manager.GetClient()
	widget := newWidget("managed", 1)
	must("create", cached.Create(ctx, widget))
	key := client.ObjectKeyFromObject(widget)
	made := &corev1.ConfigMap{}
	has := func(size string) func() bool {
		return func() bool { return cached.Get(ctx, key, made) == nil && made.Data["size"] == size }
	}
	eventually("the controller makes its object", has("1"))
	holds("it is owned", metav1.IsControlledBy(made, widget), made.OwnerReferences)
	eventually("the controller writes the status", func() bool {
		must("get", cached.Get(ctx, key, widget))
		ready, _, _ := unstructured.NestedBool(widget.Object, "status", "ready")
		return ready && controllerutil.ContainsFinalizer(widget, finalizer)
	})
	before := widget.DeepCopy()
	must("the size", unstructured.SetNestedField(widget.Object, int64(2), "spec", "size"))
	must("patch", cached.Patch(ctx, widget, client.MergeFrom(before)))
	eventually("the controller follows the spec", has("2"))
	found := func(size string) int {
		maps := &corev1.ConfigMapList{}
		must("list by an index", cached.List(ctx, maps, client.InNamespace(namespace), client.MatchingFields{"size": size}))
		return len(maps.Items)
	}
	equal("an index finds objects by the current value of a field", []int{found("1"), found("2")}, []int{0, 1})
	made.Data = nil
	must("update", cached.Update(ctx, made))
	eventually("the controller repairs an owned object", has("2"))
	must("delete", cached.Delete(ctx, made))
	eventually("the controller recreates it", func() bool { return log.count("created managed") == 2 })
	must("delete", cached.Delete(ctx, widget))
	eventually("the controller releases a deleted object", func() bool { return apierrors.IsNotFound(cached.Get(ctx, key, widget)) })
	equal("it cleaned up once", log.count("cleaned managed"), 1)
	stop()
	succeeds("the manager ends", <-ended)
}
