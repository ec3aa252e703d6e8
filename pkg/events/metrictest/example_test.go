package metrictest_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/metrictest"
)

// A test asks how often something was counted.
func ExampleScrape_Sum() {
	turns := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turns_total"}, []string{"controller", "result"})
	turns.WithLabelValues("job", "stored").Add(2)
	turns.WithLabelValues("job", "refused").Inc()
	turns.WithLabelValues("cronjob", "stored").Inc()
	scrape := metrictest.Collect(&testing.T{}, turns) // in a test, its own t
	fmt.Println(scrape.Sum("turns_total"), scrape.Sum("turns_total", "job"), scrape.Sum("turns_total", "controller=job", "result=stored"))
	// Output: 4 3 2
}
