package query

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubReadings is the subresource of an ask for the scale of an object and the metrics of its
// pods. The API server has no such subresource: the writer reads the object's scale, and then
// the metrics of the pods that the scale selects from the metrics APIs, all live. The answer is
// [Readings]; the body of the command is a [ReadingsQuestion].
const SubReadings = "readings"

// ReadingsQuestion is the body of a [SubReadings] ask.
type ReadingsQuestion struct {
	// Metrics are the metrics to read; their targets do not matter.
	Metrics []autoscalingv2.MetricSpec `json:"metrics,omitempty"`
	// Least and Most bound the scale's wanted replicas: outside of them, or at 0, the writer
	// reads no metrics.
	Least int32 `json:"least"`
	Most  int32 `json:"most"`
	// Zero makes the writer read the metrics at 0 wanted replicas, too.
	Zero bool `json:"zero,omitempty"`
}

// Counts reports whether the writer reads the metrics when the scale wants that many replicas.
func (q ReadingsQuestion) Counts(replicas int32) bool {
	if replicas == 0 {
		return q.Zero
	}
	return q.Least <= replicas && replicas <= q.Most
}

// Readings is the scale of an object and the values of the metrics.
type Readings struct {
	// Scale is nil when the writer could not read it; Failure is the reason.
	Scale   *Scale `json:"scale,omitempty"`
	Failure string `json:"failure,omitempty"`
	// Metrics has one entry for each requested metric, in the same order, or none at all.
	Metrics []Reading `json:"metrics,omitempty"`
}

// Scale is how many pods an object has and wants.
type Scale struct {
	// Kind and Version are the resource that the scale was read from.
	Kind            kinds.Name `json:"kind"`
	Version         string     `json:"version"`
	UID             types.UID  `json:"uid"`
	ResourceVersion string     `json:"resourceVersion"`
	// Replicas is the wanted number of pods, Current the existing number.
	Replicas int32 `json:"replicas"`
	Current  int32 `json:"current,omitempty"`
	// Selector selects the pods, in the string form of a label selector.
	Selector string `json:"selector,omitempty"`
}

// Reading is the value of one metric.
type Reading struct {
	Samples []Sample `json:"samples,omitempty"`
	// Failure is the reason why there are no samples.
	Failure string `json:"failure,omitempty"`
	// Took is how long the request took, in seconds.
	Took float64 `json:"took,omitempty"`
}

// Sample is the value of a metric, for one pod if it is a metric of pods.
type Sample struct {
	Pod   string `json:"pod,omitempty"`
	Milli int64  `json:"milli"` // thousandths
	// At is the time of the measurement and Window its length in seconds. They are set only
	// where they matter: for CPU usage, which is high when a pod starts.
	At     *metav1.Time `json:"at,omitempty"`
	Window float64      `json:"window,omitempty"`
}
