package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Received events, in order.
type eventLog struct {
	mutex sync.Mutex
	lines []string
}

func (s *eventLog) add(what, name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.lines = append(s.lines, what+" "+name)
}

func (s *eventLog) is(wanted ...string) func() bool {
	return func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return strings.Join(s.lines, ", ") == strings.Join(wanted, ", ")
	}
}

func (s *eventLog) count(what string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	n := 0
	for _, line := range s.lines {
		if line == what {
			n++
		}
	}
	return n
}

// handler records events. An event of a resync has the same version twice.
func (s *eventLog) handler() cache.ResourceEventHandlerFuncs {
	meta := func(object any) metav1.Object {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		return object.(metav1.Object)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { s.add("added", meta(object).GetName()) },
		UpdateFunc: func(old, updated any) {
			if meta(old).GetResourceVersion() == meta(updated).GetResourceVersion() {
				s.add("repeated", meta(updated).GetName())
			} else {
				s.add("updated", meta(updated).GetName())
			}
		},
		DeleteFunc: func(object any) { s.add("deleted", meta(object).GetName()) },
	}
}

func watches(ctx context.Context, set *kubernetes.Clientset) {
	maps := set.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	must("list", err)
	made, err := maps.Create(ctx, configMap("watched", "1"), metav1.CreateOptions{})
	must("create", err)
	made.Data["value"] = "2"
	_, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	must("update", err)
	must("delete", maps.Delete(ctx, "watched", metav1.DeleteOptions{}))

	follow := func(version string, count int) (kinds []watch.EventType, last string) {
		stream, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: version, FieldSelector: "metadata.name=watched"})
		must("watch", err)
		defer stream.Stop()
		for limit := time.After(patience); len(kinds) < count; {
			select {
			case event := <-stream.ResultChan():
				object, ok := event.Object.(*corev1.ConfigMap)
				if !ok {
					fail("watch", "after %v: %+v", kinds, event)
				}
				kinds, last = append(kinds, event.Type), object.ResourceVersion
			case <-limit:
				fail("watch", "only %v within %s", kinds, patience)
			}
		}
		return kinds, last
	}
	kinds, version := follow(list.ResourceVersion, 2)
	equal("a watch from the list's version delivers later changes", kinds, []watch.EventType{watch.Added, watch.Modified})
	kinds, _ = follow(version, 1)
	equal("a watch resumes at the end of the last one", kinds, []watch.EventType{watch.Deleted})
}

func informer(ctx context.Context, set *kubernetes.Clientset) {
	ctx, stop := context.WithCancel(ctx)
	maps := set.CoreV1().ConfigMaps(namespace)
	_, err := maps.Create(ctx, configMap("early", "1"), metav1.CreateOptions{})
	must("create", err)
	log, repeated := &eventLog{}, &eventLog{}
	factory := informers.NewSharedInformerFactoryWithOptions(set, time.Second, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "app" }))
	shared := factory.Core().V1().ConfigMaps()
	_, err = shared.Informer().AddEventHandlerWithResyncPeriod(log.handler(), 0)
	must("a handler", err)
	_, err = shared.Informer().AddEventHandler(repeated.handler()) // each second, the shortest possible resync period
	must("a handler", err)
	factory.Start(ctx.Done())
	holds("a shared informer is in sync", cache.WaitForCacheSync(ctx.Done(), shared.Informer().HasSynced), nil)
	eventually("it delivers the existing objects", log.is("added early"))
	late, err := maps.Create(ctx, configMap("late", "1"), metav1.CreateOptions{})
	must("create", err)
	late.Data["value"] = "2"
	_, err = maps.Update(ctx, late, metav1.UpdateOptions{})
	must("update", err)
	must("delete", maps.Delete(ctx, "early", metav1.DeleteOptions{}))
	eventually("it delivers changes", log.is("added early", "added late", "updated late", "deleted early"))
	late.Labels = nil
	late.ResourceVersion = ""
	_, err = maps.Update(ctx, late, metav1.UpdateOptions{})
	must("update", err)
	eventually("an object that leaves the selector is delivered as deleted", log.is("added early", "added late", "updated late", "deleted early", "deleted late"))
	_, err = maps.Create(ctx, configMap("stays", "1"), metav1.CreateOptions{})
	must("create", err)
	eventually("it resyncs", func() bool { return repeated.count("repeated stays") >= 2 })
	cached, err := shared.Lister().ConfigMaps(namespace).List(labels.Everything())
	must("its lister", err)
	holds("its lister has the existing objects", len(cached) == 1 && cached[0].Data["value"] == "1", cached)
	stop()
	factory.Shutdown()
	for _, name := range []string{"late", "stays"} {
		must("delete", maps.Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

// Two candidates for one Lease: one leads and resigns, and then the other leads.
func elect(ctx context.Context, set *kubernetes.Clientset) {
	leads := make(chan string, 2)
	resign := map[string]context.CancelFunc{}
	ended := sync.WaitGroup{}
	for _, name := range []string{"first", "second"} {
		candidate, cancel := context.WithCancel(ctx)
		resign[name] = cancel
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: namespace},
				Client:     set.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 500 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- name },
				OnStoppedLeading: func() {},
			},
		})
		must("an elector", err)
		ended.Go(func() { elector.Run(candidate) })
	}
	next := func(name string) string {
		select {
		case leader := <-leads:
			lease, err := set.CoordinationV1().Leases(namespace).Get(ctx, "leader", metav1.GetOptions{})
			must(name, err)
			equal(name, *lease.Spec.HolderIdentity, leader)
			return leader
		case <-time.After(patience):
			fail(name, "no leader within %s", patience)
			return ""
		}
	}
	leader := next("one of two candidates leads")
	resign[leader]()
	other := next("when it resigns, the other leads")
	holds("the leader has changed", other != leader, fmt.Sprint(leader, other))
	resign[other]()
	ended.Wait()
	err := set.CoordinationV1().Leases(namespace).Delete(ctx, "leader", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		must("delete the lease", err)
	}
}
