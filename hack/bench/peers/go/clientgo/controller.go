package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"windlass/bench/peers/foo"
)

const agent = "client-go-peer"

// Controller keeps the Deployment of each Foo.
type Controller struct {
	kube              kubernetes.Interface
	foos              *foo.Clientset
	deploymentsLister appslisters.DeploymentLister
	deploymentsSynced cache.InformerSynced
	foosLister        foo.Lister
	foosSynced        cache.InformerSynced
	queue             workqueue.TypedRateLimitingInterface[cache.ObjectName]
	recorder          record.EventRecorder
	// As sample-controller: status and an event in each sync, whether or not anything has changed.
	always bool
	// As windlass: conditions by which kubectl wait can wait, and what the scale subresource reads.
	conditions bool
}

// NewController wires informers to the queue.
func NewController(
	ctx context.Context,
	kube kubernetes.Interface,
	foos *foo.Clientset,
	deployments appsinformers.DeploymentInformer,
	fooInformer cache.SharedIndexInformer,
	events bool,
	always bool,
	conditions bool,
) *Controller {
	utilruntime.Must(foo.AddToScheme(scheme.Scheme))
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartStructuredLogging(0)
	if events {
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	}
	limiter := workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, 1000*time.Second),
		&workqueue.TypedBucketRateLimiter[cache.ObjectName]{Limiter: rate.NewLimiter(50, 300)},
	)
	named := workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "Foos"}
	c := &Controller{
		kube:              kube,
		foos:              foos,
		deploymentsLister: deployments.Lister(),
		deploymentsSynced: deployments.Informer().HasSynced,
		foosLister:        foo.NewLister(fooInformer),
		foosSynced:        fooInformer.HasSynced,
		queue:             workqueue.NewTypedRateLimitingQueueWithConfig(limiter, named),
		recorder:          broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: agent}),
		always:            always,
		conditions:        conditions,
	}
	_, err := fooInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, current any) { c.enqueue(current) },
	})
	utilruntime.Must(err)
	_, err = deployments.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueueOwner,
		UpdateFunc: func(previous, current any) {
			// A resync delivers the same version again.
			if previous.(*appsv1.Deployment).ResourceVersion != current.(*appsv1.Deployment).ResourceVersion {
				c.enqueueOwner(current)
			}
		},
		DeleteFunc: c.enqueueOwner,
	})
	utilruntime.Must(err)
	return c
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context, workers int) error {
	defer utilruntime.HandleCrash()
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.deploymentsSynced, c.foosSynced) {
		return fmt.Errorf("the caches did not sync")
	}
	for range workers {
		go wait.UntilWithContext(ctx, c.work, time.Second)
	}
	klog.FromContext(ctx).Info("Started workers", "count", workers)
	<-ctx.Done()
	return nil
}

func (c *Controller) work(ctx context.Context) {
	for c.next(ctx) {
	}
}

func (c *Controller) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.sync(ctx, key); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Sync failed; trying again later", "foo", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	klog.FromContext(ctx).Info("Synced", "foo", key)
	return true
}

func (c *Controller) sync(ctx context.Context, key cache.ObjectName) error {
	wanted, err := c.foosLister.Get(key.Namespace, key.Name)
	if errors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	deployments := c.kube.AppsV1().Deployments(key.Namespace)
	deployment, err := c.deploymentsLister.Deployments(key.Namespace).Get(wanted.Spec.DeploymentName)
	if errors.IsNotFound(err) {
		deployment, err = deployments.Create(ctx, newDeployment(wanted), metav1.CreateOptions{FieldManager: agent})
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(deployment, wanted) {
		message := fmt.Sprintf("Resource %q already exists and is not managed by Foo", deployment.Name)
		c.recorder.Event(wanted, corev1.EventTypeWarning, "ErrResourceExists", message)
		return fmt.Errorf("%s", message)
	}
	if wanted.Spec.Replicas != nil && *wanted.Spec.Replicas != *deployment.Spec.Replicas {
		deployment, err = deployments.Update(ctx, newDeployment(wanted), metav1.UpdateOptions{FieldManager: agent})
	}
	if err != nil {
		return err
	}
	observed := wanted.DeepCopy()
	observed.Status.AvailableReplicas = deployment.Status.AvailableReplicas
	if c.conditions {
		report(observed, deployment)
	}
	if !c.always {
		observed.Status.ObservedGeneration = wanted.Generation
		if equality.Semantic.DeepEqual(observed.Status, wanted.Status) {
			return nil
		}
	}
	_, err = c.foos.Foos(key.Namespace).UpdateStatus(ctx, observed, metav1.UpdateOptions{FieldManager: agent})
	if err != nil {
		return err
	}
	if c.always {
		c.recorder.Event(wanted, corev1.EventTypeNormal, "Synced", "Foo synced successfully")
	}
	return nil
}

// Reports what windlass reports of a Foo and its Deployment.
func report(of *foo.Foo, deployment *appsv1.Deployment) {
	of.Status.Replicas = deployment.Status.Replicas
	of.Status.Selector = metav1.FormatLabelSelector(deployment.Spec.Selector)
	isReady := deployment.Status.ObservedGeneration == deployment.Generation &&
		deployment.Status.AvailableReplicas == *deployment.Spec.Replicas
	ready, reason, message := metav1.ConditionFalse, "RollingOut",
		fmt.Sprintf("Deployment %s: %d of %d Pods are available", deployment.Name, deployment.Status.AvailableReplicas, *deployment.Spec.Replicas)
	if isReady {
		ready, reason, message = metav1.ConditionTrue, "Synced", "Foo synced successfully"
		meta.RemoveStatusCondition(&of.Status.Conditions, "Reconciling")
	} else {
		meta.SetStatusCondition(&of.Status.Conditions, metav1.Condition{
			Type: "Reconciling", Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: of.Generation,
		})
	}
	meta.SetStatusCondition(&of.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: ready, Reason: reason, Message: message, ObservedGeneration: of.Generation,
	})
}

func (c *Controller) enqueue(object any) {
	key, err := cache.ObjectToName(object)
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	c.queue.Add(key)
}

func (c *Controller) enqueueOwner(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	child, ok := object.(metav1.Object)
	if !ok {
		utilruntime.HandleError(fmt.Errorf("unexpected %T", object))
		return
	}
	owner := metav1.GetControllerOf(child)
	if owner == nil || owner.Kind != "Foo" {
		return
	}
	if of, err := c.foosLister.Get(child.GetNamespace(), owner.Name); err == nil {
		c.enqueue(of)
	}
}

func newDeployment(of *foo.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": of.Name}
	owner := metav1.NewControllerRef(of, foo.GroupVersion.WithKind("Foo"))
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            of.Spec.DeploymentName,
			Namespace:       of.Namespace,
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: of.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}},
			},
		},
	}
}
