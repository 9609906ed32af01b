package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"windlass/bench/peers/foo"
)

//go:embed foo.json
var fooTemplate []byte

//go:embed deployment.json
var deploymentTemplate []byte

// deploymentMessage is the Deployment with the number messageNumber as protobuf.
//
//go:embed deployment.pb
var deploymentMessage []byte

const messageNumber = 7654321

func marshalled() []byte {
	return must(deployment(messageNumber).Marshal())
}

// template makes objects, with their number for {n}.
type template string

func newTemplate(text []byte) template {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		panic(err)
	}
	return template(compact.String())
}

func (t template) object(number int) string {
	return strings.ReplaceAll(string(t), "{n}", fmt.Sprintf("%07d", number))
}

// list is a list of objects as JSON.
func (t template) list(from, to int) []byte {
	var body bytes.Buffer
	body.WriteString(t.head() + `,"metadata":{"resourceVersion":"90000000"},"items":[`)
	for n := from; n < to; n++ {
		if n > from {
			body.WriteByte(',')
		}
		body.WriteString(t.object(n))
	}
	body.WriteString("]}")
	return body.Bytes()
}

func (t template) head() string {
	var kind metav1.TypeMeta
	if err := json.Unmarshal([]byte(t.object(0)), &kind); err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"kind":"%sList","apiVersion":"%s"`, kind.Kind, kind.APIVersion)
}

// decoder decodes Deployments as client-go's typed clients do.
func decoder(mediaType string) (runtime.Decoder, runtime.SerializerInfo) {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		panic(mediaType)
	}
	return scheme.Codecs.WithoutConversion().DecoderToVersion(info.Serializer, appsv1.SchemeGroupVersion), info
}

func fooDecoder() runtime.Decoder {
	known := runtime.NewScheme()
	if err := foo.AddToScheme(known); err != nil {
		panic(err)
	}
	codecs := serializer.NewCodecFactory(known)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return codecs.WithoutConversion().DecoderToVersion(info.Serializer, foo.GroupVersion)
}

// deployment decodes one Deployment of the template.
func deployment(number int) *appsv1.Deployment {
	decoded := new(appsv1.Deployment)
	if err := json.Unmarshal([]byte(newTemplate(deploymentTemplate).object(number)), decoded); err != nil {
		panic(err)
	}
	return decoded
}

// asProtobuf encodes what the server would send to a client that asks for protobuf.
func asProtobuf(object runtime.Object) []byte {
	_, info := decoder(runtime.ContentTypeProtobuf)
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, appsv1.SchemeGroupVersion)
	return must(runtime.Encode(encoder, object))
}

// outside copies a prepared body out of the heap, so that it does not make the collector's work rarer.
func outside(body []byte) []byte {
	flags := syscall.MAP_ANON | syscall.MAP_PRIVATE
	mapped := must(syscall.Mmap(-1, 0, len(body), syscall.PROT_READ|syscall.PROT_WRITE, flags))
	copy(mapped, body)
	return mapped
}

func release(mapped []byte) {
	if err := syscall.Munmap(mapped); err != nil {
		panic(err)
	}
}
