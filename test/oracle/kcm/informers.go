package kcm

import (
	"cmp"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/millrace/millrace/test/oracle/exemption"
)

// OrderedPods shows upstream the pods of an owner in one order: by index, and by name. Upstream finds them in
// a map, and blames, keeps or takes the first or the last one that it reaches; ours does so in this order.
// The order in which pods of a replica set are deleted comes from comparing two at a time, and three can form
// a circle: then, too, the order in which they were found decides.
type OrderedPods struct{ coreinformers.PodInformer }

// Informer returns the ordered informer.
func (o OrderedPods) Informer() cache.SharedIndexInformer {
	return orderedInformer{o.PodInformer.Informer()}
}

// SilentPods is for controllers that sync a Service once for itself and once for its pods: it sends no events
// of pods, which are listed all the same. In a frozen world the sync for the pods would not see the writes of
// the first one.
type SilentPods struct{ coreinformers.PodInformer }

// Informer returns the silent informer.
func (s SilentPods) Informer() cache.SharedIndexInformer {
	exemption.Uses("sync-of-pods")
	return silentInformer{s.PodInformer.Informer()}
}

type silentInformer struct{ cache.SharedIndexInformer }

// AddEventHandler adds a handler that gets no events.
func (s silentInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.SharedIndexInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
}

type orderedInformer struct{ cache.SharedIndexInformer }

// GetIndexer returns the ordered indexer.
func (o orderedInformer) GetIndexer() cache.Indexer {
	return orderedIndexer{o.SharedIndexInformer.GetIndexer()}
}

type orderedIndexer struct{ cache.Indexer }

// ByIndex returns the objects under an index value, in order.
func (o orderedIndexer) ByIndex(name, value string) ([]any, error) {
	found, err := o.Indexer.ByIndex(name, value)
	slices.SortFunc(found, inOrder)
	return found, err
}

func inOrder(a, b any) int {
	x, y := a.(metav1.Object), b.(metav1.Object)
	return cmp.Or(cmp.Compare(place(x), place(y)), cmp.Compare(x.GetName(), y.GetName()))
}

// place is the index of a pod of a Job; pods without an index come first.
func place(obj metav1.Object) int {
	if index, err := strconv.Atoi(obj.GetAnnotations()[batchv1.JobCompletionIndexAnnotation]); err == nil && index >= 0 {
		return index
	}
	return -1
}
