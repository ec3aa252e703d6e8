package reconcile

import "github.com/millrace/millrace/pkg/events"

// Figure is a value of one of the controller's metrics ([Controller.Metrics]).
type Figure struct {
	Metric string
	Value  float64
	// Labels are the values of the metric's labels, in their order.
	Labels []string
	// Of is the object of one of the commands: the figure counts once it is known that
	// they did what they were to do or, if Failed, that one did not. Without it the
	// figure counts when the turn is stored. A gauge's counts at once.
	Of     events.Ref
	Failed bool
	// Took: the value is how many seconds it took until that was known, from the decision on.
	Took bool
}

// Sort is how the figures of a metric are put together.
type Sort string

// The sorts.
const (
	// Histogram shows how the figures are spread.
	Histogram Sort = ""
	// Counter is the sum of all figures.
	Counter Sort = "counter"
	// Gauge is the sum of what each key's newest decision says. A decision that says
	// nothing takes back what the key said before.
	Gauge Sort = "gauge"
	// Mark is a gauge of 1, for each set of labels that the newest decision of any key gives:
	// what several keys say counts once.
	Mark Sort = "mark"
)

// Metric is a metric of a controller's own, under the name that upstream has for it.
// What can be counted of every controller is none: the shell does that.
type Metric struct {
	Name, Help string
	Sort       Sort
	// Labels are their names; there are as many values of each as words of a list,
	// unless upstream's have more.
	Labels []string
	// Buckets are a histogram's.
	Buckets []float64
}

// Count is a figure of a counter, which counts when the turn is stored.
func Count(metric string, value float64, labels ...string) Figure {
	return Figure{Metric: metric, Value: value, Labels: labels}
}
