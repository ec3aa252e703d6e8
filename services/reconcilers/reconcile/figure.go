package reconcile

import "github.com/millrace/millrace/pkg/events"

// Figure is a value of one of the controller's metrics ([Controller.Metrics]).
type Figure struct {
	Metric string
	Value  float64
	// Labels are the values of the metric's labels, in their order.
	Labels []string
	// Of is the object of a command. The figure counts once all commands about it are known
	// to have succeeded or, if Failed, one to have failed. Without Of the figure counts when
	// the turn is stored. The figure of a gauge counts at once.
	Of     events.Ref
	Failed bool
	// Took replaces the value with the seconds from the decision until that result was known.
	Took bool
}

// Sort is how the figures of a metric are aggregated.
type Sort string

// The sorts.
const (
	// Histogram is the distribution of the figures.
	Histogram Sort = ""
	// Counter is the sum of all figures.
	Counter Sort = "counter"
	// Gauge is the sum over the newest decision of every key. A decision without a figure
	// removes the key's earlier one.
	Gauge Sort = "gauge"
	// Mark is a gauge of 1 for each set of labels in the newest decision of any key. Several
	// keys with the same labels count once.
	Mark Sort = "mark"
)

// Metric is a metric of one controller, under upstream's name. The shell counts what all
// controllers have in common.
type Metric struct {
	Name, Help string
	Sort       Sort
	// Labels are the names of the labels. Their values come from small fixed lists, unless
	// upstream's do not.
	Labels []string
	// Buckets are the upper bounds of a histogram.
	Buckets []float64
}

// Count returns a figure of a counter, which counts when the turn is stored.
func Count(metric string, value float64, labels ...string) Figure {
	return Figure{Metric: metric, Value: value, Labels: labels}
}
