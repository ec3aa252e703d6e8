package workloads

import (
	"time"

	batchinformers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/tools/cache"
)

// patience delivers changes to upstream one after the other, each after upstream has processed everything so
// far: a millisecond passes before each, and virtual time passes only if nothing else runs. Otherwise it is
// chance which of its own writes a sync sees that begins as another ends. It may then miss a Job that it has
// just deleted, or find it unexpectedly.
type patience chan struct{}

// newPatience must be called in the bubble in which it waits.
func newPatience() patience { return make(patience, 1) }

func (p patience) tell(change func()) {
	p <- struct{}{}
	time.Sleep(time.Millisecond)
	change()
	<-p
}

type (
	patientCronJobs struct {
		batchinformers.CronJobInformer
		patience
	}
	patientJobs struct {
		batchinformers.JobInformer
		patience
	}
)

// Informer returns an informer with patient handlers.
func (p patientCronJobs) Informer() cache.SharedIndexInformer {
	return patientInformer{p.CronJobInformer.Informer(), p.patience}
}

// Informer returns an informer with patient handlers.
func (p patientJobs) Informer() cache.SharedIndexInformer {
	return patientInformer{p.JobInformer.Informer(), p.patience}
}

type patientInformer struct {
	cache.SharedIndexInformer
	patience
}

// AddEventHandler adds a handler that waits.
func (p patientInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return p.SharedIndexInformer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initially bool) { p.tell(func() { h.OnAdd(obj, initially) }) },
		UpdateFunc: func(was, obj any) { p.tell(func() { h.OnUpdate(was, obj) }) },
		DeleteFunc: func(obj any) { p.tell(func() { h.OnDelete(obj) }) },
	})
}
