package foo

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/listers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Resource is the plural, as in URLs.
const Resource = "foos"

// Client writes and reads Foos of a namespace.
type Client = gentype.ClientWithList[*Foo, *List]

// Clientset makes the clients of namespaces. It speaks JSON, as custom resources do.
type Clientset struct {
	rest  rest.Interface
	codec runtime.ParameterCodec
}

// NewForConfig connects.
func NewForConfig(config *rest.Config) (*Clientset, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(config)
	own.GroupVersion = &GroupVersion
	own.APIPath = "/apis"
	own.ContentType = runtime.ContentTypeJSON
	own.AcceptContentTypes = runtime.ContentTypeJSON
	codecs := serializer.NewCodecFactory(scheme)
	own.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme, codecs).WithoutConversion()
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, err
	}
	return &Clientset{client, runtime.NewParameterCodec(scheme)}, nil
}

// Foos is the client of one namespace, or of all when that is empty.
func (c *Clientset) Foos(namespace string) *Client {
	return gentype.NewClientWithList(Resource, c.rest, c.codec, namespace,
		func() *Foo { return new(Foo) }, func() *List { return new(List) })
}

// NewInformer watches the Foos of all namespaces.
func NewInformer(clientset *Clientset, resync time.Duration) cache.SharedIndexInformer {
	foos := clientset.Foos(metav1.NamespaceAll)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return foos.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return foos.Watch(ctx, options)
		},
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return cache.NewSharedIndexInformer(source, &Foo{}, resync, indexers)
}

// Lister reads Foos from an informer's cache.
type Lister struct {
	all listers.ResourceIndexer[*Foo]
}

// NewLister reads what that informer holds.
func NewLister(informer cache.SharedIndexInformer) Lister {
	resource := GroupVersion.WithResource(Resource).GroupResource()
	return Lister{listers.New[*Foo](informer.GetIndexer(), resource)}
}

// Get finds a Foo.
func (l Lister) Get(namespace, name string) (*Foo, error) {
	return listers.NewNamespaced(l.all, namespace).Get(name)
}
