package nodelifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A zone of 1,700 live nodes has a turn every forty seconds.
func BenchmarkTheTurnOfALargeZone(b *testing.B) {
	view := View{Zone: &Zone{Sight: events.Sight{Since: ago(time.Hour), Until: now}}}
	for i := range 1700 {
		n := node(fmt.Sprint("n", i), is("True"))
		view.Zone.Members = append(view.Zone.Members, Member{n, ago(time.Minute), ago(time.Duration(i%10) * time.Second)})
	}
	for b.Loop() {
		if d := controller.Decide(view, now); len(d.Commands) > 0 || d.WakeAt.IsZero() {
			b.Fatalf("%+v", d)
		}
	}
}
