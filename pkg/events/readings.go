package events

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubReadings is the subresource of an ask for how many pods an object has, and how busy
// they are. The API server has none of that name: the writer reads the scale of the object
// that the ask is of, and then the metrics of the pods that the scale selects, from the
// metrics APIs, all live. The answer is [Readings], the body of the command a
// [ReadingsQuestion].
const SubReadings = "readings"

// ReadingsQuestion is what is asked.
type ReadingsQuestion struct {
	// Metrics are read, each as it is specified; what they should be does not matter.
	Metrics []autoscalingv2.MetricSpec `json:"metrics,omitempty"`
	// Least and Most bound how many replicas must be asked for in the scale: where it
	// is more or fewer, or none, no metrics are read.
	Least int32 `json:"least"`
	Most  int32 `json:"most"`
	// Zero has the metrics read where none are asked for, too.
	Zero bool `json:"zero,omitempty"`
}

// Counts tells whether the metrics are read where a scale asks for so many replicas.
func (q ReadingsQuestion) Counts(replicas int32) bool {
	if replicas == 0 {
		return q.Zero
	}
	return q.Least <= replicas && replicas <= q.Most
}

// Readings is the scale of an object, and what the metrics are.
type Readings struct {
	// Scale is nil where it could not be read; Failure is why.
	Scale   *Scale `json:"scale,omitempty"`
	Failure string `json:"failure,omitempty"`
	// Metrics are those that were asked for, in their order, or none at all.
	Metrics []Reading `json:"metrics,omitempty"`
}

// Scale is how many pods an object has and wants.
type Scale struct {
	// Kind and Version are where it was read.
	Kind            kinds.Name `json:"kind"`
	Version         string     `json:"version"`
	UID             types.UID  `json:"uid"`
	ResourceVersion string     `json:"resourceVersion"`
	// Replicas are wanted, Current are there.
	Replicas int32 `json:"replicas"`
	Current  int32 `json:"current,omitempty"`
	// Selector selects the pods, in the form of a query.
	Selector string `json:"selector,omitempty"`
}

// Reading is the value of one metric.
type Reading struct {
	Samples []Sample `json:"samples,omitempty"`
	// Failure is why there is none.
	Failure string `json:"failure,omitempty"`
	// Took is for how many seconds it was waited for.
	Took float64 `json:"took,omitempty"`
}

// Sample is the value of a metric, of a pod where it is one of pods.
type Sample struct {
	Pod   string `json:"pod,omitempty"`
	Milli int64  `json:"milli"` // thousandths
	// At is when the last of it was measured and Window for how many seconds, where
	// that matters: for the CPU that a pod uses, which starts with a lot of it.
	At     *metav1.Time `json:"at,omitempty"`
	Window float64      `json:"window,omitempty"`
}
