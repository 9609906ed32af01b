// The Go side of `cargo bench --bench workqueue`: the same cases on client-go's work queues and on
// controller-runtime's priority queue. It prints one line of JSON for each measurement.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type key = cache.ObjectName

type result struct {
	Case  string  `json:"case"`
	Nanos float64 `json:"nanos"`
	Bytes float64 `json:"bytes"`
}

const (
	million = 1_000_000
	delayed = 100_000
	rounds  = 5
)

func main() {
	log.SetLogger(logr.Discard())
	keys := make([]key, million)
	for i := range keys {
		keys[i] = key{Namespace: "default", Name: fmt.Sprintf("object-%07d", i)}
	}
	out := json.NewEncoder(os.Stdout)
	for range rounds {
		for _, c := range []struct {
			name string
			run  func([]key) (time.Duration, int, float64)
		}{
			{"one key", oneKey},
			{"million keys", millionKeys},
			{"4 + 4", fourAndFour},
			{"4 + 16", fourAndSixteen},
			{"hot keys", hotKeys},
			{"rate limited", rateLimited},
			{"delayed", delayedKeys},
			{"priorities", priorities},
			{"controller", wholeController},
		} {
			runtime.GC()
			took, n, bytes := c.run(keys)
			if err := out.Encode(result{c.name, float64(took.Nanoseconds()) / float64(n), bytes}); err != nil {
				panic(err)
			}
		}
	}
}

// One key is added, got and done, again and again.
func oneKey(keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTyped[key]()
	defer q.ShutDown()
	start := time.Now()
	for range million {
		q.Add(keys[0])
		k, _ := q.Get()
		q.Done(k)
	}
	return time.Since(start), million, 0
}

// All keys are added, then all are got and done; bytes are those of a queued key.
func millionKeys(keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTyped[key]()
	defer q.ShutDown()
	before := heap()
	start := time.Now()
	for _, k := range keys {
		q.Add(k)
	}
	took := time.Since(start)
	bytes := float64(heap()-before) / float64(len(keys))
	start = time.Now()
	for range keys {
		k, _ := q.Get()
		q.Done(k)
	}
	return took + time.Since(start), len(keys), bytes
}

// Four producers share the keys, four workers take them.
func fourAndFour(keys []key) (time.Duration, int, float64) { return fourAnd(4, keys) }

// The same with sixteen workers.
func fourAndSixteen(keys []key) (time.Duration, int, float64) { return fourAnd(16, keys) }

func fourAnd(workerCount int, keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTyped[key]()
	var producers, workers sync.WaitGroup
	start := time.Now()
	for range workerCount {
		workers.Go(func() {
			for {
				k, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(k)
			}
		})
	}
	for w := range 4 {
		producers.Go(func() {
			for i := w; i < len(keys); i += 4 {
				q.Add(keys[i])
			}
		})
	}
	producers.Wait()
	q.ShutDown()
	workers.Wait()
	return time.Since(start), len(keys), 0
}

// Adds of a hundred keys that wait already.
func hotKeys(keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTyped[key]()
	defer q.ShutDown()
	start := time.Now()
	for i := range million {
		q.Add(keys[i%100])
	}
	return time.Since(start), million, 0
}

// A key fails and succeeds: rate limited add, get, forget, done.
func rateLimited(keys []key) (time.Duration, int, float64) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[key](0, time.Minute)
	q := workqueue.NewTypedRateLimitingQueue[key](limiter)
	defer q.ShutDown()
	start := time.Now()
	for i := range million {
		q.AddRateLimited(keys[i])
		k, _ := q.Get()
		q.Forget(k)
		q.Done(k)
	}
	return time.Since(start), million, 0
}

// Keys that become due spread over half a second, beginning a second from now: the processor time of adding
// them and of taking them when they are due, and the bytes of one that waits.
func delayedKeys(keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTypedDelayingQueue[key]()
	defer q.ShutDown()
	before := heap()
	busy := processorTime()
	for i, k := range keys[:delayed] {
		// Spread out of order, as failures are.
		at := time.Duration((i*7919)%delayed) * (500 * time.Millisecond / delayed)
		q.AddAfter(k, time.Second+at)
	}
	// What is still in the channel is not in the heap yet.
	time.Sleep(100 * time.Millisecond)
	added := processorTime() - busy
	bytes := float64(heap()-before) / delayed
	busy = processorTime()
	for range delayed {
		k, _ := q.Get()
		q.Done(k)
	}
	return added + processorTime() - busy, delayed, bytes
}

// A hundred thousand keys of three priorities are added, then got and done.
func priorities(keys []key) (time.Duration, int, float64) {
	q := priorityqueue.New[key]("bench")
	defer q.ShutDown()
	start := time.Now()
	for i, k := range keys[:delayed] {
		p := []int{-100, 0, 10}[i%3]
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &p}, k)
	}
	for range delayed {
		k, _, _ := q.GetWithPriority()
		q.Done(k)
	}
	return time.Since(start), delayed, 0
}

// A hundred thousand keys through a whole controller whose reconciler does nothing.
func wholeController(keys []key) (time.Duration, int, float64) {
	var left atomic.Int64
	left.Store(delayed)
	done := make(chan struct{})
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		if left.Add(-1) == 0 {
			close(done)
		}
		return reconcile.Result{}, nil
	})
	unchecked := true
	c, err := controller.NewUnmanaged("bench", controller.Options{Reconciler: nothing, SkipNameValidation: &unchecked})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	start := time.Now()
	feed := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for _, k := range keys[:delayed] {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.Namespace, Name: k.Name}})
			}
		}()
		return nil
	})
	if err := c.Watch(feed); err != nil {
		panic(err)
	}
	go func() {
		if err := c.Start(ctx); err != nil {
			panic(err)
		}
	}()
	<-done
	return time.Since(start), delayed, 0
}

// The bytes of the live heap.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
