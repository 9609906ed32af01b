package main

import (
	"runtime"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const ownerUID = "owner-uid"

// byOwner is the index that controllers have: by the uid of the controlling owner.
func byOwner(object any) ([]string, error) {
	owner := metav1.GetControllerOf(object.(metav1.Object))
	if owner == nil {
		return nil, nil
	}
	return []string{string(owner.UID)}, nil
}

func deployments() []any {
	all := make([]any, stored)
	for n := range all {
		all[n] = deployment(n)
	}
	return all
}

func storeCases(report reporter) {
	all, next := deployments(), deployments()
	runtime.GC()
	report("fifo", fifo(all), stored, 0)
	names, owners := make([]string, stored), make([]string, stored)
	for n, object := range all {
		names[n] = must(cache.MetaNamespaceKeyFunc(object))
		owners[n] = must(byOwner(object))[0]
	}
	before := heap()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{ownerUID: byOwner})
	start := time.Now()
	for _, object := range all {
		if err := store.Add(object); err != nil {
			panic(err)
		}
	}
	took := time.Since(start)
	report("put", took, stored, heap()-before)
	start = time.Now()
	for _, name := range names {
		if _, found, _ := store.GetByKey(name); !found {
			panic(name)
		}
	}
	report("get", time.Since(start), stored, 0)
	start = time.Now()
	for _, owner := range owners {
		if len(must(store.ByIndex(ownerUID, owner))) != 1 {
			panic(owner)
		}
	}
	report("by index", time.Since(start), stored, 0)
	start = time.Now()
	if err := store.Replace(next, "90000000"); err != nil {
		panic(err)
	}
	report("replace", time.Since(start), stored, 0)
	runtime.KeepAlive(all)
}

// fifo pushes and pops batches, on the queue that informers use.
func fifo(all []any) time.Duration {
	queue := cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{AtomicEvents: true, UnlockWhileProcessing: true})
	popped := 0
	start := time.Now()
	for from := 0; from < len(all); from += 1000 {
		for _, object := range all[from : from+1000] {
			if err := queue.Update(object); err != nil {
				panic(err)
			}
		}
		batch := func(deltas []cache.Delta, _ bool) error { popped += len(deltas); return nil }
		if err := queue.PopBatch(batch, func(any, bool) error { panic("not a batch") }); err != nil {
			panic(err)
		}
	}
	took := time.Since(start)
	if popped != len(all) {
		panic("lost changes")
	}
	return took
}
