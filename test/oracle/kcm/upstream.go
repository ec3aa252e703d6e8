package kcm

import (
	"context"
	"reflect"
	"unsafe"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Build makes one of upstream's controllers on informers; run runs it until the context ends.
type Build func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (run func(), err error)

// Quiet silences the logs of upstream's code. It also removes its error handlers, because one of them sleeps.
func Quiet() {
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
}

// Field is an unexported field of a structure.
func Field(of any, field string) any {
	v := reflect.ValueOf(of).Elem().FieldByName(field)
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem().Interface()
}
