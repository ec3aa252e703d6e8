package report_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/report"
)

// A stalled controller names its reason, and what an operator can do about it.
func ExampleStall() {
	s := report.Stall{Controller: "job-controller", Condition: report.NotRead, Detail: "pods"}
	fmt.Println(s)
	fmt.Println(s.Condition.Advice())
	// Output:
	// it waits until a kind has been read to its end: pods
	// look whether the watcher runs and may list and watch the kind
}
