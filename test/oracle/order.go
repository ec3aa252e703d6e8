package oracle

import (
	"cmp"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// orderedPods shows upstream the pods of an owner in one order: by their index, and by
// their names. It finds them in a map, and which of several it blames, keeps or takes
// first is the first one or the last one that it comes to; so is ours, in this order.
// Which pods of a replica set go first is told by comparing two at a time, and three
// can be in a circle: then, too, it is the order in which they were found that decides.
type orderedPods struct{ coreinformers.PodInformer }

// Informer is the one below, with an order.
func (o orderedPods) Informer() cache.SharedIndexInformer {
	return orderedInformer{o.PodInformer.Informer()}
}

// silentPods is for controllers that look at a Service once for itself and once for its pods:
// nothing is told of the pods, which are listed all the same. The world stands still, so the
// sync for its pods would not see what the one for itself has written.
type silentPods struct{ coreinformers.PodInformer }

// Informer is the one below, which tells nothing.
func (s silentPods) Informer() cache.SharedIndexInformer {
	Uses("sync-of-pods")
	return silentInformer{s.PodInformer.Informer()}
}

type silentInformer struct{ cache.SharedIndexInformer }

// AddEventHandler adds a handler that is told nothing.
func (s silentInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.SharedIndexInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
}

type orderedInformer struct{ cache.SharedIndexInformer }

func (o orderedInformer) GetIndexer() cache.Indexer {
	return orderedIndexer{o.SharedIndexInformer.GetIndexer()}
}

type orderedIndexer struct{ cache.Indexer }

// ByIndex is what is under a value, in order.
func (o orderedIndexer) ByIndex(name, value string) ([]any, error) {
	found, err := o.Indexer.ByIndex(name, value)
	slices.SortFunc(found, inOrder)
	return found, err
}

func inOrder(a, b any) int {
	x, y := a.(metav1.Object), b.(metav1.Object)
	return cmp.Or(cmp.Compare(place(x), place(y)), cmp.Compare(x.GetName(), y.GetName()))
}

// place is the index of a pod of a Job; what has none comes first.
func place(obj metav1.Object) int {
	if index, err := strconv.Atoi(obj.GetAnnotations()[batchv1.JobCompletionIndexAnnotation]); err == nil && index >= 0 {
		return index
	}
	return -1
}
