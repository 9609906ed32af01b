package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// The Deployments as a watch of their metadata shows them: when each appeared, and when its spec last changed. No
// controller asks for metadata alone, so none shares the encoding of this watch.
type deployments struct {
	lock    sync.Mutex
	seen    map[string]deployment
	pending map[string]bool
	none    chan struct{}
	failure error
}

type deployment struct {
	generation int64
	at         time.Time
}

func watchDeployments(ctx context.Context, config *rest.Config) (*deployments, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all := client.Resource(appsv1.SchemeGroupVersion.WithResource("deployments"))
	list, err := all.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	source := &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, options)
		},
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, source)
	if err != nil {
		return nil, err
	}
	d := &deployments{seen: map[string]deployment{}}
	go d.follow(watcher)
	return d, nil
}

func (d *deployments) follow(watcher *toolswatch.RetryWatcher) {
	for event := range watcher.ResultChan() {
		now := time.Now()
		object, ok := event.Object.(metav1.Object)
		if !ok {
			d.fail(fmt.Errorf("the watch of Deployments: %v", event.Object))
			return
		}
		d.observe(object.GetNamespace()+"/"+object.GetName(), object.GetGeneration(), now)
	}
	d.fail(fmt.Errorf("the watch of Deployments ended"))
}

func (d *deployments) observe(key string, generation int64, now time.Time) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.seen[key].generation >= generation {
		return
	}
	d.seen[key] = deployment{generation, now}
	if d.pending[key] {
		delete(d.pending, key)
		if len(d.pending) == 0 {
			close(d.none)
		}
	}
}

func (d *deployments) fail(err error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.failure = err
	if len(d.pending) > 0 {
		d.pending = nil
		close(d.none)
	}
}

// Expects each of these to appear or to change from now on.
func (d *deployments) expect(keys []string) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.pending = make(map[string]bool, len(keys))
	d.none = make(chan struct{})
	for _, key := range keys {
		d.pending[key] = true
	}
	if len(keys) == 0 {
		close(d.none)
	}
}

// Waits until all have done what was expected.
func (d *deployments) wait(ctx context.Context, p *process, limit time.Duration) error {
	report := time.NewTicker(30 * time.Second)
	defer report.Stop()
	timeout := time.After(limit)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ended:
			return p.failure()
		case <-d.none:
			d.lock.Lock()
			defer d.lock.Unlock()
			return d.failure
		case <-timeout:
			return fmt.Errorf("%d Deployments did not follow within %v", d.left(), limit)
		case <-report.C:
			logf("  %d Deployments to go", d.left())
		}
	}
}

func (d *deployments) left() int {
	d.lock.Lock()
	defer d.lock.Unlock()
	return len(d.pending)
}

// When a Deployment appeared or last changed.
func (d *deployments) at(key string) time.Time {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.seen[key].at
}
